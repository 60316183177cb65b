// Happens-before: vector clocks over the threads of a cluster and the agents that act for them (TMA loads of an mbarrier, the
// wgmmas of a warpgroup, the TMA stores of a thread). An access is a pair (agent, clock); a thread may rely on it if it *knows* that
// clock.
//
// Clocks only grow. A release publishes all a thread knows, its own clock included, and then advances that clock; so later accesses
// are not covered by it. After a barrier of all threads every one knows every clock of a thread at that barrier (`covered`): the
// number of such barriers, the epoch, decides most questions without the vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cb::emulator {

constexpr int max_agents = 512;

using Knowledge = std::vector<uint32_t>;

class Order {
  public:
    uint32_t epoch = 1;

    void reset(int thread_count) {
        // Most blocks only ever meet as a whole: their vectors hold nothing but the threads' own clocks.
        if (learned || thread_count != threads) {
            threads = thread_count;
            stride = static_cast<size_t>(threads + max_agents);
            clocks.assign(stride * static_cast<size_t>(threads), 0);
            learned = false;
        }
        width = threads;
        epoch = 1;
        for (int t = 0; t < threads; ++t) clocks[stride * t + t] = 1;
        covered.assign(stride, 0);
        fences.resize(static_cast<size_t>(threads));
        for (auto& list : fences) list.clear();
        ++version;
    }

    // A new agent, or -1 if there are too many.
    int new_agent() { return width == threads + max_agents ? -1 : width++; }

    Knowledge nothing() const { return Knowledge(stride, 0); }

    bool is_thread(int agent) const { return agent < threads; }
    uint32_t clock(int thread) const { return clocks[stride * thread + thread]; }
    uint32_t known(int thread, int agent) const { return std::max(covered[agent], clocks[stride * thread + agent]); }

    // Whether any of `count` threads from `first` on knows that an agent has reached `clock`.
    bool known_in(int first, int count, int agent, uint32_t clock) const {
        for (int t = first; t < first + count; ++t)
            if (known(t, agent) >= clock) return true;
        return false;
    }

    void release(int thread, Knowledge& into) {
        uint32_t* own = &clocks[stride * thread];
        for (int i = 0; i < width; ++i) into[i] = std::max(into[i], own[i]);
        advance(thread);
    }

    // Publishes what a thread knows of agents, and nothing of threads.
    void release_agents(int thread, Knowledge& into) const {
        for (int i = threads; i < width; ++i) into[i] = std::max(into[i], known(thread, i));
    }

    void acquire(int thread, Knowledge const& from) {
        uint32_t* own = &clocks[stride * thread];
        uint32_t const clock_now = own[thread];
        for (int i = 0; i < width; ++i) own[i] = std::max(own[i], from[i]);
        own[thread] = clock_now;
        learned = true;
        ++version;
    }

    // What a thread knows now of all threads and agents.
    Knowledge everything(int thread) const {
        Knowledge now(static_cast<size_t>(width));
        for (int i = 0; i < width; ++i) now[static_cast<size_t>(i)] = known(thread, i);
        return now;
    }

    // Acquires what everything() returned earlier; there may be more agents by now.
    void acquire_some(int thread, Knowledge const& from) {
        uint32_t* own = &clocks[stride * thread];
        for (int i = 0; i < static_cast<int>(from.size()); ++i)
            if (i != thread) own[i] = std::max(own[i], from[static_cast<size_t>(i)]);
        learned = true;
        ++version;
    }

    // The thread acquires that an agent has reached `clock`.
    void learn(int thread, int agent, uint32_t clock) {
        uint32_t& own = clocks[stride * thread + agent];
        own = std::max(own, clock);
        learned = true;
        ++version;
    }

    void advance(int thread) {
        ++clocks[stride * thread + thread];
        ++version;
    }

    // Some threads meet, in any order.
    void meet(std::vector<int> const& those) {
        Knowledge together = nothing();
        for (int t : those) release(t, together);
        for (int t : those) acquire(t, together);
    }

    // All threads meet: each knows all that any of them knew.
    void everyone_meets() {
        for (int t = 0; t < threads; ++t) {
            covered[t] = clock(t);
            advance(t);
            for (int a = threads; a < width; ++a) covered[a] = std::max(covered[a], clocks[stride * t + a]);
        }
        ++epoch;
        ++version;
    }

    // What every one of `count` threads from `first` on knows.
    Knowledge const& common(int first, int count) {
        if (common_version != version || common_first != first) {
            common_clocks.assign(stride, UINT32_MAX);
            for (int t = first; t < first + count; ++t) {
                uint32_t const* own = &clocks[stride * t];
                for (int i = 0; i < width; ++i) common_clocks[i] = std::min(common_clocks[i], own[i]);
            }
            for (int i = 0; i < width; ++i) common_clocks[i] = std::max(common_clocks[i], covered[i]);
            common_version = version;
            common_first = first;
        }
        return common_clocks;
    }

    Knowledge const& of(int thread) { return common(thread, 1); }

    // fence.proxy.async: the thread's writes up to now become visible to the asynchronous proxy for whoever acquires the fence.
    void fence(int thread) {
        fences[thread].push_back(clock(thread));
        advance(thread);
        ++version;
    }

    // Whether the thread fenced after its access at `clock`, and `known` covers such a fence.
    bool fenced(int thread, uint32_t clock, uint32_t known) const {
        auto const& list = fences[thread];
        auto const first = std::lower_bound(list.begin(), list.end(), clock);
        return first != list.end() && *first <= known;
    }

  private:
    int threads = 0;
    int width = 0;
    size_t stride = 0;
    std::vector<uint32_t> clocks;   // threads x stride: what each thread knows
    std::vector<uint32_t> covered;  // what every thread knows since all met last
    std::vector<std::vector<uint32_t>> fences;
    bool learned = true;   // whether any thread learned of another other than where all met
    uint64_t version = 0;  // changes with what anyone knows
    uint64_t common_version = 0;
    int common_first = -1;
    Knowledge common_clocks;
};

}  // namespace cb::emulator

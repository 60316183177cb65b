// What threads release to others through flags in global memory, and who has acquired it. Within a cluster that is a matter of its own
// clocks (order.h). What another cluster has released is an agent there: the agent of a thread of another cluster, whose clock says
// which of that thread's releases one knows. Each release says what its thread knew then.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shared.h"

namespace cb::emulator {

// A thread of a cluster, and one of its clocks.
struct Moment {
    uint32_t cluster;
    int thread;
    uint32_t clock;
};

struct Release {
    Moment when;
    Knowledge known;             // of the threads and agents of its cluster
    std::vector<Moment> others;  // releases of other clusters that the thread had acquired
};

struct Import {
    uint32_t cluster;
    int thread, agent;
};

inline std::vector<Import> imports;  // of the running cluster

class Releases {
  public:
    void start_launch() {
        all.clear();
        of_thread.clear();
        at_flag.clear();
    }

    // The running thread stores a flag: whoever sees that learns what the thread knows.
    void release(void const* flag) {
        Order& order = machine.order;
        int const thread = machine.running;
        Release now{{machine.cluster, thread, order.clock(thread)}, order.everything(thread), {}};
        for (Import const& import : imports)
            if (uint32_t const clock = order.known(thread, import.agent)) now.others.push_back({import.cluster, import.thread, clock});
        order.advance(thread);
        all.push_back(std::move(now));
        of_thread[{machine.cluster, thread}].push_back(&all.back());
        at_flag[flag] = &all.back();
    }

    // The running thread has seen a flag.
    void acquire(void const* flag, int line) {
        auto const found = at_flag.find(flag);
        if (found == at_flag.end()) return;
        learn(found->second->when, line);
        for (Moment const& other : found->second->others) learn(other, line);
    }

    // Whether a thread may rely on an access of another cluster.
    bool known(int thread, Moment const& access) const {
        for (Import const& import : imports) {
            if (import.cluster != access.cluster) continue;
            uint32_t const clock = machine.order.known(thread, import.agent);
            if (clock == 0) continue;
            Knowledge const& then = at({import.cluster, import.thread, clock}).known;
            if (static_cast<size_t>(access.thread) < then.size() && then[static_cast<size_t>(access.thread)] >= access.clock) return true;
        }
        return false;
    }

  private:
    std::deque<Release> all;
    std::map<std::pair<uint32_t, int>, std::vector<Release const*>> of_thread;
    std::unordered_map<void const*, Release const*> at_flag;

    // The last release of a thread that is not after a moment; there is one.
    Release const& at(Moment const& moment) const {
        auto const& list = of_thread.at({moment.cluster, moment.thread});
        auto const later = [](uint32_t clock, Release const* release) { return clock < release->when.clock; };
        return **std::prev(std::upper_bound(list.begin(), list.end(), moment.clock, later));
    }

    void learn(Moment const& moment, int line) {
        Order& order = machine.order;
        int const me = machine.running;
        if (moment.cluster == machine.cluster) {
            if (moment.thread != me && order.known(me, moment.thread) < moment.clock) order.acquire_some(me, at(moment).known);
            return;
        }
        auto const same = [&](Import const& i) { return i.cluster == moment.cluster && i.thread == moment.thread; };
        auto import = std::find_if(imports.begin(), imports.end(), same);
        if (import == imports.end()) {
            int const agent = shared.new_agent({Agent::other_cluster, moment.thread}, line);
            import = imports.insert(imports.end(), {moment.cluster, moment.thread, agent});
        }
        if (order.known(me, import->agent) < moment.clock) order.learn(me, import->agent, moment.clock);
    }
};

inline Releases releases;

}  // namespace cb::emulator

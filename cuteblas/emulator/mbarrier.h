// mbarriers: phases that complete when the expected arrivals and bytes have come in.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shared.h"

namespace cb::emulator {

// When a thread arrived: in which phase of the mbarrier, and after how many barriers of the cluster.
struct Arrival {
    uint32_t phase, cluster_barriers;
};

struct Mbarrier {
    uint32_t offset;
    int count;            // arrivals of a phase
    int pending;          // arrivals that this phase still lacks
    long long bytes = 0;  // expected less completed in this phase
    uint32_t phase = 0;   // completed phases
    Knowledge arriving;   // what the arrivals of this phase publish
    Knowledge completed;  // of the last completed phase
    int agent;            // its TMA loads, and words that others store
    uint32_t loads = 0;   // how many were issued: the agent's clock
    bool fenced = false;  // initialisation visible to the asynchronous proxy
    int initialiser;
    uint32_t initialised;  // the initialiser's clock then
    std::vector<int> waiting;
    uint32_t waited = 0;  // phases that a thread of the block has seen complete
    std::map<int, Arrival> from_others;  // the last arrivals of threads of other blocks
};

struct Mbarriers {
    static constexpr uint32_t bytes = 8;
    static constexpr int most_arrivals = (1 << 20) - 1;

    std::vector<Mbarrier> all;
    std::vector<int> at;  // index by offset / 8, or -1

    void start_cluster() {
        all.clear();
        at.assign(shared.end() / bytes + 1, -1);
    }

    // That of the running thread's block.
    Mbarrier& find(void const* pointer, int line, char const* verb) { return find(pointer, machine.rank(), line, verb); }

    Mbarrier& find(void const* pointer, int rank, int line, char const* verb) {
        uint32_t const offset = shared.locate(pointer, bytes, bytes, verb, line, rank);
        int const index = at[offset / bytes];
        if (index < 0)
            fail(Error::mbarrier, line, "%s the mbarrier at shared offset %u%s, which nothing has initialised", verb,
                 shared.local(offset), shared.elsewhere(offset).c_str());
        shared.refine(bytes);
        Mbarrier& barrier = all[index];
        if (!shared.write_known(shared.cell_at(offset), machine.running))
            fail(Error::race, line, "%s the mbarrier at shared offset %u that %s initialised, and no barrier orders the two", verb,
                 shared.local(offset), machine.name(barrier.initialiser).c_str());
        return barrier;
    }

    // What fences after initialisation tell a cluster.
    void publish(Knowledge& into) const {
        for (Mbarrier const& barrier : all)
            if (barrier.fenced) into[barrier.initialiser] = std::max(into[barrier.initialiser], barrier.initialised);
    }

    void complete_if_due(Mbarrier& barrier) {
        if (barrier.pending != 0 || barrier.bytes != 0) return;
        ++barrier.phase;
        barrier.pending = barrier.count;
        barrier.completed.swap(barrier.arriving);
        std::fill(barrier.arriving.begin(), barrier.arriving.end(), 0);
        for (int t : barrier.waiting) machine.make_ready(t);
        barrier.waiting.clear();
    }
};

inline Mbarriers mbarriers;

inline void mbarrier_init(unsigned long long* pointer, int count, int line) {
    uint32_t const offset = shared.locate(pointer, Mbarriers::bytes, Mbarriers::bytes, "initialises", line);
    if (count < 1 || count > Mbarriers::most_arrivals)
        fail(Error::mbarrier, line, "an mbarrier counts 1 to %d arrivals, got %d", Mbarriers::most_arrivals, count);
    if (mbarriers.at[offset / Mbarriers::bytes] >= 0)
        fail(Error::mbarrier, line, "initialises the mbarrier at shared offset %u a second time", shared.local(offset));
    shared.write(machine.running, offset, Mbarriers::bytes, line, is_mbarrier);
    mbarriers.at[offset / Mbarriers::bytes] = static_cast<int>(mbarriers.all.size());
    Mbarrier barrier{};
    barrier.offset = offset;
    barrier.count = barrier.pending = count;
    barrier.arriving = barrier.completed = machine.order.nothing();
    barrier.agent = shared.new_agent({Agent::tma_load, static_cast<int>(shared.local(offset))}, line);
    barrier.initialiser = machine.running;
    barrier.initialised = machine.order.clock(machine.running);
    mbarriers.all.push_back(std::move(barrier));
}

// fence.proxy.async, which also makes the thread's initialised mbarriers usable by the asynchronous proxy.
inline void fence_proxy_async() {
    machine.order.fence(machine.running);
    for (Mbarrier& barrier : mbarriers.all)
        if (barrier.initialiser == machine.running) barrier.fenced = true;
}

inline void arrive(Mbarrier& barrier, int expected_bytes, bool relaxed, int line) {
    if (expected_bytes < 0 || expected_bytes > Mbarriers::most_arrivals)
        fail(Error::mbarrier, line, "an mbarrier expects 0 to %d bytes, got %d", Mbarriers::most_arrivals, expected_bytes);
    if (barrier.pending == 0)
        fail(Error::mbarrier, line,
             "arrives at the mbarrier at shared offset %u, whose %d arrivals of phase %u are all in (%lld bytes are missing)",
             shared.local(barrier.offset), barrier.count, barrier.phase, barrier.bytes);
    if (relaxed)
        machine.order.release_agents(machine.running, barrier.arriving);
    else
        machine.order.release(machine.running, barrier.arriving);
    barrier.bytes += expected_bytes;
    if (--barrier.pending == 0 && barrier.bytes < 0)
        fail(Error::mbarrier, line,
             "at the mbarrier at shared offset %u, %lld bytes more have been copied in phase %u than were expected",
             shared.local(barrier.offset), -barrier.bytes, barrier.phase);
    mbarriers.complete_if_due(barrier);
}

inline void mbarrier_arrive(unsigned long long* pointer, int expected_bytes, int line) {
    arrive(mbarriers.find(pointer, line, "arrives at"), expected_bytes, false, line);
}

// At the barrier of the block of that rank. Who waits there learns which asynchronous operations are over, and of no ordinary
// access.
inline void mbarrier_arrive_at(unsigned long long* pointer, int rank, int line) {
    Mbarrier& barrier = mbarriers.find(pointer, rank, line, "arrives at");
    if (rank != machine.rank()) barrier.from_others[machine.running] = {barrier.phase, machine.cluster_barriers};
    arrive(barrier, 0, true, line);
}

inline void mbarrier_wait(unsigned long long* pointer, int parity, int line) {
    Mbarrier const* barrier = &mbarriers.find(pointer, line, "waits for");
    if (parity != 0 && parity != 1) fail(Error::mbarrier, line, "the parity of a phase is 0 or 1, got %d", parity);
    auto const index = barrier - mbarriers.all.data();
    uint32_t const offset = barrier->offset;
    while (static_cast<int>(mbarriers.all[index].phase & 1) == parity) {
        mbarriers.all[index].waiting.push_back(machine.running);
        machine.suspend({Wait::mbarrier, static_cast<int>(offset), parity, line});
    }
    machine.order.acquire(machine.running, mbarriers.all[index].completed);
    mbarriers.all[index].waited = mbarriers.all[index].phase;
}

// A block may not end while others may still arrive at its mbarriers: someone in it must know that they have.
inline void expect_arrivals_known() {
    for (Mbarrier const& barrier : mbarriers.all) {
        if (shared.rank_of(barrier.offset) != machine.rank()) continue;
        for (auto const& [thread, arrival] : barrier.from_others)
            if (barrier.waited <= arrival.phase && machine.cluster_barriers == arrival.cluster_barriers)
                fail(Error::mbarrier, 0,
                     "the block ends and nothing in it has waited for the arrival of %s at its mbarrier at shared offset %u",
                     machine.name(thread).c_str(), shared.local(barrier.offset));
    }
}

}  // namespace cb::emulator

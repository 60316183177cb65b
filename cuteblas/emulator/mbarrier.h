// mbarriers: phases that complete when the expected arrivals and bytes have come in.
#pragma once

#include <string>
#include <vector>

#include "shared.h"

namespace cb::emulator {

struct Mbarrier {
    uint32_t offset;
    int count;            // arrivals of a phase
    int pending;          // arrivals that this phase still lacks
    long long bytes = 0;  // expected less completed in this phase
    uint32_t phase = 0;   // completed phases
    Knowledge arriving;   // what the arrivals of this phase publish
    Knowledge completed;  // of the last completed phase
    int agent;            // its TMA loads
    uint32_t loads = 0;   // how many were issued: the agent's clock
    bool fenced = false;  // initialisation visible to the asynchronous proxy
    int initialiser;
    std::vector<int> waiting;
};

struct Mbarriers {
    static constexpr uint32_t bytes = 8;
    static constexpr int most_arrivals = (1 << 20) - 1;

    std::vector<Mbarrier> all;
    std::vector<int> at;  // index by offset / 8, or -1

    void start_block() {
        all.clear();
        at.assign(shared.size / bytes + 1, -1);
    }

    Mbarrier& find(void const* pointer, int line, char const* verb) {
        uint32_t const offset = shared.locate(pointer, bytes, bytes, verb, line);
        int const index = at[offset / bytes];
        if (index < 0)
            fail(Error::mbarrier, line, "%s the mbarrier at shared offset %u, which nothing has initialised", verb, offset);
        shared.refine(bytes);
        Mbarrier& barrier = all[index];
        if (!shared.write_known(shared.cell_at(offset), machine.running))
            fail(Error::race, line, "%s the mbarrier at shared offset %u that thread %d initialised, and no barrier orders the two",
                 verb, offset, barrier.initialiser);
        return barrier;
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
        fail(Error::mbarrier, line, "initialises the mbarrier at shared offset %u a second time", offset);
    shared.write(machine.running, offset, Mbarriers::bytes, line, is_mbarrier);
    mbarriers.at[offset / Mbarriers::bytes] = static_cast<int>(mbarriers.all.size());
    Mbarrier barrier{};
    barrier.offset = offset;
    barrier.count = barrier.pending = count;
    barrier.arriving = barrier.completed = machine.order.nothing();
    barrier.agent = shared.new_agent({Agent::tma_load, static_cast<int>(offset)}, line);
    barrier.initialiser = machine.running;
    mbarriers.all.push_back(std::move(barrier));
}

// fence.proxy.async, which also makes the thread's initialised mbarriers usable by the asynchronous proxy.
inline void fence_proxy_async() {
    machine.order.fence(machine.running);
    for (Mbarrier& barrier : mbarriers.all)
        if (barrier.initialiser == machine.running) barrier.fenced = true;
}

inline void mbarrier_arrive(unsigned long long* pointer, int expected_bytes, int line) {
    Mbarrier& barrier = mbarriers.find(pointer, line, "arrives at");
    if (expected_bytes < 0 || expected_bytes > Mbarriers::most_arrivals)
        fail(Error::mbarrier, line, "an mbarrier expects 0 to %d bytes, got %d", Mbarriers::most_arrivals, expected_bytes);
    if (barrier.pending == 0)
        fail(Error::mbarrier, line,
             "arrives at the mbarrier at shared offset %u, whose %d arrivals of phase %u are all in (%lld bytes are missing)",
             barrier.offset, barrier.count, barrier.phase, barrier.bytes);
    machine.order.release(machine.running, barrier.arriving);
    barrier.bytes += expected_bytes;
    if (--barrier.pending == 0 && barrier.bytes < 0)
        fail(Error::mbarrier, line,
             "at the mbarrier at shared offset %u, %lld bytes more have been copied in phase %u than were expected", barrier.offset,
             -barrier.bytes, barrier.phase);
    mbarriers.complete_if_due(barrier);
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
}

}  // namespace cb::emulator

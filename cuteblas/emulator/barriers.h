// Barriers of threads: the block's, the warps', the named ones.
#pragma once

#include <string>
#include <vector>

#include "shared.h"

namespace cb::emulator {

constexpr int named_barriers = 16;

struct Barrier {
    int expected = 0;
    int arrived = 0;
    Knowledge knowledge;
    std::vector<int> waiting;
};

struct Barriers {
    std::vector<int> at_block;
    std::vector<Barrier> warps;
    std::vector<Barrier> named;

    void start_block() {
        at_block.clear();
        int const count = static_cast<int>(machine.threads.size());
        warps.assign(static_cast<size_t>((count + warp_threads - 1) / warp_threads), Barrier{});
        for (size_t w = 0; w < warps.size(); ++w)
            warps[w].expected = std::min(warp_threads, count - static_cast<int>(w) * warp_threads);
        named.assign(named_barriers, Barrier{});
    }
};

inline Barriers barriers;

[[noreturn]] inline void exited_before_block_barrier(int line) {
    std::vector<int> gone;
    for (int t = 0; t < static_cast<int>(machine.threads.size()); ++t)
        if (machine.threads[t].exited) gone.push_back(t);
    machine.stop(Error::barrier, line,
                 machine.where(true, line) + "syncthreads needs every thread of the block, but " + list_threads(gone) +
                     " returned before it");
}

inline void syncthreads(int line) {
    auto& waiting = barriers.at_block;
    waiting.push_back(machine.running);
    if (machine.alive < static_cast<int>(machine.threads.size())) exited_before_block_barrier(line);
    if (waiting.size() < machine.threads.size()) return machine.suspend({Wait::block_barrier, 0, 0, line});
    machine.order.block_barrier();
    // In order of the threads, this one too, so that the schedule does not depend on who came last.
    std::sort(waiting.begin(), waiting.end());
    for (int t : waiting) machine.make_ready(t);
    waiting.clear();
    machine.suspend({});
}

// A barrier of some threads: what each knew becomes known to those that wait.
inline void meet(Barrier& barrier, bool wait, Wait const& reason) {
    int const me = machine.running;
    if (barrier.arrived++ == 0) barrier.knowledge = machine.order.nothing();
    machine.order.release(me, barrier.knowledge);
    if (wait) barrier.waiting.push_back(me);
    if (barrier.arrived < barrier.expected) {
        if (wait) machine.suspend(reason);
        return;
    }
    std::sort(barrier.waiting.begin(), barrier.waiting.end());
    for (int t : barrier.waiting) {
        machine.order.acquire(t, barrier.knowledge);
        machine.make_ready(t);
    }
    barrier.arrived = 0;
    barrier.waiting.clear();
    if (wait) machine.suspend({});
}

inline void syncwarp(int line) {
    int const warp = machine.running / warp_threads;
    meet(barriers.warps[warp], true, {Wait::warp_barrier, warp, 0, line});
}

inline void named_barrier(int id, int threads, bool wait, int line) {
    if (id < 1 || id >= named_barriers)
        fail(Error::barrier, line, "a named barrier has a number from 1 to %d, got %d", named_barriers - 1, id);
    if (threads <= 0 || threads % warp_threads != 0 || threads > static_cast<int>(machine.threads.size()))
        fail(Error::barrier, line, "a named barrier counts whole warps of the block, got %d threads in a block of %zu", threads,
             machine.threads.size());
    Barrier& barrier = barriers.named[id];
    if (barrier.arrived > 0 && barrier.expected != threads)
        fail(Error::barrier, line, "named barrier %d is used with %d threads, but others at it said %d", id, threads,
             barrier.expected);
    barrier.expected = threads;
    meet(barrier, wait, {Wait::named_barrier, id, 0, line});
}

}  // namespace cb::emulator

// Barriers of threads: the cluster's, the block's, the warps', the named ones.
#pragma once

#include <string>
#include <vector>

#include "mbarrier.h"

namespace cb::emulator {

constexpr int named_barriers = 16;

struct Barrier {
    int expected = 0;
    int arrived = 0;
    Knowledge knowledge;
    std::vector<int> waiting;
};

struct Barriers {
    std::vector<int> at_cluster;
    bool cluster_orders = true;        // whether all threads that wait there want their accesses ordered
    std::vector<std::vector<int>> at_block;
    std::vector<char> votes;           // of each block: whether a thread that waits there said yes
    std::vector<char> results;         // of the last vote
    std::vector<Barrier> warps;
    std::vector<Barrier> named;  // of each block

    void start_cluster() {
        at_cluster.clear();
        cluster_orders = true;
        at_block.assign(static_cast<size_t>(machine.blocks()), {});
        votes.assign(static_cast<size_t>(machine.blocks()), 0);
        results.assign(static_cast<size_t>(machine.blocks()), 0);
        int const count = static_cast<int>(machine.threads.size());
        warps.assign(static_cast<size_t>((count + warp_threads - 1) / warp_threads), Barrier{});
        for (size_t w = 0; w < warps.size(); ++w)
            warps[w].expected = std::min(warp_threads, count - static_cast<int>(w) * warp_threads);
        named.assign(static_cast<size_t>(named_barriers * machine.blocks()), Barrier{});
    }
};

inline Barriers barriers;

[[noreturn]] inline void exited_before_block_barrier(int line) {
    std::vector<int> gone;
    int const first = machine.rank() * machine.block_threads;
    for (int t = 0; t < machine.block_threads; ++t)
        if (machine.threads[first + t].exited) gone.push_back(t);
    machine.stop(Error::barrier, line,
                 machine.where(true, line) + "syncthreads needs every thread of the block, but " + list_threads(gone) +
                     " returned before it");
}

// In order of the threads, so that the schedule does not depend on who came last.
inline void wake(std::vector<int>& waiting) {
    std::sort(waiting.begin(), waiting.end());
    for (int t : waiting) machine.make_ready(t);
    waiting.clear();
}

inline void syncthreads(int line) {
    int const rank = machine.rank();
    auto& waiting = barriers.at_block[static_cast<size_t>(rank)];
    waiting.push_back(machine.running);
    if (machine.alive_in[static_cast<size_t>(rank)] < machine.block_threads) exited_before_block_barrier(line);
    if (static_cast<int>(waiting.size()) < machine.block_threads) return machine.suspend({Wait::block_barrier, rank, 0, line});
    if (machine.blocks() == 1)
        machine.order.everyone_meets();
    else
        machine.order.meet(waiting);
    auto const block = static_cast<size_t>(rank);
    barriers.results[block] = barriers.votes[block];
    barriers.votes[block] = 0;
    wake(waiting);
    machine.suspend({});
}

// Whether any thread of the block says yes. The next vote is decided when all threads have seen the result of this one.
inline bool syncthreads_or(bool vote, int line) {
    auto const block = static_cast<size_t>(machine.rank());
    if (vote) barriers.votes[block] = 1;
    syncthreads(line);
    return barriers.results[block] != 0;
}

// Threads that have returned count as arrived. All learn which asynchronous operations are over and which mbarriers are
// initialised, and of no ordinary access unless the barrier orders them.
inline void complete_cluster_barrier() {
    Knowledge together = machine.order.nothing();
    if (barriers.cluster_orders) machine.order.meet(barriers.at_cluster);
    barriers.cluster_orders = true;
    for (int t : barriers.at_cluster) machine.order.release_agents(t, together);
    mbarriers.publish(together);
    for (int t : barriers.at_cluster) machine.order.acquire(t, together);
    ++machine.cluster_barriers;
    wake(barriers.at_cluster);
}

inline void cluster_sync(bool orders, int line) {
    barriers.cluster_orders = barriers.cluster_orders && orders;
    barriers.at_cluster.push_back(machine.running);
    if (static_cast<int>(barriers.at_cluster.size()) < machine.alive)
        return machine.suspend({Wait::cluster_barrier, 0, 0, line});
    complete_cluster_barrier();
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
    if (threads <= 0 || threads % warp_threads != 0 || threads > machine.block_threads)
        fail(Error::barrier, line, "a named barrier counts whole warps of the block, got %d threads in a block of %d", threads,
             machine.block_threads);
    int const index = machine.rank() * named_barriers + id;
    Barrier& barrier = barriers.named[static_cast<size_t>(index)];
    if (barrier.arrived > 0 && barrier.expected != threads)
        fail(Error::barrier, line, "named barrier %d is used with %d threads, but others at it said %d", id, threads,
             barrier.expected);
    barrier.expected = threads;
    meet(barrier, wait, {Wait::named_barrier, index, 0, line});
}

}  // namespace cb::emulator

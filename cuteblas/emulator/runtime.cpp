// The emulator: runs a kernel's blocks, each thread a fiber.
#include "barriers.h"
#include "copies.h"
#include "counts.h"
#include "machine.h"
#include "mbarrier.h"
#include "residents.h"
#include "tma.h"
#include "warp.h"
#include "wgmma.h"

namespace cb::emulator {

static int warp_in_block(int warp) { return warp % ((machine.block_threads + warp_threads - 1) / warp_threads); }

static std::string describe_wait(Wait const& wait, std::vector<int> const& waiting) {
    auto const count = [](long long n) { return std::to_string(n); };
    switch (wait.kind) {
        case Wait::block_barrier:
            return "the block barrier (syncthreads): " +
                   count(static_cast<long long>(barriers.at_block[static_cast<size_t>(wait.index)].size())) + " of " +
                   count(machine.block_threads) + " threads have arrived";
        case Wait::cluster_barrier:
            return "the cluster barrier (cluster_sync): " + count(static_cast<long long>(barriers.at_cluster.size())) + " of " +
                   count(machine.alive) + " threads have arrived";
        case Wait::warp_barrier: {
            Barrier const& b = barriers.warps[wait.index];
            return "the barrier of warp " + count(warp_in_block(wait.index)) + " (syncwarp): " + count(b.arrived) + " of " +
                   count(b.expected) + " threads have arrived";
        }
        case Wait::named_barrier: {
            Barrier const& b = barriers.named[wait.index];
            return "named barrier " + count(wait.index % named_barriers) + ": " + count(b.arrived) + " of " + count(b.expected) +
                   " threads have arrived";
        }
        case Wait::mbarrier: {
            Mbarrier const& b = mbarriers.all[mbarriers.at[wait.index / Mbarriers::bytes]];
            return "a phase of parity " + count(wait.parity) + " of the mbarrier at shared offset " +
                   count(shared.local(static_cast<uint32_t>(wait.index))) + ": in phase " + count(b.phase) + ", " +
                   count(b.count - b.pending) + " of " + count(b.count) + " arrivals are in and " + count(b.bytes) + " bytes are missing";
        }
        case Wait::collective:
            return "the other threads of warp " + count(warp_in_block(wait.index)) + " at the same warp-wide instruction: " +
                   count(static_cast<long long>(waiting.size())) + " of " + count(warp_threads) + " have arrived";
        case Wait::wgmma:
            return "the wgmma of " + machine.warpgroup_name(wait.index) + ": " +
                   count(static_cast<long long>(waiting.size())) + " of " + count(warpgroup_threads) + " threads have arrived";
        default: return std::string("a flag in argument '") + machine.launch->windows[wait.index].name + "' that no thread changes";
    }
}

static void run_thread() {
    machine.launch->entry(machine.launch->arguments);
    machine.exit_thread();
}

static void thread_exits() {
    auto const rank = static_cast<size_t>(machine.rank());
    if (auto const& waiting = barriers.at_block[rank]; !waiting.empty()) {
        machine.self().exited = true;
        exited_before_block_barrier(machine.threads[waiting.front()].wait.line);
    }
    expect_stores_waited();
    expect_wgmmas_waited();
    if (machine.alive_in[rank] == 1) {
        expect_loads_waited();
        expect_arrivals_known();
    }
    if (!barriers.at_cluster.empty() && static_cast<int>(barriers.at_cluster.size()) == machine.alive - 1)
        complete_cluster_barrier();
}

static void inactive(bool is_shared, bool write, int bytes, int line) {
    if (machine.launch->counting) counts.note(is_shared, write, bytes, line, Counts::nowhere);
}

static Runtime const runtime = {
    load_global,
    store_global,
    load_shared,
    load_covering,
    store_shared,
    inactive,
    load_flag,
    store_flag,
    ldmatrix,
    mma,
    exchange,
    cp_async,
    cp_async_part,
    cp_async_commit,
    cp_async_wait,
    syncthreads,
    syncthreads_or,
    syncwarp,
    named_barrier,
    cluster_sync,
    mbarrier_init,
    mbarrier_arrive,
    mbarrier_arrive_at,
    mbarrier_wait,
    fence_proxy_async,
    store_async,
    tma_load,
    tma_load_multicast,
    tma_store,
    tma_store_commit,
    tma_store_wait,
    wgmma_descriptor,
    wgmma,
    wgmma_fence,
    wgmma_commit,
    wgmma_wait,
    accumulator_in_flight,
    register_unset,
    past_registers,
    undefined,
};

static int proceed() {
    Error const result = residents.proceed(run_thread);
    if (result == Error::none && machine.launch->counting) counts.deliver(*machine.launch);
    return static_cast<int>(result);
}

}  // namespace cb::emulator

extern "C" __attribute__((visibility("default"))) cb::emulator::Runtime const* cuteblas_runtime_table() {
    return &cb::emulator::runtime;
}

extern "C" __attribute__((visibility("default"))) int cuteblas_launch(cb::emulator::Launch* launch) {
    using namespace cb::emulator;
    machine.launch = launch;
    machine.error = Error::none;
    machine.complete_asynchronous = complete_asynchronous;
    machine.describe_wait = describe_wait;
    machine.thread_exits = thread_exits;
    machine.random.seed(launch->seed);
    accumulators_exist = false;
    counts.clear();
    Extent3 const& width = launch->cluster;
    unsigned long long const blocks = static_cast<unsigned long long>(width.x) * width.y * width.z;
    unsigned long long const grid = static_cast<unsigned long long>(launch->grid.x) * launch->grid.y * launch->grid.z;
    unsigned long long const count = launch->clusters != nullptr ? launch->cluster_count : grid / blocks;
    machine.block_threads = launch->threads;
    machine.flag_changes = 0;
    ++machine.launches;
    *launch->coordinates.block_extent = {static_cast<unsigned>(launch->threads), 1, 1};
    *launch->coordinates.grid = launch->grid;
    *launch->coordinates.thread = {0, 0, 0};
    launch->finished = 0;
    launch->total = count * blocks;
    releases.start_launch();
    global_shadow.start_launch();
    global_shadow.find_regions();
    residents.start_launch(count);
    return proceed();
}

// After `paused`; without it the rest of the launch never runs.
extern "C" __attribute__((visibility("default"))) int cuteblas_continue() {
    return cb::emulator::proceed();
}

// The pointer that a kernel receives for the argument with this window.
extern "C" __attribute__((visibility("default"))) unsigned long long cuteblas_translate(cb::emulator::Launch* launch,
                                                                                        unsigned window) {
    cb::emulator::machine.launch = launch;
    return launch->windows[window].address + cb::emulator::translation(window);
}

// The emulator: runs a kernel's blocks one after the other, those of a cluster together, each thread a fiber.
#include "barriers.h"
#include "copies.h"
#include "counts.h"
#include "machine.h"
#include "mbarrier.h"
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
        default: return "a flag in global memory";
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

static int cluster_rank() { return machine.rank(); }

static void inactive(bool is_shared, bool write, int bytes, int line) {
    if (machine.launch->counting) counts.note(is_shared, write, bytes, line, Counts::nowhere);
}

static Runtime const runtime = {
    load_global,
    store_global,
    load_shared,
    store_shared,
    inactive,
    load_flag,
    store_flag,
    ldmatrix,
    mma,
    exchange,
    cp_async,
    cp_async_commit,
    cp_async_wait,
    syncthreads,
    syncwarp,
    named_barrier,
    cluster_sync,
    cluster_rank,
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
};

static Extent3 at_index(unsigned long long index, Extent3 const& extent) {
    unsigned long long const row = index / extent.x;
    return {static_cast<unsigned>(index % extent.x), static_cast<unsigned>(row % extent.y), static_cast<unsigned>(row / extent.y)};
}

static unsigned long long volume(Extent3 const& extent) {
    return static_cast<unsigned long long>(extent.x) * extent.y * extent.z;
}

static void start_cluster(unsigned long long index) {
    Launch& launch = *machine.launch;
    Extent3 const& width = launch.cluster;
    Extent3 const in_grid = at_index(index, {launch.grid.x / width.x, launch.grid.y / width.y, launch.grid.z / width.z});
    auto const blocks = static_cast<size_t>(volume(width));
    machine.block_at.resize(blocks);
    for (size_t rank = 0; rank < blocks; ++rank) {
        Extent3 const own = at_index(rank, width);
        machine.block_at[rank] = {in_grid.x * width.x + own.x, in_grid.y * width.y + own.y, in_grid.z * width.z + own.z};
    }
    machine.block_threads = launch.threads;
    machine.alive_in.assign(blocks, launch.threads);
    int const count = launch.threads * static_cast<int>(blocks);
    machine.order.reset(count);
    machine.threads.assign(static_cast<size_t>(count), Thread{});
    machine.ready.assign(static_cast<size_t>(count), 0);
    machine.ready_first = machine.ready_count = 0;
    machine.alive = count;
    machine.running = 0;
    machine.cluster_barriers = 0;
    shared.start_cluster();
    barriers.start_cluster();
    mbarriers.start_cluster();
    start_cluster_tma();
    start_cluster_warps();
    start_cluster_wgmma();
    fruitless_looks = 0;
    for (int t = 0; t < count; ++t) {
        char* bottom = machine.stacks.bottom(static_cast<size_t>(t));
        machine.threads[t].context.prepare(bottom, bottom + Stacks::bytes, run_thread);
        machine.make_ready(t);
    }
    machine.running = machine.next_ready();
    machine.show_running();
}

// How far a launch is.
static unsigned long long clusters_started, clusters_to_run;
static bool cluster_runs;

// Runs until the end, an error, or the end of a slice of time.
static Error proceed() {
    Launch& launch = *machine.launch;
    machine.error = Error::none;
    machine.slice_began = std::chrono::steady_clock::now();
    while (cluster_runs || clusters_started < clusters_to_run) {
        if (!cluster_runs) {
            if (machine.slice_is_over()) return Error::paused;
            start_cluster(launch.clusters != nullptr ? launch.clusters[clusters_started] : clusters_started);
            ++clusters_started;
            cluster_runs = true;
        }
        machine.main.switch_to(machine.self().context);
        if (machine.error != Error::none) return machine.error;
        cluster_runs = false;
        launch.finished += static_cast<unsigned long long>(machine.blocks());
        if (launch.counting) counts.finish_block();
    }
    if (launch.counting) counts.deliver(launch);
    return Error::none;
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
    shared.start_launch(launch->shared_bytes, static_cast<int>(volume(width)));
    *launch->coordinates.block_extent = {static_cast<unsigned>(launch->threads), 1, 1};
    *launch->coordinates.grid = launch->grid;
    *launch->coordinates.thread = {0, 0, 0};
    clusters_to_run = launch->clusters != nullptr ? launch->cluster_count : volume(launch->grid) / volume(width);
    clusters_started = 0;
    cluster_runs = false;
    launch->finished = 0;
    launch->total = clusters_to_run * volume(width);
    return static_cast<int>(proceed());
}

// After `paused`; without it the rest of the launch never runs.
extern "C" __attribute__((visibility("default"))) int cuteblas_continue() {
    return static_cast<int>(cb::emulator::proceed());
}

// The pointer that a kernel receives for the argument with this window.
extern "C" __attribute__((visibility("default"))) unsigned long long cuteblas_translate(cb::emulator::Launch* launch,
                                                                                        unsigned window) {
    cb::emulator::machine.launch = launch;
    return launch->windows[window].address + cb::emulator::translation(window);
}

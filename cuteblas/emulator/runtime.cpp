// The emulator: runs a kernel's blocks one after the other, each thread a fiber.
#include "barriers.h"
#include "copies.h"
#include "counts.h"
#include "machine.h"
#include "mbarrier.h"
#include "tma.h"
#include "warp.h"
#include "wgmma.h"

namespace cb::emulator {

static std::string describe_wait(Wait const& wait, std::vector<int> const& waiting) {
    auto const count = [](long long n) { return std::to_string(n); };
    switch (wait.kind) {
        case Wait::block_barrier:
            return "the block barrier (syncthreads): " + count(static_cast<long long>(barriers.at_block.size())) + " of " +
                   count(static_cast<long long>(machine.threads.size())) + " threads have arrived";
        case Wait::warp_barrier: {
            Barrier const& b = barriers.warps[wait.index];
            return "the barrier of warp " + count(wait.index) + " (syncwarp): " + count(b.arrived) + " of " + count(b.expected) +
                   " threads have arrived";
        }
        case Wait::named_barrier: {
            Barrier const& b = barriers.named[wait.index];
            return "named barrier " + count(wait.index) + ": " + count(b.arrived) + " of " + count(b.expected) +
                   " threads have arrived";
        }
        case Wait::mbarrier: {
            Mbarrier const& b = mbarriers.all[mbarriers.at[wait.index / Mbarriers::bytes]];
            return "a phase of parity " + count(wait.parity) + " of the mbarrier at shared offset " + count(wait.index) +
                   ": in phase " + count(b.phase) + ", " + count(b.count - b.pending) + " of " + count(b.count) +
                   " arrivals are in and " + count(b.bytes) + " bytes are missing";
        }
        case Wait::collective:
            return "the other threads of warp " + count(wait.index) + " at the same warp-wide instruction: " +
                   count(static_cast<long long>(waiting.size())) + " of " + count(warp_threads) + " have arrived";
        case Wait::wgmma:
            return "the wgmma of warpgroup " + count(wait.index) + ": " + count(static_cast<long long>(waiting.size())) + " of " +
                   count(warpgroup_threads) + " threads have arrived";
        default: return "a flag in global memory";
    }
}

static void run_thread() {
    machine.launch->entry(machine.launch->arguments);
    machine.exit_thread();
}

static void thread_exits() {
    if (!barriers.at_block.empty()) {
        machine.self().exited = true;
        exited_before_block_barrier(machine.threads[barriers.at_block.front()].wait.line);
    }
    expect_stores_waited();
    expect_wgmmas_waited();
    if (machine.alive == 1) expect_loads_waited();
}

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
    mbarrier_init,
    mbarrier_arrive,
    mbarrier_wait,
    fence_proxy_async,
    tma_load,
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

static void run_block(unsigned long long index) {
    Launch& launch = *machine.launch;
    unsigned long long const row = index / launch.grid.x;
    *launch.coordinates.block = {static_cast<unsigned>(index % launch.grid.x), static_cast<unsigned>(row % launch.grid.y),
                                 static_cast<unsigned>(row / launch.grid.y)};
    int const count = launch.threads;
    machine.order.reset(count);
    machine.threads.assign(static_cast<size_t>(count), Thread{});
    machine.ready.assign(static_cast<size_t>(count), 0);
    machine.ready_first = machine.ready_count = 0;
    machine.alive = count;
    shared.start_block();
    barriers.start_block();
    mbarriers.start_block();
    start_block_tma();
    start_block_warps();
    start_block_wgmma();
    fruitless_looks = 0;
    for (int t = 0; t < count; ++t) {
        char* bottom = machine.stacks.bottom(static_cast<size_t>(t));
        machine.threads[t].context.prepare(bottom, bottom + Stacks::bytes, run_thread);
        machine.make_ready(t);
    }
    machine.running = machine.next_ready();
    launch.coordinates.thread->x = static_cast<unsigned>(machine.running);
    machine.main.switch_to(machine.self().context);
    if (launch.counting && machine.error == Error::none) counts.finish_block();
}

}  // namespace cb::emulator

extern "C" __attribute__((visibility("default"))) cb::emulator::Runtime const* cuteblas_runtime_table() {
    return &cb::emulator::runtime;
}

extern "C" __attribute__((visibility("default"))) int cuteblas_launch(cb::emulator::Launch* launch) {
    using namespace cb::emulator;
    machine.launch = launch;
    machine.error = Error::none;
    machine.complete_asynchronous = complete_tma_loads;
    machine.describe_wait = describe_wait;
    machine.thread_exits = thread_exits;
    machine.random.seed(launch->seed);
    accumulators_exist = false;
    counts.clear();
    shared.start_launch(launch->shared_bytes);
    *launch->coordinates.block_extent = {static_cast<unsigned>(launch->threads), 1, 1};
    *launch->coordinates.grid = launch->grid;
    *launch->coordinates.thread = {0, 0, 0};
    unsigned long long const total = static_cast<unsigned long long>(launch->grid.x) * launch->grid.y * launch->grid.z;
    unsigned long long const count = launch->blocks != nullptr ? launch->block_count : total;
    for (unsigned long long i = 0; i < count && machine.error == Error::none; ++i)
        run_block(launch->blocks != nullptr ? launch->blocks[i] : i);
    if (launch->counting) counts.deliver(*launch);
    return static_cast<int>(machine.error);
}

// The pointer that a kernel receives for the argument with this window.
extern "C" __attribute__((visibility("default"))) unsigned long long cuteblas_translate(cb::emulator::Launch* launch,
                                                                                        unsigned window) {
    cb::emulator::machine.launch = launch;
    return launch->windows[window].address + cb::emulator::translation(window);
}

// The threads of the running cluster, mostly of one block: who runs, who waits for what, and how an error ends a launch. Other clusters
// may have begun too; what is theirs is put aside meanwhile (residents.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "fiber.h"
#include "interface.h"
#include "order.h"

namespace cb::emulator {

constexpr int warp_threads = 32;
constexpr int warpgroup_threads = 128;

// What a thread waits for.
struct Wait {
    enum Kind { nothing, block_barrier, cluster_barrier, warp_barrier, named_barrier, mbarrier, collective, wgmma, flag };
    Kind kind = nothing;
    int index = 0;   // warp, barrier id, shared offset or warpgroup
    int parity = 0;  // of an mbarrier
    int line = 0;

    bool operator<(Wait const& other) const {
        return std::tie(kind, index, parity, line) < std::tie(other.kind, other.index, other.parity, other.line);
    }
};

struct Copy {
    uint32_t offset;
    uint32_t bytes;
    void const* source;  // host address, or null for zeros
    uint32_t read;       // bytes of it, before zeros
    bool covers;         // words of which a part is not what the reader needs
    unsigned window;
    int line;
};

// A flag that a thread has looked at, and what it saw.
struct Look {
    void const* flag = nullptr;
    unsigned value = 0;
    int line = 0;

    bool operator==(Look const& other) const { return flag == other.flag && value == other.value && line == other.line; }
};

struct Thread {
    Context context;
    char const* stack = nullptr;  // its lowest byte
    Wait wait;
    bool exited = false;

    // cp.async: copies from `copied` on are in flight; a group is known by the number of copies up to its end.
    std::vector<Copy> copies;
    std::vector<size_t> copy_groups;
    size_t copied = 0;
    size_t copy_groups_done = 0;

    Look look;  // the last one, if nothing has been stored into a flag since

    // TMA stores: two agents of its own, whose clocks count the groups: what they read from shared memory, what they write.
    int store_agent = -1;
    int written_agent = -1;
    uint32_t store_groups = 0;
    bool stores_uncommitted = false;

    // wgmma: how many were issued, and how many when each group was committed.
    uint32_t wgmmas = 0;
    std::vector<uint32_t> wgmma_groups;
    bool wgmma_fenced = false;
};

std::string list_threads(std::vector<int> const& threads);

inline Extent3 at_index(unsigned long long index, Extent3 const& extent) {
    unsigned long long const row = index / extent.x;
    return {static_cast<unsigned>(index % extent.x), static_cast<unsigned>(row % extent.y), static_cast<unsigned>(row / extent.y)};
}

// The threads of a cluster.
struct Team {
    Order order;
    std::vector<Thread> threads;       // of all blocks of the cluster, by rank
    std::vector<Extent3> block_at;     // the coordinates of each block of the cluster
    std::vector<int> alive_in;         // threads of each block that have not returned
    uint32_t cluster = 0;              // its number in the launch, from 1 on
    uint32_t cluster_barriers = 0;     // that have completed
    uint64_t priority = 0;             // among clusters, where the order is shuffled
    std::vector<int> ready;  // a ring
    size_t ready_first = 0, ready_count = 0;
    std::vector<int> looking;          // threads that wait until a flag changes
    uint64_t looked_at = 0;            // how often flags had changed when the first of them began to wait
    int running = 0;
    int alive = 0;
};

// Why the threads of a cluster stop.
enum class Stop { ended, stuck, turn };

struct Machine : Team {
    Launch* launch = nullptr;
    Stacks stacks;
    Context main;
    int block_threads = 0;
    int residents = 0;                 // clusters that have begun and not ended
    uint64_t flag_changes = 0;         // in this launch
    uint64_t launches = 0;
    std::mt19937_64 random;
    Error error = Error::none;
    Stop stop_reason = Stop::ended;
    std::chrono::steady_clock::time_point slice_began;
    double idle = 0;     // seconds since a thread last waited or ended
    int until_look = 0;  // switches of threads until the next look at the clock

    // What else can make progress when every thread waits: completes asynchronous copies and says whether there were any.
    bool (*complete_asynchronous)() = nullptr;
    // What the wait of a thread is for, in words.
    std::string (*describe_wait)(Wait const&, std::vector<int> const& waiting) = nullptr;
    // Called when a thread returns from the kernel.
    void (*thread_exits)() = nullptr;

    Thread& self() { return threads[running]; }

    // The coordinates of a block, by the number of its cluster and its rank there.
    Extent3 block_of(uint32_t cluster_number, int rank) const {
        Extent3 const& width = launch->cluster;
        Extent3 const in_grid = at_index(cluster_number - 1, {launch->grid.x / width.x, launch->grid.y / width.y, launch->grid.z / width.z});
        Extent3 const own = at_index(static_cast<unsigned long long>(rank), width);
        return {in_grid.x * width.x + own.x, in_grid.y * width.y + own.y, in_grid.z * width.z + own.z};
    }

    int blocks() const { return static_cast<int>(block_at.size()); }
    int rank_of(int thread) const { return thread / block_threads; }
    int rank() const { return rank_of(running); }

    // "thread 5", and of which block if there are several.
    std::string name(int thread) const {
        std::string const text = "thread " + std::to_string(thread % block_threads);
        return blocks() == 1 ? text : text + " of block " + std::to_string(rank_of(thread)) + " of the cluster";
    }

    // "warpgroup 1", and of which block if there are several; warpgroups are counted through the cluster.
    std::string warpgroup_name(int index) const {
        int const in_block = std::max(1, block_threads / warpgroup_threads);
        std::string const text = "warpgroup " + std::to_string(index % in_block);
        return blocks() == 1 ? text : text + " of block " + std::to_string(index / in_block) + " of the cluster";
    }

    // Tells the kernel who runs.
    void show_running() {
        launch->coordinates.thread->x = static_cast<unsigned>(running % block_threads);
        *launch->coordinates.block = block_at[static_cast<size_t>(rank())];
    }

    void make_ready(int thread) {
        threads[thread].wait = {};
        ready[(ready_first + ready_count++) % ready.size()] = thread;
    }

    int next_ready() {
        if (launch->shuffled) std::swap(ready[ready_first], ready[(ready_first + random() % ready_count) % ready.size()]);
        int const thread = ready[ready_first];
        ready_first = (ready_first + 1) % ready.size();
        --ready_count;
        return thread;
    }

    // Lets the other threads run until something makes this one ready.
    void suspend(Wait const& wait) {
        self().wait = wait;
        idle = 0;
        resume_next();
    }

    // Whether the caller waits for long enough to be let look around.
    bool slice_is_over() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - slice_began).count() >= launch->slice;
    }

    void resume_next() {
        constexpr int switches_between_looks = 64;
        if (--until_look <= 0) {
            until_look = switches_between_looks;
            if (slice_is_over()) pause();
        }
        // Where threads run in any order, so do clusters: the one of the highest priority that can, and priorities change now and then.
        constexpr unsigned turns = 64;
        if (launch->shuffled && residents > 1 && random() % turns == 0) {
            priority = random();
            leave(Stop::turn);
        }
        wake_looking();
        while (ready_count == 0)
            if (!complete_asynchronous()) leave(Stop::stuck);
        int const previous = running;
        running = next_ready();
        show_running();
        if (running != previous) threads[previous].context.switch_to(threads[running].context);
    }

    // Back to the caller, who continues with the same thread or never comes back.
    void pause() {
        error = Error::paused;
        self().context.switch_to(main);
    }

    // To whoever decides which cluster runs; comes back when it is this one's turn again.
    void leave(Stop reason) {
        stop_reason = reason;
        self().context.switch_to(main);
        show_running();
        wake_looking();
    }

    // Lets threads that wait for a flag look again, if one has changed.
    void wake_looking() {
        if (!looking.empty() && looked_at != flag_changes) let_look();
    }

    void let_look() {
        std::sort(looking.begin(), looking.end());
        for (int t : looking) make_ready(t);
        looking.clear();
    }

    void exit_thread() {
        thread_exits();
        self().exited = true;
        idle = 0;
        --alive_in[static_cast<size_t>(rank())];
        if (--alive == 0) leave(Stop::ended);
        resume_next();
    }

    void report(Error kind, int line, std::string const& text) {
        error = kind;
        launch->error_line = line;
        snprintf(launch->message, static_cast<size_t>(launch->message_capacity), "%s", text.c_str());
    }

    [[noreturn]] void stop(Error kind, int line, std::string const& text) {
        report(kind, line, text);
        self().context.switch_to(main);  // the other fibers are abandoned: bodies own nothing
        __builtin_unreachable();
    }

    std::string where(bool with_thread, int line) const {
        Extent3 const& b = *launch->coordinates.block;
        std::string text = "kernel " + std::string(launch->kernel) + ", block (" + std::to_string(b.x) + ", " +
                           std::to_string(b.y) + ", " + std::to_string(b.z) + ")";
        if (with_thread) text += ", thread " + std::to_string(running % block_threads);
        if (line > 0) text += ", line " + std::to_string(line);
        return text + ": ";
    }

    // Who waits for what; called when no thread of any cluster can go on.
    void report_deadlock() {
        std::map<std::pair<int, Wait>, std::vector<int>> groups;
        for (int t = 0; t < static_cast<int>(threads.size()); ++t)
            if (!threads[t].exited) groups[{rank_of(t), threads[t].wait}].push_back(t % block_threads);
        show_running();
        std::string text = where(false, 0) + "deadlock: every thread waits.";
        if (residents > 1)
            text = where(false, 0) + "deadlock: every thread of the " + std::to_string(residents * blocks()) +
                   " blocks that have begun waits. Those of this one:";
        for (auto const& [key, waiting] : groups) {
            auto const& [rank, wait] = key;
            text += "\n  " + (blocks() > 1 ? "block " + std::to_string(rank) + " of the cluster: " : std::string()) +
                    list_threads(waiting) + (waiting.size() == 1 ? " waits" : " wait") + " at line " + std::to_string(wait.line) +
                    " for " + describe_wait(wait, waiting);
        }
        report(Error::deadlock, groups.begin()->first.second.line, text);
    }
};

inline Machine machine;

[[noreturn, gnu::format(printf, 3, 4)]] inline void fail(Error kind, int line, char const* format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    machine.stop(kind, line, machine.where(true, line) + text);
}

// "threads 0-30, 33"
inline std::string list_threads(std::vector<int> const& threads) {
    std::string text = threads.size() == 1 ? "thread " : "threads ";
    for (size_t i = 0; i < threads.size();) {
        size_t last = i;
        while (last + 1 < threads.size() && threads[last + 1] == threads[last] + 1) ++last;
        if (i > 0) text += ", ";
        text += std::to_string(threads[i]);
        if (last > i) text += "-" + std::to_string(threads[last]);
        i = last + 1;
    }
    return text;
}

}  // namespace cb::emulator

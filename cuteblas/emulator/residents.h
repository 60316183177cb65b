// Clusters that have begun and not ended. One of them runs, in the global objects; what belongs to the others is put aside.
//
// Clusters begin in order of their index, the next one when one ends, or when no thread of those that have begun can go on: then it is
// what they wait for that has not begun. Several may run in turns from the beginning.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "barriers.h"
#include "copies.h"
#include "counts.h"
#include "faults.h"
#include "tma.h"
#include "warp.h"
#include "wgmma.h"

namespace cb::emulator {

constexpr int most_resident_threads = 24576;  // each has two mappings of memory, of which Linux allows 65530
constexpr int patience = 1000;                // looks of all threads at flags that do not change

struct Resident {
    Team team;
    SharedMemory memory;
    Barriers of_threads;
    Mbarriers of_memory;
    std::deque<TmaLoad> loads;
    std::deque<WordStore> words;
    std::vector<Warp> of_warps;
    std::vector<Warpgroup> of_warpgroups;
    std::vector<Import> acquired;
    decltype(Counts::streams) streams;
    bool begun = false;

    // With what is in the global objects.
    void exchange() {
        std::swap(team, static_cast<Team&>(machine));
        std::swap(memory, shared);
        std::swap(of_threads, barriers);
        std::swap(of_memory, mbarriers);
        std::swap(loads, tma_loads);
        std::swap(words, word_stores);
        std::swap(of_warps, warps);
        std::swap(of_warpgroups, warpgroups);
        std::swap(acquired, imports);
        std::swap(streams, counts.streams);
    }

    bool can_run() const {
        bool const copies = !loads.empty() || !words.empty();
        return begun && (team.ready_count > 0 || copies || (!team.looking.empty() && team.looked_at != machine.flag_changes));
    }
};

class Residents {
  public:
    void start_launch(unsigned long long clusters) {
        leave_current();
        for (auto& place : places) place->begun = false;
        machine.residents = 0;
        started = 0;
        count = clusters;
        fruitless = 0;
        machine.idle = 0;
        last = 0;
    }

    // Runs until the end, an error, or the end of a slice of time.
    Error proceed(void (*run_thread)()) {
        Launch& launch = *machine.launch;
        machine.error = Error::none;
        machine.slice_began = std::chrono::steady_clock::now();
        Faults faults;
        for (;;) {
            if (current < 0) {
                if (machine.slice_is_over()) return Error::paused;
                if (!choose(run_thread)) return machine.error;
            }
            if (faults.run(machine.main, machine.self().context)) faults.report();
            if (machine.error != Error::none) return machine.error;
            if (machine.stop_reason == Stop::ended) {
                launch.finished += static_cast<unsigned long long>(machine.blocks());
                if (launch.counting) counts.finish_block();
                places[static_cast<size_t>(current)]->begun = false;
                --machine.residents;
            }
            leave_current();
        }
    }

  private:
    std::vector<std::unique_ptr<Resident>> places;
    int current = -1;  // whose state is in the global objects
    size_t last = 0;   // who ran last
    unsigned long long started = 0, count = 0;
    uint64_t changes_seen = 0;
    int fruitless = 0;

    void leave_current() {
        if (current >= 0) places[static_cast<size_t>(current)]->exchange();
        current = -1;
    }

    void enter(size_t place) {
        places[place]->exchange();
        current = static_cast<int>(place);
        last = place;
    }

    // Makes a cluster the running one; false at the end of the launch or in a deadlock.
    bool choose(void (*run_thread)()) {
        Launch const& launch = *machine.launch;
        while (machine.residents < launch.residents && begin(run_thread)) {
            if (!launch.shuffled) return true;
            machine.priority = machine.random();
            leave_current();
        }
        size_t able = places.size();
        for (size_t i = 1; i <= places.size(); ++i) {
            size_t const place = (last + i) % places.size();
            if (!places[place]->can_run()) continue;
            if (able == places.size() || (launch.shuffled && places[place]->team.priority > places[able]->team.priority)) able = place;
        }
        if (able < places.size()) {
            enter(able);
            machine.show_running();
            return true;
        }
        if (begin(run_thread)) return true;
        if (machine.residents == 0) return false;
        return look_again();
    }

    // Nobody can go on, so whoever waits for a flag looks again: other threads may have changed it otherwise than by store_flag.
    bool look_again() {
        if (changes_seen != machine.flag_changes) fruitless = 0;
        changes_seen = machine.flag_changes;
        size_t found = places.size();
        for (size_t i = 1; i <= places.size() && found == places.size(); ++i) {
            size_t const place = (last + i) % places.size();
            if (places[place]->begun && !places[place]->team.looking.empty()) found = place;
        }
        if (found < places.size() && ++fruitless <= patience) {
            enter(found);
            machine.show_running();
            machine.let_look();
            return true;
        }
        for (size_t place = 0; place < places.size() && current < 0; ++place)
            if (places[place]->begun) enter(place);
        machine.report_deadlock();
        return false;
    }

    // Begins the next cluster, if there is one and room for it.
    bool begin(void (*run_thread)()) {
        Launch const& launch = *machine.launch;
        Extent3 const& width = launch.cluster;
        int const blocks = static_cast<int>(width.x * width.y * width.z), threads = launch.threads * blocks;
        if (started == count || (machine.residents > 0 && (machine.residents + 1) * threads > most_resident_threads)) return false;
        size_t place = 0;
        while (place < places.size() && places[place]->begun) ++place;
        if (place == places.size()) places.push_back(std::make_unique<Resident>());
        enter(place);
        places[place]->begun = true;
        ++machine.residents;
        start(static_cast<uint32_t>((launch.clusters != nullptr ? launch.clusters[started] : started) + 1), blocks, threads);
        ++started;
        for (int t = 0; t < threads; ++t) {
            char* bottom = machine.stacks.bottom(place * static_cast<size_t>(threads) + static_cast<size_t>(t));
            machine.threads[t].stack = bottom;
            machine.threads[t].context.prepare(bottom, bottom + Stacks::bytes, run_thread);
            machine.make_ready(t);
        }
        machine.running = machine.next_ready();
        machine.show_running();
        return true;
    }

    static void start(uint32_t number, int blocks, int threads) {
        Launch const& launch = *machine.launch;
        machine.cluster = number;
        machine.block_at.resize(static_cast<size_t>(blocks));
        for (int rank = 0; rank < blocks; ++rank) machine.block_at[static_cast<size_t>(rank)] = machine.block_of(number, rank);
        machine.alive_in.assign(static_cast<size_t>(blocks), launch.threads);
        machine.order.reset(threads);
        machine.threads.assign(static_cast<size_t>(threads), Thread{});
        machine.ready.assign(static_cast<size_t>(threads), 0);
        machine.ready_first = machine.ready_count = 0;
        machine.looking.clear();
        machine.alive = threads;
        machine.running = 0;
        machine.cluster_barriers = 0;
        shared.start_cluster(launch.shared_bytes, blocks);
        barriers.start_cluster();
        mbarriers.start_cluster();
        start_cluster_tma();
        start_cluster_warps();
        start_cluster_wgmma();
        imports.clear();
        counts.streams.clear();
    }
};

inline Residents residents;

}  // namespace cb::emulator

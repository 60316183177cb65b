// Shared memory of the blocks of a cluster, one after the other, with a shadow: who wrote each cell last and who has read it since,
// so that every access is checked against happens-before (order.h), independent of the order in which the fibers happen to run.
//
// A cell of the shadow stands for 2^shift bytes. The shift starts at 16 bytes and falls, for good, to the smallest access seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "machine.h"

namespace cb::emulator {

enum CellState : uint8_t { plain, copy_pending, is_mbarrier };

struct Cell {
    // Epochs: 0 is "not written" or "not read"; `always_check` is no epoch: the access of an agent, which a block barrier does not
    // order.
    uint32_t write_epoch, write_clock;
    uint16_t writer, write_line;
    uint16_t reader, read_line;  // the last reading thread
    uint32_t read_epoch, read_clock;
    uint32_t others;  // index of a list of further readers, 0 for none
    uint16_t other_count;
    CellState state;
    uint8_t swizzle;   // of the TMA load that wrote it: the span in bytes
    bool agents_read;  // whether an agent is among the further readers
};

constexpr uint32_t always_check = UINT32_MAX;
constexpr uint8_t by_store = 1;  // in place of a swizzle: st.async wrote the cell

struct Reader {
    uint32_t clock;
    uint16_t agent, line;
    uint32_t next;
};

// What an agent stands for, in messages.
struct Agent {
    enum Kind { tma_load, wgmma, tma_store, other_cluster } kind;
    int index;  // shared offset of the mbarrier, warpgroup, or thread; of another cluster what its thread has released last
};

inline uint16_t short_line(int line) { return static_cast<uint16_t>(std::min(line, 65535)); }

// An asynchronous operation: what its issuers know, and the agent and clock under which it is recorded.
struct AsyncAccess {
    Knowledge const& known;
    int agent;
    uint32_t clock;
    int line;
    std::string what;  // "the TMA load", "wgmma of warpgroup 0"
    bool proxy = true;  // whether it is of the asynchronous proxy: st.async is not
};

class SharedMemory {
  public:
    void start_cluster(int bytes, int blocks) {
        bool const same = launch == machine.launches && data != nullptr;
        launch = machine.launches;
        size = static_cast<uint32_t>(bytes);
        pitch = (size + 1023) / 1024 * 1024;
        count = static_cast<uint32_t>(blocks);
        if (!same) {
            storage.resize(end() + 2048);
            auto const address = reinterpret_cast<uintptr_t>(storage.data());
            data = storage.data() + (1024 - address % 1024) % 1024;
            shift = 4;
        }
        std::memset(data, 0xff, end());
        cells.assign((end() + (1u << shift) - 1) >> shift, Cell{});
        readers.assign(1, Reader{});
        free_reader = 0;
        agents.clear();
    }

    uint8_t* data = nullptr;
    uint32_t size = 0;  // of a block

    // Offsets count through the blocks; the period of every swizzle divides the distance between two.
    uint32_t end() const { return count * pitch; }
    uint32_t base(int rank) const { return static_cast<uint32_t>(rank) * pitch; }
    int rank_of(uint32_t offset) const { return pitch == 0 ? 0 : static_cast<int>(offset / pitch); }
    uint32_t local(uint32_t offset) const { return pitch == 0 ? offset : offset % pitch; }

    // " of block 1 of the cluster" unless that is the running thread's.
    std::string elsewhere(uint32_t offset) const {
        int const rank = rank_of(offset);
        return rank == machine.rank() ? "" : " of block " + std::to_string(rank) + " of the cluster";
    }

    // The offset of an access into the dynamic shared memory of the running thread's block, or of another one.
    uint32_t locate(void const* pointer, uint32_t bytes, uint32_t alignment, char const* verb, int line) {
        return locate(pointer, bytes, alignment, verb, line, machine.rank());
    }

    uint32_t locate(void const* pointer, uint32_t bytes, uint32_t alignment, char const* verb, int line, int rank) {
        if (rank < 0 || rank >= static_cast<int>(count))
            fail(Error::shared_out_of_bounds, line, "%s shared memory of block %d of the cluster, which has %u", verb, rank, count);
        if (machine.alive_in[static_cast<size_t>(rank)] == 0)
            fail(Error::shared_out_of_bounds, line, "%s shared memory of block %d of the cluster, which has ended", verb, rank);
        uint64_t const address = reinterpret_cast<uint64_t>(pointer);
        uint64_t const offset = address - shared_window - shared_start;
        if (offset >= size || bytes > size - offset) outside(address, bytes, verb, line);
        if (offset % alignment != 0)
            fail(Error::misaligned, line, "%s %u bytes at shared offset %u, which is not a multiple of %u", verb, bytes,
                 static_cast<uint32_t>(offset), alignment);
        return static_cast<uint32_t>(offset) + base(rank);
    }

    // If `partly`, one cell has to have been written, not all.
    void read(int thread, uint32_t offset, uint32_t bytes, int line, bool partly = false) {
        Order& order = machine.order;
        refine(bytes);
        uint32_t const clock = order.clock(thread);
        for (uint32_t i = offset >> shift, end = (offset + bytes) >> shift; i < end; ++i) {
            Cell& cell = cells[i];
            if (partly && cell.write_epoch == 0 && cell.state == plain) {
                bool any = false;
                for (uint32_t j = offset >> shift; j < end; ++j) any = any || cells[j].write_epoch != 0;
                if (any) continue;
            }
            // One comparison for "written, and before the last block barrier".
            bool const settled = cell.write_epoch - 1 < order.epoch - 1;
            if (cell.state != plain || (!settled && !write_known(cell, thread))) unreadable(cell, i, thread, line);
            note_read(cell, thread, clock, line);
        }
    }

    void write(int thread, uint32_t offset, uint32_t bytes, int line, CellState state = plain) {
        Order& order = machine.order;
        refine(bytes);
        uint32_t const clock = order.clock(thread);
        for (uint32_t i = offset >> shift, end = (offset + bytes) >> shift; i < end; ++i) {
            Cell& cell = cells[i];
            if (cell.state != plain || (cell.write_epoch >= order.epoch && !write_known(cell, thread)) ||
                ((cell.read_epoch == order.epoch || cell.agents_read) && !reads_known(cell, thread)))
                unwritable(cell, i, thread, line);
            forget_reads(cell);
            cell.write_epoch = order.epoch;
            cell.write_clock = clock;
            cell.writer = static_cast<uint16_t>(thread);
            cell.write_line = short_line(line);
            cell.state = state;
            cell.swizzle = 0;
        }
    }

    // The data of a cp.async have arrived: from here on they count as written by the thread that waited.
    void arrive(int thread, uint32_t offset, uint32_t bytes) {
        for (uint32_t i = offset >> shift, end = (offset + bytes) >> shift; i < end; ++i) {
            cells[i].state = plain;
            cells[i].write_epoch = machine.order.epoch;
            cells[i].write_clock = machine.order.clock(thread);
        }
    }

    // `swizzle`: the mode in which the reader understands the bytes, or -1 if it does not care.
    void read_async(AsyncAccess const& access, uint32_t offset, uint32_t bytes, int swizzle) {
        refine(bytes);
        for (uint32_t i = offset >> shift, end = (offset + bytes) >> shift; i < end; ++i) {
            Cell& cell = cells[i];
            if (cell.state != plain || cell.write_epoch == 0) unreadable(cell, i, machine.running, access.line);
            expect_visible(cell, i, access, "reads");
            if (swizzle >= 0 && !machine.order.is_thread(cell.writer) && cell.swizzle != swizzle)
                fail(Error::descriptor, access.line,
                     "%s reads shared bytes [%u, %u) with a swizzle of %d bytes, but the TMA load at line %d wrote them with one "
                     "of %d",
                     access.what.c_str(), first(i), last(i), swizzle, cell.write_line, cell.swizzle);
            note_agent_read(cell, access);
        }
    }

    void write_async(AsyncAccess const& access, uint32_t offset, uint32_t bytes, int swizzle) {
        refine(bytes);
        for (uint32_t i = offset >> shift, end = (offset + bytes) >> shift; i < end; ++i) {
            Cell& cell = cells[i];
            if (cell.state != plain) unwritable(cell, i, machine.running, access.line);
            if (cell.write_epoch != 0) expect_visible(cell, i, access, "overwrites");
            if (Reader const* reader = unknown_reader(cell, access.known))
                conflict_with_reader(*reader, i, access.what + " overwrites", access.line);
            forget_reads(cell);
            cell.write_epoch = always_check;
            cell.write_clock = access.clock;
            cell.writer = static_cast<uint16_t>(access.agent);
            cell.write_line = short_line(access.line);
            cell.swizzle = static_cast<uint8_t>(swizzle);
        }
    }

    int new_agent(Agent agent, int line) {
        int const id = machine.order.new_agent();
        if (id < 0)
            fail(Error::misuse, line, "the emulator follows at most %d mbarriers, warpgroups, storing threads and flags of other blocks in a block",
                 max_agents);
        agents.push_back(agent);
        return id;
    }

    Cell const& cell_at(uint32_t offset) { return cells[offset >> shift]; }

    bool write_known(Cell const& cell, int thread) const {
        return cell.write_epoch != 0 && (cell.writer == thread || machine.order.known(thread, cell.writer) >= cell.write_clock);
    }

    void refine(uint32_t bytes) {
        if (bytes >> shift == 0) split(bytes);
    }

  private:
    std::vector<uint8_t> storage;
    std::vector<Cell> cells;
    std::vector<Reader> readers;  // nodes of the lists; the first is unused
    uint32_t free_reader = 0;
    std::vector<Agent> agents;
    int shift = 4;
    uint32_t pitch = 0, count = 1;
    uint64_t launch = 0;  // in which it was allocated

    uint32_t first(uint32_t cell) const { return local(cell << shift); }
    uint32_t last(uint32_t cell) const { return first(cell) + (1u << shift); }

    // Reads: the last thread in the cell itself, the others in a list.

    void note_read(Cell& cell, int thread, uint32_t clock, int line) {
        if (cell.read_epoch != machine.order.epoch) {
            drop_old_reads(cell);
        } else if (cell.reader != thread) {
            if (cell.other_count > 2 * machine.threads.size() + 64) merge_readers(cell);
            push_reader(cell, {cell.read_clock, cell.reader, cell.read_line, 0});
        }
        cell.read_epoch = machine.order.epoch;
        cell.read_clock = clock;
        cell.reader = static_cast<uint16_t>(thread);
        cell.read_line = short_line(line);
    }

    void note_agent_read(Cell& cell, AsyncAccess const& access) {
        for (uint32_t n = cell.others; n != 0; n = readers[n].next)
            if (readers[n].agent == access.agent) {
                readers[n].clock = access.clock;
                readers[n].line = short_line(access.line);
                return;
            }
        push_reader(cell, {access.clock, static_cast<uint16_t>(access.agent), short_line(access.line), 0});
        cell.agents_read = true;
    }

    void push_reader(Cell& cell, Reader reader) {
        uint32_t node = free_reader;
        if (node != 0) {
            free_reader = readers[node].next;
        } else {
            node = static_cast<uint32_t>(readers.size());
            readers.emplace_back();
        }
        reader.next = cell.others;
        readers[node] = reader;
        cell.others = node;
        ++cell.other_count;
    }

    template <class Predicate>
    void remove_readers(Cell& cell, Predicate unwanted) {
        uint32_t kept = 0;
        uint16_t kept_count = 0;
        for (uint32_t n = cell.others, next; n != 0; n = next) {
            next = readers[n].next;
            bool const drop = unwanted(readers[n]);
            uint32_t& list = drop ? free_reader : kept;
            readers[n].next = list;
            list = n;
            kept_count = static_cast<uint16_t>(kept_count + !drop);
        }
        cell.others = kept;
        cell.other_count = kept_count;
    }

    // Reads of threads before the last block barrier can conflict with nothing any more; those of agents can.
    void drop_old_reads(Cell& cell) {
        if (cell.others != 0) remove_readers(cell, [](Reader const& r) { return machine.order.is_thread(r.agent); });
    }

    void forget_reads(Cell& cell) {
        if (cell.others != 0) remove_readers(cell, [](Reader const&) { return true; });
        cell.read_epoch = 0;
        cell.agents_read = false;
    }

    // Of several reads by one reader only the latest matters: whoever is ordered after it is ordered after the others.
    void merge_readers(Cell& cell) {
        std::vector<uint32_t> latest(machine.threads.size() + max_agents);
        for (uint32_t n = cell.others; n != 0; n = readers[n].next)
            latest[readers[n].agent] = std::max(latest[readers[n].agent], readers[n].clock);
        remove_readers(cell, [&](Reader const& r) {
            bool const drop = r.clock < latest[r.agent] || latest[r.agent] == 0;
            if (!drop) latest[r.agent] = 0;  // the next one with the same clock says the same
            return drop;
        });
    }

    // Conflicts

    Reader const* unknown_reader(Cell const& cell, Knowledge const& known) {
        if (cell.read_epoch == machine.order.epoch && known[cell.reader] < cell.read_clock) {
            scratch = {cell.read_clock, cell.reader, cell.read_line, 0};
            return &scratch;
        }
        for (uint32_t n = cell.others; n != 0; n = readers[n].next)
            if (known[readers[n].agent] < readers[n].clock) return &readers[n];
        return nullptr;
    }
    Reader scratch{};

    bool reads_known(Cell const& cell, int thread) const {
        Order const& order = machine.order;
        if (cell.read_epoch == order.epoch && cell.reader != thread && order.known(thread, cell.reader) < cell.read_clock)
            return false;
        for (uint32_t n = cell.others; n != 0; n = readers[n].next)
            if (readers[n].agent != thread && order.known(thread, readers[n].agent) < readers[n].clock) return false;
        return true;
    }

    void expect_visible(Cell const& cell, uint32_t index, AsyncAccess const& access, char const* verb) {
        uint32_t const known = access.known[cell.writer];
        if (known < cell.write_clock) conflict_with_writer(cell, index, access.what + " " + verb, access.line);
        if (access.proxy && machine.order.is_thread(cell.writer) && !machine.order.fenced(cell.writer, cell.write_clock, known))
            fail(Error::proxy_fence, access.line,
                 "%s %s shared bytes [%u, %u) through the asynchronous proxy; %s wrote them at line %d and did not execute "
                 "fence_proxy_async between that write and the barrier",
                 access.what.c_str(), verb, first(index), last(index), machine.name(cell.writer).c_str(), cell.write_line);
    }

    [[noreturn]] void conflict_with_writer(Cell const& cell, uint32_t index, std::string const& what, int line) {
        if (machine.order.is_thread(cell.writer))
            fail(Error::race, line, "%s shared bytes [%u, %u) that %s wrote at line %d, and no barrier orders the two",
                 what.c_str(), first(index), last(index), machine.name(cell.writer).c_str(), cell.write_line);
        fail(
            Error::async_copy, line,
            "%s shared bytes [%u, %u) that a %s at line %d fills, without having waited for the mbarrier at shared offset %d",
            what.c_str(), first(index), last(index), cell.swizzle == by_store ? "store_async" : "TMA load", cell.write_line,
            agents[cell.writer - machine.threads.size()].index);
    }

    [[noreturn]] void conflict_with_reader(Reader const& reader, uint32_t index, std::string const& what, int line) {
        if (machine.order.is_thread(reader.agent))
            fail(Error::race, line, "%s shared bytes [%u, %u) that %s read at line %d, and no barrier orders the two",
                 what.c_str(), first(index), last(index), machine.name(reader.agent).c_str(), reader.line);
        Agent const& agent = agents[reader.agent - machine.threads.size()];
        if (agent.kind == Agent::wgmma)
            fail(Error::race, line,
                 "%s shared bytes [%u, %u) that the wgmma of %s at line %d may still read: no wgmma_wait orders the two",
                 what.c_str(), first(index), last(index), machine.warpgroup_name(agent.index).c_str(), reader.line);
        fail(Error::race, line,
             "%s shared bytes [%u, %u) that the TMA store of %s at line %d may still read: no tma_store_wait_read orders "
             "the two",
             what.c_str(), first(index), last(index), machine.name(agent.index).c_str(), reader.line);
    }

    [[noreturn]] void outside(uint64_t address, uint32_t bytes, char const* verb, int line) {
        int64_t const offset = static_cast<int64_t>(address - shared_window - shared_start);
        if (address >> window_bits != 1 && (address + shared_start) >> window_bits != 1)
            fail(Error::shared_out_of_bounds, line,
                 "%s %u bytes of shared memory through a pointer that does not point there", verb, bytes);
        fail(Error::shared_out_of_bounds, line, "%s %u bytes at shared offset %lld; the block has %u bytes of shared memory", verb,
             bytes, static_cast<long long>(offset), size);
    }

    [[noreturn]] void unreadable(Cell const& cell, uint32_t index, int thread, int line) {
        expect_plain(cell, index, "reads", thread, line);
        if (cell.write_epoch == 0)
            fail(Error::unwritten, line,
                 "reads shared bytes [%u, %u), which nothing has written yet (is there a barrier after the writes?)", first(index),
                 last(index));
        conflict_with_writer(cell, index, "reads", line);
    }

    [[noreturn]] void unwritable(Cell const& cell, uint32_t index, int thread, int line) {
        expect_plain(cell, index, "writes", thread, line);
        if (cell.write_epoch >= machine.order.epoch && !write_known(cell, thread))
            conflict_with_writer(cell, index, "writes", line);
        Order& order = machine.order;
        Knowledge known = order.of(thread);
        conflict_with_reader(*unknown_reader(cell, known), index, "writes", line);
    }

    void expect_plain(Cell const& cell, uint32_t index, char const* verb, int thread, int line) {
        if (cell.state == copy_pending)
            fail(Error::async_copy, line, "%s shared bytes [%u, %u) that the cp.async of %s at line %d fills, %s", verb,
                 first(index), last(index),
                 cell.writer == thread ? "this thread" : machine.name(cell.writer).c_str(), cell.write_line,
                 cell.writer == thread ? "which it has not waited for" : "which that thread has not waited for");
        if (cell.state == is_mbarrier)
            fail(Error::mbarrier, line, "%s shared bytes [%u, %u), which hold an mbarrier", verb, first(index), last(index));
    }

    // Cells become smaller; each part inherits all that was known of the whole.
    void split(uint32_t bytes) {
        int finer = 0;
        while (bytes >> (finer + 1) != 0) ++finer;
        size_t const parts = size_t{1} << (shift - finer);
        std::vector<Cell> old = std::move(cells);
        cells.assign(old.size() * parts, Cell{});
        for (size_t i = 0; i < old.size(); ++i)
            for (size_t p = 0; p < parts; ++p) {
                Cell& cell = cells[i * parts + p] = old[i];
                if (p == 0) continue;
                cell.others = 0;
                cell.other_count = 0;
                for (uint32_t n = old[i].others; n != 0; n = readers[n].next) push_reader(cell, readers[n]);
            }
        shift = finer;
    }
};

inline SharedMemory shared;

}  // namespace cb::emulator

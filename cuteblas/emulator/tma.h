// TMA: tensor maps, loads that complete on an mbarrier, stores that complete in groups. And words that are stored into other blocks
// of the cluster, which complete on an mbarrier too.
#pragma once

#include <deque>
#include <string>

#include "global.h"
#include "mbarrier.h"

namespace cb::emulator {

constexpr uint32_t tma_alignment = 128;
constexpr uint32_t chunk_bytes = 16;  // what swizzles move as one

// The swizzle over `span` bytes exchanges 16-byte chunks: their number within the span, exclusive-or the number of the 128-byte
// line within the pattern. It acts on addresses in the shared window.
inline uint32_t swizzled(uint32_t address, uint32_t span) {
    if (span == 0) return address;
    uint32_t const mask = span / chunk_bytes - 1;
    return address ^ ((address >> 7 & mask) << 4);
}

struct TensorBox {
    TensorMapContent const& map;
    int const* coordinates;

    uint32_t row_bytes() const { return static_cast<uint32_t>(map.box[0]) * map.itemsize; }

    uint32_t rows() const {
        uint32_t count = 1;
        for (int mode = 1; mode < map.rank; ++mode) count *= map.box[mode];
        return count;
    }

    // What a load completes on its mbarrier: the whole box, whether inside the tensor or not.
    uint32_t bytes() const { return rows() * row_bytes(); }

    // From one row to the next in shared memory: under a swizzle a row takes a whole span, be it shorter or not.
    uint32_t pitch() const { return map.swizzle != 0 ? map.swizzle : row_bytes(); }

    // The chunks of the box in the shared window, which begins at a multiple of every swizzle's pattern.
    template <class Visit>
    void each_chunk(uint32_t address, Visit visit) const {
        for (uint32_t row = 0, end = rows(); row < end; ++row)
            for (uint32_t i = 0; i < row_bytes(); i += chunk_bytes) visit(swizzled(address + row * pitch() + i, map.swizzle));
    }

    // The place of a row of the box in global memory, relative to coordinate 0 of the innermost mode; false if outside the tensor.
    bool locate(uint32_t row, long long& address) const {
        address = map.origin;
        for (int mode = 1; mode < map.rank; ++mode) {
            long long const index = coordinates[mode] + static_cast<long long>(row % map.box[mode]);
            row /= map.box[mode];
            if (index < 0 || index >= static_cast<long long>(map.shape[mode])) return false;
            address += index * static_cast<long long>(map.strides[mode - 1]);
        }
        return true;
    }

    // Calls visit(host address, bytes) for the parts of the box inside the tensor, in pieces of 16 bytes where they fit.
    template <class Visit>
    void each_piece(Visit visit) const {
        for (uint32_t row = 0, end = rows(); row < end; ++row) {
            long long begin;
            if (!locate(row, begin)) continue;
            long long const first = std::max(coordinates[0], 0);
            long long const last = std::min<long long>(static_cast<long long>(coordinates[0]) + map.box[0], static_cast<long long>(map.shape[0]));
            for (long long at = begin + first * map.itemsize, stop = begin + last * map.itemsize; at < stop;) {
                bool const whole = at % chunk_bytes == 0 && stop - at >= static_cast<long long>(chunk_bytes);
                visit(reinterpret_cast<uint8_t*>(at), whole ? chunk_bytes : static_cast<uint32_t>(map.itemsize));
                at += whole ? chunk_bytes : map.itemsize;
            }
        }
    }

    // Calls visit(address in the shared window, host address or null outside the tensor) for each element.
    template <class Visit>
    void each_element(uint32_t address, Visit visit) const {
        for (uint32_t row = 0, end = rows(); row < end; ++row) {
            long long begin;
            bool const inside = locate(row, begin);
            for (uint32_t i = 0; i < map.box[0]; ++i) {
                long long const index = static_cast<long long>(coordinates[0]) + i;
                bool const valid = inside && index >= 0 && index < static_cast<long long>(map.shape[0]);
                visit(swizzled(address + row * pitch() + i * map.itemsize, map.swizzle),
                      valid ? reinterpret_cast<uint8_t*>(begin + index * map.itemsize) : nullptr);
            }
        }
    }
};

struct TmaLoad {
    TensorMapContent map;
    int coordinates[5];
    uint32_t address;  // in the shared window
    int mbarrier;
    uint32_t number;  // among the loads of that mbarrier
    int line;
};

inline std::deque<TmaLoad> tma_loads;  // in flight

// A word on its way to a block of the cluster (st.async).
struct WordStore {
    unsigned value;
    uint32_t offset;
    int mbarrier;
    uint32_t number;  // among the copies of that mbarrier
    int line;
};

inline std::deque<WordStore> word_stores;  // in flight

inline void start_cluster_tma() {
    tma_loads.clear();
    word_stores.clear();
}

inline TensorMapContent const& content_of(TensorMap const* map, int rank, int const* coordinates, int line) {
    auto const& content = *reinterpret_cast<TensorMapContent const*>(map->content);
    if (content.rank != rank)
        fail(Error::tensor_map, line, "gives %d coordinates for the tensor map '%s' of %d modes", rank,
             machine.launch->windows[content.argument].name, content.rank);
    // PTX does not say so, but an H200 stops with an illegal instruction otherwise, for loads of every element size.
    if (coordinates[0] * content.itemsize % static_cast<int>(chunk_bytes) != 0)
        fail(Error::tensor_map, line,
             "the innermost coordinate of a box is a multiple of 16 bytes, got %d elements of %d bytes of the tensor map '%s'",
             coordinates[0], content.itemsize, machine.launch->windows[content.argument].name);
    return content;
}

// The box's address in the shared window of a block, counted through the cluster.
inline uint32_t locate_box(void const* pointer, TensorBox const& box, char const* verb, int line, int rank) {
    // The pattern of a swizzle repeats every eight spans. A box may begin elsewhere, but no descriptor could read it.
    uint32_t const span = box.map.swizzle;
    uint32_t const alignment = std::max(tma_alignment, 8 * span);
    uint32_t const offset = shared.locate(pointer, (box.rows() - 1) * box.pitch() + box.row_bytes(), 1, verb, line, rank);
    if ((offset + shared_start) % alignment != 0)
        fail(Error::tensor_map, line, "%s a box at shared offset %u; with a swizzle of %u bytes it must be a multiple of %u", verb,
             shared.local(offset), span, alignment);
    box.each_chunk(offset + shared_start, [&](uint32_t chunk) {
        uint32_t const within = chunk - shared_start - shared.base(rank);
        if (within + chunk_bytes > shared.size)
            fail(Error::shared_out_of_bounds, line,
                 "%s 16 bytes of a box at shared offset %u; the block has %u bytes of shared memory", verb, within, shared.size);
    });
    return offset + shared_start;
}

// Into the shared memory of one block, completing on the mbarrier there.
inline void load_box(void* to, TensorMapContent const& map, unsigned long long* pointer, int block, int const* coordinates,
                     int line) {
    Mbarrier& barrier = mbarriers.find(pointer, block, line, "names");
    if (!barrier.fenced)
        fail(Error::proxy_fence, line,
             "names the mbarrier at shared offset %u in a TMA load, but %s did not execute mbarrier_init_fence after "
             "initialising it",
             shared.local(barrier.offset), machine.name(barrier.initialiser).c_str());
    TensorBox const box{map, coordinates};
    uint32_t const address = locate_box(to, box, "loads", line, block);
    Knowledge const known = machine.order.of(machine.running);
    std::string const where = block == machine.rank() ? "" : " into block " + std::to_string(block) + " of the cluster";
    AsyncAccess const access{known, barrier.agent, ++barrier.loads, line, "the TMA load" + where};
    box.each_chunk(address, [&](uint32_t chunk) {
        uint32_t const offset = chunk - shared_start;
        shared.write_async(access, offset, chunk_bytes, map.swizzle);
        std::memset(shared.data + offset, 0xff, chunk_bytes);
    });
    if (machine.launch->windows[map.argument].written != nullptr)
        box.each_piece([&](uint8_t const* from, uint32_t bytes) { expect_written(map.argument, from, bytes, line, "the TMA load "); });
    if (global_shadow.watches(map.argument)) {
        GlobalAccess const reading{barrier.agent, barrier.loads, line, "the TMA load "};
        box.each_piece([&](uint8_t const* from, uint32_t bytes) { global_shadow.read(map.argument, from, bytes, reading); });
    }
    TmaLoad load{map, {}, address, static_cast<int>(&barrier - mbarriers.all.data()), barrier.loads, line};
    std::copy(coordinates, coordinates + map.rank, load.coordinates);
    tma_loads.push_back(load);
}

inline void tma_load(void* to, TensorMap const* map, unsigned long long* barrier, int rank, int const* coordinates, int line) {
    load_box(to, content_of(map, rank, coordinates, line), barrier, machine.rank(), coordinates, line);
}

inline void tma_load_multicast(void* to, TensorMap const* map, unsigned long long* barrier, int mask, int rank,
                               int const* coordinates, int line) {
    TensorMapContent const& content = content_of(map, rank, coordinates, line);
    if (mask <= 0 || mask >= 1 << 16)
        fail(Error::tensor_map, line, "a multicast goes to blocks 0 to 15 of the cluster, got the set %#x", mask);
    for (int block = 0; mask >> block != 0; ++block)
        if (mask >> block & 1) load_box(to, content, barrier, block, coordinates, line);
}

// Into the same place of the shared memory of the block of that rank, completing on the mbarrier there.
inline void store_async(void* to, unsigned value, int rank, unsigned long long* pointer, int line) {
    Mbarrier& barrier = mbarriers.find(pointer, rank, line, "names");
    uint32_t const offset = shared.locate(to, sizeof(value), sizeof(value), "stores into", line, rank);
    Knowledge const known = machine.order.of(machine.running);
    std::string const where = rank == machine.rank() ? "" : " into block " + std::to_string(rank) + " of the cluster";
    shared.write_async({known, barrier.agent, ++barrier.loads, line, "the store_async" + where, false}, offset, sizeof(value), by_store);
    std::memset(shared.data + offset, 0xff, sizeof(value));
    word_stores.push_back({value, offset, static_cast<int>(&barrier - mbarriers.all.data()), barrier.loads, line});
}

// Bytes have come in.
inline void complete_bytes(int index, uint32_t bytes, uint32_t number, char const* what, int line) {
    Mbarrier& barrier = mbarriers.all[index];
    barrier.bytes -= bytes;
    if (barrier.pending == 0 && barrier.bytes < 0)
        machine.stop(Error::mbarrier, line,
                     machine.where(false, line) + "the " + what + " brings the mbarrier at shared offset " +
                         std::to_string(shared.local(barrier.offset)) + " " + std::to_string(-barrier.bytes) +
                         " bytes more than its phase " + std::to_string(barrier.phase) + " expects");
    barrier.arriving[barrier.agent] = number;
    mbarriers.complete_if_due(barrier);
}

// Lets the oldest word in flight arrive; false if there is none.
inline bool complete_word_stores() {
    if (word_stores.empty()) return false;
    WordStore const store = word_stores.front();
    word_stores.pop_front();
    std::memcpy(shared.data + store.offset, &store.value, sizeof(store.value));
    complete_bytes(store.mbarrier, sizeof(store.value), store.number, "store_async", store.line);
    return true;
}

// A float as loaded through a map of tfloat32: rounded to nearest, ties to even, with 10 bits of the fraction; all NaNs become the
// same, as on an H200.
inline void round_to_tfloat32(uint8_t* where) {
    constexpr uint32_t dropped = 13;
    uint32_t bits;
    std::memcpy(&bits, where, sizeof(bits));
    if ((bits & 0x7fffffff) > 0x7f800000)
        bits = 0x7fffffff;
    else if ((bits & 0x7fffffff) != 0x7f800000)
        bits = (bits + (1u << (dropped - 1)) - 1 + (bits >> dropped & 1)) & ~((1u << dropped) - 1);
    std::memcpy(where, &bits, sizeof(bits));
}

// Lets the oldest load in flight arrive; false if there is none.
inline bool complete_tma_loads() {
    if (tma_loads.empty()) return false;
    TmaLoad const load = tma_loads.front();
    tma_loads.pop_front();
    TensorBox const box{load.map, load.coordinates};
    box.each_element(load.address, [&](uint32_t address, uint8_t const* from) {
        uint8_t* to = shared.data + address - shared_start;
        if (from != nullptr) {
            copy_bytes(to, from, load.map.itemsize);
            if (load.map.rounds) round_to_tfloat32(to);
        } else
            std::memset(to, 0, load.map.itemsize);
    });
    complete_bytes(load.mbarrier, box.bytes(), load.number, "TMA load", load.line);
    return true;
}

inline bool complete_asynchronous() { return complete_word_stores() || complete_tma_loads(); }

inline void expect_loads_waited() {
    int const first = machine.rank() * machine.block_threads;
    for (Mbarrier const& barrier : mbarriers.all)
        if (shared.rank_of(barrier.offset) == machine.rank() && barrier.loads != 0 &&
            !machine.order.known_in(first, machine.block_threads, barrier.agent, barrier.loads))
            fail(Error::async_copy, 0,
                 "the block ends without having waited for the last copy that completes on the mbarrier at shared offset %u",
                 shared.local(barrier.offset));
}

inline void tma_store(TensorMap const* tensor_map, void const* from, int rank, int const* coordinates, int line) {
    TensorMapContent const& map = content_of(tensor_map, rank, coordinates, line);
    Window const& window = machine.launch->windows[map.argument];
    if (!window.writable)
        fail(Error::read_only, line, "stores through the tensor map '%s', whose memory is read-only", window.name);
    // An H200 writes whole pieces: the one that the tensor's edge cuts spills into what follows the row. Loads do not mind.
    if (map.shape[0] * map.itemsize % chunk_bytes != 0 && coordinates[0] < static_cast<long long>(map.shape[0]) &&
        coordinates[0] + static_cast<long long>(map.box[0]) > static_cast<long long>(map.shape[0]))
        fail(Error::tensor_map, line,
             "stores a box over the edge of the tensor map '%s', whose rows of %llu elements of %d bytes are not a multiple of 16 bytes: "
             "the hardware writes whole pieces of 16 bytes", window.name, static_cast<unsigned long long>(map.shape[0]), map.itemsize);
    TensorBox const box{map, coordinates};
    uint32_t const address = locate_box(from, box, "stores", line, machine.rank());
    Thread& thread = machine.self();
    if (thread.store_agent < 0) {
        thread.store_agent = shared.new_agent({Agent::tma_store, machine.running}, line);
        thread.written_agent = shared.new_agent({Agent::tma_store, machine.running}, line);
    }
    Knowledge const known = machine.order.of(machine.running);
    AsyncAccess const access{known, thread.store_agent, thread.store_groups + 1, line, "the TMA store"};
    box.each_chunk(address, [&](uint32_t chunk) { shared.read_async(access, chunk - shared_start, chunk_bytes, -1); });
    thread.stores_uncommitted = true;
    GlobalAccess const writing{thread.written_agent, thread.store_groups + 1, line, "the TMA store "};
    box.each_piece([&](uint8_t const* to, uint32_t bytes) {
        global_shadow.write(map.argument, to, bytes, writing);
        note_written(map.argument, to, bytes);
    });
    box.each_element(address, [&](uint32_t element, uint8_t* to) {
        if (to != nullptr) copy_bytes(to, shared.data + element - shared_start, map.itemsize);
    });
}

inline void tma_store_commit() {
    ++machine.self().store_groups;
    machine.self().stores_uncommitted = false;
}

// Until all groups but some have read shared memory, or have written as well.
inline void tma_store_wait(int pending, bool written) {
    Thread const& thread = machine.self();
    if (thread.store_agent < 0 || thread.store_groups <= static_cast<uint32_t>(pending)) return;
    uint32_t const done = thread.store_groups - static_cast<uint32_t>(pending);
    machine.order.learn(machine.running, thread.store_agent, done);
    if (written) machine.order.learn(machine.running, thread.written_agent, done);
}

inline void expect_stores_waited() {
    Thread const& thread = machine.self();
    if (thread.store_agent < 0) return;
    if (thread.stores_uncommitted || machine.order.known(machine.running, thread.store_agent) < thread.store_groups)
        fail(Error::async_copy, 0, "returns while its TMA stores may still read shared memory: it has not waited for all of them");
}

}  // namespace cb::emulator

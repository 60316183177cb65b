// Ordinary accesses to shared memory, and cp.async: copies that happen at the wait for their group and no sooner.
#pragma once

#include "global.h"
#include "shared.h"

namespace cb::emulator {

inline void load_shared(void* to, void const* from, int bytes, int line) {
    auto const size = static_cast<uint32_t>(bytes);
    uint32_t const offset = shared.locate(from, size, size, "reads", line);
    shared.read(machine.running, offset, size, line);
    copy_bytes(to, shared.data + offset, bytes);
    if (machine.launch->counting) counts.note(true, false, bytes, line, offset);
}

// As load_shared, of which a part need not have been written: its bits are all set.
inline void load_covering(void* to, void const* from, int bytes, int line) {
    auto const size = static_cast<uint32_t>(bytes);
    uint32_t const offset = shared.locate(from, size, size, "reads", line);
    shared.read(machine.running, offset, size, line, true);
    copy_bytes(to, shared.data + offset, bytes);
    if (machine.launch->counting) counts.note(true, false, bytes, line, offset);
}

inline void store_shared(void* to, void const* from, int bytes, int line) {
    auto const size = static_cast<uint32_t>(bytes);
    uint32_t const offset = shared.locate(to, size, size, "writes", line);
    expect_delivered(from, bytes, line);
    shared.write(machine.running, offset, size, line);
    copy_bytes(shared.data + offset, from, bytes);
    if (machine.launch->counting) counts.note(true, true, bytes, line, offset);
}

// A copy of which so many bytes are read; the others are zero.
inline void cp_async_part(void* to, void const* from, int bytes, int fetched, int line) {
    auto const size = static_cast<uint32_t>(bytes), read = static_cast<uint32_t>(fetched);
    uint32_t const offset = shared.locate(to, size, size, "copies to", line);
    uint8_t const* source = fetched ? global(from, read, false, line) : nullptr;
    shared.write(machine.running, offset, size, line, copy_pending);
    std::memset(shared.data + offset, 0xff, size);
    bool const covers = reinterpret_cast<uint64_t>(from) & covering;
    if (source != nullptr) {
        if (!covers) expect_written(window_of(from), source, read, line);
        global_shadow.read(window_of(from), source, read, by_running(line), covers);
    }
    machine.self().copies.push_back({offset, size, source, read, covers, window_of(from), line});
    if (machine.launch->counting) {
        if (fetched)
            count_global(from, source, false, fetched, line);
        else
            counts.note(false, false, bytes, line, Counts::nowhere);
        counts.note(true, true, bytes, line, offset);
    }
}

inline void cp_async(void* to, void const* from, int bytes, bool fetch, int line) {
    cp_async_part(to, from, bytes, fetch ? bytes : 0, line);
}

inline void cp_async_commit() {
    Thread& thread = machine.self();
    thread.copy_groups.push_back(thread.copies.size());
}

inline void cp_async_wait(int pending) {
    Thread& thread = machine.self();
    for (; thread.copy_groups.size() - thread.copy_groups_done > static_cast<size_t>(pending); ++thread.copy_groups_done)
        for (; thread.copied < thread.copy_groups[thread.copy_groups_done]; ++thread.copied) {
            Copy const& copy = thread.copies[thread.copied];
            std::memset(shared.data + copy.offset, 0, copy.bytes);
            if (copy.source != nullptr) {
                uint32_t const foreign = global_shadow.read(copy.window, static_cast<uint8_t const*>(copy.source), copy.read,
                                                            by_running(copy.line), copy.covers);
                std::memcpy(shared.data + copy.offset, copy.source, copy.read);
                for (int i = 0; foreign >> i != 0; ++i)
                    if (foreign >> i & 1) shared.data[copy.offset + i] ^= 0xff;
            }
            shared.arrive(machine.running, copy.offset, copy.bytes);
        }
}

}  // namespace cb::emulator

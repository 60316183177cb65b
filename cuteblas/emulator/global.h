// Global memory: every pointer argument is a window with bounds of its own.
#pragma once

#include <cstdint>
#include <cstring>

#include "counts.h"
#include "machine.h"

namespace cb::emulator {

// The low bits of a translated pointer are the host's; the rest places it in the middle of its window, since strides may be
// negative.
inline uint64_t translation(unsigned window) {
    Window const& w = machine.launch->windows[window];
    uint64_t const middle = (static_cast<uint64_t>(window + first_argument_window) << window_bits) + (1ull << (window_bits - 1));
    return middle + (w.address & 0xfff) - w.address;
}

[[noreturn]] inline void outside_global(Window const& w, uint64_t host, uint32_t bytes, char const* verb, int line) {
    auto const relative = [&](uint64_t address) { return static_cast<long long>(address - w.address); };
    fail(Error::global_out_of_bounds, line, "%s %u bytes at byte offset %lld of argument '%s', which holds the bytes [%lld, %lld)",
         verb, bytes, relative(host), w.name, relative(w.low), relative(w.high));
}

// The host address of an access to global memory.
inline uint8_t* global(void const* pointer, uint32_t bytes, bool write, int line) {
    uint64_t const address = reinterpret_cast<uint64_t>(pointer);
    char const* const verb = write ? "writes" : "reads";
    unsigned const window = static_cast<unsigned>(address >> window_bits) - first_argument_window;
    if (window >= static_cast<unsigned>(machine.launch->window_count))
        fail(Error::global_out_of_bounds, line, "%s %u bytes of global memory through a pointer that belongs to no argument", verb,
             bytes);
    Window const& w = machine.launch->windows[window];
    uint64_t const host = address - translation(window);
    if (host < w.low || host + bytes > w.high) outside_global(w, host, bytes, verb, line);
    if (host % bytes != 0)
        fail(Error::misaligned, line, "%s %u bytes at byte offset %lld of argument '%s', which is not a multiple of %u in memory",
             verb, bytes, static_cast<long long>(host - w.address), w.name, bytes);
    if (write && !w.writable)
        fail(Error::read_only, line, "writes %u bytes through argument '%s', which is read-only", bytes, w.name);
    return reinterpret_cast<uint8_t*>(host);
}

// Whether a thread stores an accumulator that is still in flight; without wgmma there are none.
inline bool accumulators_exist = false;

[[noreturn]] inline void accumulator_in_flight(int line) {
    fail(Error::accumulator, line, "uses a wgmma accumulator before the wgmma_wait that delivers it");
}

inline void expect_delivered(void const* from, int bytes, int line) {
    if (!accumulators_exist) return;
    for (int i = 0; i + 4 <= bytes; i += 4) {
        uint32_t word;
        std::memcpy(&word, static_cast<char const*>(from) + i, 4);
        if (word == in_flight_pattern) accumulator_in_flight(line);
    }
}

inline void copy_bytes(void* to, void const* from, int bytes) {
    switch (bytes) {
        case 1: std::memcpy(to, from, 1); break;
        case 2: std::memcpy(to, from, 2); break;
        case 4: std::memcpy(to, from, 4); break;
        case 8: std::memcpy(to, from, 8); break;
        default: std::memcpy(to, from, 16); break;
    }
}

// Sectors are counted as if the argument's memory began at a sector, as device allocations do.
inline void count_global(void const* pointer, uint8_t const* host, bool write, int bytes, int line) {
    unsigned const window = static_cast<unsigned>(reinterpret_cast<uint64_t>(pointer) >> window_bits) - first_argument_window;
    counts.note(false, write, bytes, line, reinterpret_cast<uint64_t>(host) - machine.launch->windows[window].low);
}

inline void load_global(void* to, void const* from, int bytes, int line) {
    uint8_t const* host = global(from, static_cast<uint32_t>(bytes), false, line);
    copy_bytes(to, host, bytes);
    if (machine.launch->counting) count_global(from, host, false, bytes, line);
}

inline void store_global(void* to, void const* from, int bytes, int line) {
    uint8_t* host = global(to, static_cast<uint32_t>(bytes), true, line);
    expect_delivered(from, bytes, line);
    copy_bytes(host, from, bytes);
    if (machine.launch->counting) count_global(to, host, true, bytes, line);
}

// Flags. Blocks run one after the other, so a thread may spin only on what an earlier block or another thread of its block stores.
// It yields at each look; when nothing has changed for long, nothing will.
inline int fruitless_looks = 0;
constexpr int patience = 1000;  // looks per thread

inline unsigned load_flag(unsigned const* from, int line) {
    unsigned const value = *reinterpret_cast<unsigned const*>(global(from, 4, false, line));
    if (machine.complete_asynchronous()) fruitless_looks = 0;
    if (++fruitless_looks > patience * static_cast<int>(machine.threads.size()))
        fail(
            Error::deadlock, line,
            "deadlock: looks again and again at a flag in argument '%s' that no thread changes (blocks run one after the other, in "
            "order of their index)",
            machine.launch->windows[(reinterpret_cast<uint64_t>(from) >> window_bits) - first_argument_window].name);
    machine.make_ready(machine.running);
    machine.suspend({Wait::flag, 0, 0, line});
    return value;
}

inline void store_flag(unsigned* to, unsigned value, int line) {
    *reinterpret_cast<unsigned*>(global(to, 4, true, line)) = value;
    fruitless_looks = 0;
}

}  // namespace cb::emulator

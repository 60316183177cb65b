// Global memory: every pointer argument is a window with bounds of its own.
#pragma once

#include <cstdint>
#include <cstring>

#include "counts.h"
#include "races.h"

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

inline unsigned window_of(void const* pointer) {
    return static_cast<unsigned>((reinterpret_cast<uint64_t>(pointer) & ~covering) >> window_bits) - first_argument_window;
}

// The host address of an access to global memory.
inline uint8_t* global(void const* pointer, uint32_t bytes, bool write, int line) {
    uint64_t const address = reinterpret_cast<uint64_t>(pointer) & ~covering;
    char const* const verb = write ? "writes" : "reads";
    unsigned const window = window_of(pointer);
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

[[noreturn]] inline void register_unset(int line) { fail(Error::unset, line, "uses a register that nothing has set"); }

[[noreturn]] inline void past_registers(int bytes, int line) {
    fail(Error::registers, line, "uses %d bytes of registers, which go past the end of their array", bytes);
}

[[noreturn]] inline void undefined(Undefined kind, char const* file, int line, int index, char const* type) {
    if (std::strcmp(file, machine.launch->kernel) != 0) line = 0;
    if (kind == Undefined::index) fail(Error::registers, line, "uses the index %d of an array of type %s", index, type);
    if (kind == Undefined::access) fail(Error::registers, line, "uses registers past the end of their array, as %s", type);
    fail(Error::misuse, line, kind == Undefined::division ? "divides an integer by zero" : "shifts an integer by a negative number of bits, or by more than it has");
}

// Memory that nobody has written, as a new workspace.
inline void expect_written(unsigned window, uint8_t const* host, uint32_t bytes, int line, char const* what = "") {
    Window const& w = machine.launch->windows[window];
    if (w.written == nullptr || std::memchr(w.written + (reinterpret_cast<uint64_t>(host) - w.low), 0, bytes) == nullptr) return;
    auto const first = static_cast<long long>(reinterpret_cast<uint64_t>(host) - w.address);
    fail(Error::unwritten, line, "%sreads bytes [%lld, %lld) of argument '%s', the workspace, which nothing has written yet", what, first,
         first + bytes, w.name);
}

inline void note_written(unsigned window, uint8_t const* host, uint32_t bytes) {
    Window const& w = machine.launch->windows[window];
    if (w.written != nullptr) std::memset(w.written + (reinterpret_cast<uint64_t>(host) - w.low), 1, bytes);
}

// Words that an instruction on whole registers reads.
inline void expect_set(void const* from, int words, int line) {
    for (int i = 0; i < words; ++i) {
        uint32_t word;
        std::memcpy(&word, static_cast<char const*>(from) + 4 * i, 4);
        if (word == unset_pattern) register_unset(line);
    }
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
    counts.note(false, write, bytes, line, reinterpret_cast<uint64_t>(host) - machine.launch->windows[window_of(pointer)].low);
}

inline GlobalAccess by_running(int line) { return {machine.running, machine.order.clock(machine.running), line}; }

inline void load_global(void* to, void const* from, int bytes, int line) {
    auto const size = static_cast<uint32_t>(bytes);
    uint8_t const* host = global(from, size, false, line);
    if (!(reinterpret_cast<uint64_t>(from) & covering)) expect_written(window_of(from), host, size, line);
    uint32_t const foreign = global_shadow.read(window_of(from), host, size, by_running(line), reinterpret_cast<uint64_t>(from) & covering);
    copy_bytes(to, host, bytes);
    for (int i = 0; foreign >> i != 0; ++i)
        if (foreign >> i & 1) static_cast<uint8_t*>(to)[i] ^= 0xff;
    if (machine.launch->counting) count_global(from, host, false, bytes, line);
}

inline void store_global(void* to, void const* from, int bytes, int line) {
    auto const size = static_cast<uint32_t>(bytes);
    uint8_t* host = global(to, size, true, line);
    expect_delivered(from, bytes, line);
    global_shadow.write(window_of(to), host, size, by_running(line));
    note_written(window_of(to), host, size);
    copy_bytes(host, from, bytes);
    if (machine.launch->counting) count_global(to, host, true, bytes, line);
}

// Flags: a store releases what its thread knows, and who sees it acquires that. A look lets the other threads run. A thread that sees
// the same again at the same place waits until any flag changes, and looks now and then if nothing else can go on.
inline unsigned load_flag(unsigned const* from, int line) {
    uint8_t const* host = global(from, sizeof(unsigned), false, line);
    expect_written(window_of(from), host, sizeof(unsigned), line);
    auto const value = [&] { return *reinterpret_cast<unsigned const*>(host); };
    Thread& self = machine.self();
    Look const look{host, value(), line};
    if (look == self.look) {
        if (machine.looking.empty()) machine.looked_at = machine.flag_changes;
        machine.looking.push_back(machine.running);
    } else {
        self.look = look;
        machine.make_ready(machine.running);
    }
    machine.suspend({Wait::flag, static_cast<int>(window_of(from)), 0, line});
    global_shadow.look_at_flag(window_of(from), host, by_running(line));
    releases.acquire(host, line);
    return value();
}

inline void store_flag(unsigned* to, unsigned value, int line) {
    uint8_t* host = global(to, sizeof(unsigned), true, line);
    global_shadow.store_flag(window_of(to), host, by_running(line));
    note_written(window_of(to), host, sizeof(unsigned));
    releases.release(host);
    *reinterpret_cast<unsigned*>(host) = value;
    ++machine.flag_changes;
    machine.self().look = {};
    machine.wake_looking();
}

}  // namespace cb::emulator

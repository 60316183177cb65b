// wgmma: matrix descriptors, the arithmetic of Hopper's tensor cores, and accumulators in flight.
#pragma once

#include <cmath>
#include <list>
#include <vector>

#include "tma.h"

namespace cb::emulator {

constexpr int wgmma_rows = 64;
constexpr int wgmma_depth = 16;
constexpr int registers_of_a = 4;  // of a thread, if A is in registers
constexpr int byte_depth = 32;     // of a step of bytes
constexpr int chunk_elements = 8;  // 2-byte elements of a 16-byte chunk
constexpr int core_rows = 8;       // rows of a core matrix

// The fields of PTX ISA, "Matrix descriptor", in bytes.
struct Descriptor {
    uint32_t start, leading, stride, swizzle;
};

inline uint64_t descriptor_field(uint32_t bytes) { return bytes >> 4 & 0x3fff; }

inline unsigned long long wgmma_descriptor(void const* smem, int leading, int stride, int swizzle, int line) {
    uint32_t const offset = shared.local(shared.locate(smem, chunk_bytes, 1, "describes", line));
    if (offset % chunk_bytes != 0)
        fail(Error::descriptor, line, "a wgmma operand begins at a multiple of 16 bytes, got shared offset %u", offset);
    for (int distance : {leading, stride})
        if (distance < 0 || distance % 16 != 0 || distance >= 1 << 18)
            fail(Error::descriptor, line,
                 "the offsets of a wgmma descriptor are multiples of 16 bytes below 2^18, got leading %d and stride %d", leading,
                 stride);
    uint64_t const mode = swizzle == 0 ? 0 : swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 4;
    if (mode == 4) fail(Error::descriptor, line, "the swizzle of a wgmma descriptor is 0, 32, 64 or 128 bytes, got %d", swizzle);
    return descriptor_field(offset + shared_start) | descriptor_field(static_cast<uint32_t>(leading)) << 16 |
           descriptor_field(static_cast<uint32_t>(stride)) << 32 | mode << 62;
}

inline Descriptor decode(uint64_t bits, char operand, int line) {
    constexpr uint64_t unused = ~(0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 3ull << 62);
    if ((bits & unused) != 0)
        fail(Error::descriptor, line,
             "the descriptor %016llx of operand %c has bits outside its fields: the start address has overflowed, or there is a "
             "base offset "
             "(which the emulator does not know)",
             static_cast<unsigned long long>(bits), operand);
    constexpr uint32_t spans[] = {0, 128, 64, 32};
    auto const field = [&](int shift) { return static_cast<uint32_t>(bits >> shift & 0x3fff) << 4; };
    return {field(0), field(16), field(32), spans[bits >> 62]};
}

// One operand of a k16 step as integers: value = significand * 2^(exponent - fraction bits), [k][row]. Zeros have an exponent below
// all others, so that they never decide an alignment. A step of tfloat32 has as many bytes: 8 elements, then 8 zeros. One of bytes has
// two elements in each of `bits`.
struct Operand {
    static constexpr int zero_exponent = -8192;
    int rows;
    std::vector<uint16_t> bits;  // [row][k]
    std::vector<int32_t> significand, exponent;
    std::vector<uint8_t> special;  // whether a row has an infinity or a NaN
};

// Reads an operand as the canonical layouts of PTX ISA ("Asynchronous Warpgroup Level Matrix Shared Memory Layout") place it.
inline void read_operand(Operand& operand, uint64_t descriptor_bits, int rows, int major, AsyncAccess const& access, char name) {
    Descriptor const d = decode(descriptor_bits, name, access.line);
    uint32_t const span = d.swizzle;
    uint32_t const chunks_of_span = std::max(span / chunk_bytes, 1u);
    uint32_t const pitch = std::max(span, chunk_bytes);  // from one row of a core matrix to the next
    // Chunks that the operand takes side by side from its first span.
    uint32_t const side_by_side =
        major == 0 ? wgmma_depth / chunk_elements : std::min<uint32_t>(chunks_of_span, rows / chunk_elements);
    if (span != 0 && d.start % (8 * span) + side_by_side * chunk_bytes > span)
        fail(Error::descriptor, access.line,
             "operand %c begins at shared address %u, which does not fit a swizzle of %u bytes: the pattern begins at a multiple "
             "of %u and the "
             "operand takes %u bytes of its first row",
             name, d.start, span, 8 * span, side_by_side * chunk_bytes);
    operand.rows = rows;
    operand.bits.resize(static_cast<size_t>(rows) * wgmma_depth);
    auto const fetch = [&](uint32_t linear) {
        uint32_t const address = swizzled(linear, span);
        if (address < shared_start || address + chunk_bytes > shared_start + shared.size)
            fail(Error::descriptor, access.line,
                 "operand %c (start %u, leading offset %u, stride offset %u, swizzle %u) reaches shared address %u; the block's "
                 "shared memory is "
                 "[%u, %u)",
                 name, d.start, d.leading, d.stride, span, address, shared_start, shared_start + shared.size);
        uint32_t const offset = address - shared_start + shared.base(machine.rank());
        shared.read_async(access, offset, chunk_bytes, static_cast<int>(span));
        return reinterpret_cast<uint16_t const*>(shared.data + offset);
    };
    if (major == 0) {  // chunks run along k
        for (int row = 0; row < rows; ++row)
            for (int c = 0; c < wgmma_depth / chunk_elements; ++c) {
                uint16_t const* chunk =
                    fetch(d.start + row % core_rows * pitch + row / core_rows * d.stride + c * (span ? chunk_bytes : d.leading));
                std::copy(chunk, chunk + chunk_elements,
                          &operand.bits[static_cast<size_t>(row * wgmma_depth + c * chunk_elements)]);
            }
    } else {  // chunks run along the rows
        uint32_t const next_span = span ? d.leading : d.stride;
        uint32_t const next_core = span ? d.stride : d.leading;
        for (int k = 0; k < wgmma_depth; ++k)
            for (uint32_t c = 0; c < static_cast<uint32_t>(rows / chunk_elements); ++c) {
                uint16_t const* chunk = fetch(d.start + c % chunks_of_span * chunk_bytes + c / chunks_of_span * next_span +
                                              k % core_rows * pitch + k / core_rows * next_core);
                for (int i = 0; i < chunk_elements; ++i) operand.bits[(c * chunk_elements + i) * wgmma_depth + k] = chunk[i];
            }
    }
}

// A in registers (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"): word i of a thread has two elements of one row.
inline void read_registers(Operand& operand, WgmmaRequest const* requests) {
    operand.rows = wgmma_rows;
    operand.bits.resize(static_cast<size_t>(wgmma_rows * wgmma_depth));
    for (int t = 0; t < warpgroup_threads; ++t)
        for (int i = 0; i < registers_of_a; ++i) {
            int const row = 16 * (t / warp_threads) + t % warp_threads / 4 + 8 * (i % 2);
            int const k = 2 * (t % 4) + 8 * (i / 2);
            uint32_t const word = requests[t].registers_a[i];
            operand.bits[static_cast<size_t>(row * wgmma_depth + k)] = static_cast<uint16_t>(word);
            operand.bits[static_cast<size_t>(row * wgmma_depth + k + 1)] = static_cast<uint16_t>(word >> 16);
        }
}

inline int fraction_bits(WgmmaInput input) { return input == WgmmaInput::bfloat16 ? 7 : 10; }

inline int exponent_bits(WgmmaInput input) { return input == WgmmaInput::half ? 5 : 8; }

// The sign, the exponent and the fraction of an element of a row; of a tfloat32 the last 13 of 32 bits are not looked at.
inline int bits_of(Operand const& operand, int row, int k, WgmmaInput input) {
    uint16_t const* line = &operand.bits[static_cast<size_t>(row * wgmma_depth)];
    if (input != WgmmaInput::tfloat32) return line[k];
    if (k >= wgmma_depth / 2) return 0;
    return line[2 * k + 1] << 3 | line[2 * k] >> 13;
}

inline void split_operand(Operand& operand, WgmmaInput input) {
    int const fraction = fraction_bits(input);
    int const largest = (1 << exponent_bits(input)) - 1;
    int const bias = largest / 2;
    int const rows = operand.rows;
    operand.significand.resize(operand.bits.size());
    operand.exponent.resize(operand.bits.size());
    operand.special.assign(static_cast<size_t>(rows), 0);
    for (int row = 0; row < rows; ++row)
        for (int k = 0; k < wgmma_depth; ++k) {
            int const bits = bits_of(operand, row, k, input);
            int const biased = bits >> fraction & largest;
            int significand = bits & ((1 << fraction) - 1);
            if (biased == largest) operand.special[row] = 1;
            if (biased != 0) significand |= 1 << fraction;
            operand.exponent[k * rows + row] = significand == 0 ? Operand::zero_exponent : std::max(biased, 1) - bias;
            bool const negative = bits >> (fraction + exponent_bits(input)) & 1;
            operand.significand[k * rows + row] = negative ? -significand : significand;
        }
}

inline float value_of(int bits, WgmmaInput input) {
    int const fraction = fraction_bits(input);
    int const largest = (1 << exponent_bits(input)) - 1;
    int const biased = bits >> fraction & largest;
    int const rest = bits & ((1 << fraction) - 1);
    float const sign = bits >> (fraction + exponent_bits(input)) & 1 ? -1.0f : 1.0f;
    if (biased == largest) return rest ? NAN : sign * INFINITY;
    return sign *
           std::ldexp(static_cast<float>(biased ? rest | 1 << fraction : rest), std::max(biased, 1) - largest / 2 - fraction);
}

// One k16 step: every sum of c and 16 exact products is aligned to the largest exponent among them with 2 bits more than a float
// has, truncated, added exactly and truncated to a float.
class TensorCore {
  public:
    // c: [row][column], in place.
    void multiply(std::vector<float>& c, Operand const& a, Operand const& b, WgmmaInput input, bool accumulate) {
        int const n = b.rows;
        int const widen = aligned_bits - 2 * fraction_bits(input);
        top.resize(n);
        sum.resize(n);
        for (int row = 0; row < a.rows; ++row) {
            float* line = &c[static_cast<size_t>(row) * n];
            if (!accumulate) std::fill(line, line + n, 0.0f);
            int32_t* const top_ = top.data();
            int32_t* const sum_ = sum.data();
            for (int j = 0; j < n; ++j) top_[j] = exponent_of(line[j]);
            for (int k = 0; k < wgmma_depth; ++k) {
                int32_t const ea = a.exponent[k * a.rows + row];
                int32_t const* eb = &b.exponent[static_cast<size_t>(k) * n];
                for (int j = 0; j < n; ++j) top_[j] = std::max(top_[j], ea + eb[j]);
            }
            std::fill(sum_, sum_ + n, 0);
            for (int k = 0; k < wgmma_depth; ++k) {
                int32_t const ea = a.exponent[k * a.rows + row];
                int32_t const sa = a.significand[k * a.rows + row];
                int32_t const* eb = &b.exponent[static_cast<size_t>(k) * n];
                int32_t const* sb = &b.significand[static_cast<size_t>(k) * n];
                for (int j = 0; j < n; ++j) {
                    int32_t const product = sa * sb[j];
                    uint32_t const magnitude = static_cast<uint32_t>(std::abs(product)) << widen;
                    int32_t const aligned = static_cast<int32_t>(magnitude >> std::min(top_[j] - ea - eb[j], 31));
                    sum_[j] += product < 0 ? -aligned : aligned;
                }
            }
            for (int j = 0; j < n; ++j) {
                if (a.special[row] || b.special[j] || !std::isfinite(line[j]))
                    line[j] = special_sum(line[j], a, row, b, j, input);
                else
                    line[j] = truncated(sum_[j] + aligned_addend(line[j], top_[j]), top_[j]);
            }
        }
    }

    // One k32 step of bytes: sums are exact modulo 2^32. c: as above, but int32.
    void multiply_bytes(std::vector<float>& c, Operand const& a, bool signed_a, Operand const& b, bool signed_b, bool accumulate) {
        int const n = b.rows;
        rows_of_b.resize(static_cast<size_t>(byte_depth) * n);
        for (int j = 0; j < n; ++j)
            for (int k = 0; k < byte_depth; ++k) rows_of_b[static_cast<size_t>(k) * n + j] = byte_of(b, j, k, signed_b);
        sum.resize(n);
        for (int row = 0; row < a.rows; ++row) {
            float* const line = &c[static_cast<size_t>(row) * n];
            int32_t* const sum_ = sum.data();
            if (accumulate)
                std::memcpy(sum_, line, sizeof(int32_t) * n);
            else
                std::fill(sum_, sum_ + n, 0);
            for (int k = 0; k < byte_depth; ++k) {
                int32_t const x = byte_of(a, row, k, signed_a);
                int32_t const* y = &rows_of_b[static_cast<size_t>(k) * n];
                for (int j = 0; j < n; ++j)
                    sum_[j] = static_cast<int32_t>(static_cast<uint32_t>(sum_[j]) + static_cast<uint32_t>(x * y[j]));
            }
            std::memcpy(line, sum_, sizeof(int32_t) * n);
        }
    }

  private:
    static int32_t byte_of(Operand const& operand, int row, int k, bool is_signed) {
        auto const byte = static_cast<uint8_t>(operand.bits[static_cast<size_t>(row * wgmma_depth + k / 2)] >> 8 * (k % 2));
        return is_signed ? static_cast<int8_t>(byte) : byte;
    }

    static constexpr int aligned_bits = 25;  // after the binary point of the largest term
    std::vector<int32_t> top, sum, rows_of_b;

    static int32_t exponent_of(float value) {
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        if ((bits & 0x7fffffff) == 0) return 2 * Operand::zero_exponent;
        return std::max(static_cast<int32_t>(bits >> 23 & 0xff), 1) - 127;
    }

    static int64_t aligned_addend(float value, int32_t top) {
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        uint32_t significand = bits & 0x7fffff;
        if (bits >> 23 & 0xff) significand |= 1u << 23;
        int64_t const aligned = (significand << (aligned_bits - 23)) >> std::min(top - exponent_of(value), 31);
        return bits >> 31 ? -aligned : aligned;
    }

    // sum * 2^(top - aligned_bits), towards zero.
    static float truncated(int64_t sum, int32_t top) {
        if (sum == 0) return 0.0f;
        uint64_t magnitude = static_cast<uint64_t>(std::abs(sum));
        int const length = 64 - __builtin_clzll(magnitude);
        int exponent = top - aligned_bits;  // of the last bit
        // 24 bits, or fewer if the result is subnormal.
        int const excess = std::max(length - 24, -149 - exponent);
        if (excess > 0) {
            magnitude = excess < 64 ? magnitude >> excess : 0;
            exponent += excess;
        }
        float const result = std::ldexp(static_cast<float>(magnitude), exponent);
        return sum < 0 ? -result : result;
    }

    static float special_sum(float c, Operand const& a, int row, Operand const& b, int column, WgmmaInput input) {
        double total = c;
        for (int k = 0; k < wgmma_depth; ++k)
            total += static_cast<double>(value_of(bits_of(a, row, k, input), input)) * value_of(bits_of(b, column, k, input), input);
        return std::isnan(total) ? NAN : static_cast<float>(total);
    }
};

// Accumulators between the issue of a wgmma and the wait for it. Their registers hold `in_flight_pattern` meanwhile.
struct InFlight {
    float* registers[warpgroup_threads];
    int count;                 // registers of a thread
    uint32_t last;             // number of the last wgmma that adds to them
    std::vector<float> value;  // [row][column]
    bool delivered[warpgroup_threads] = {};
    int deliveries = 0;
};

// A in registers that a wgmma still reads, as it was at its issue.
struct Reading {
    unsigned const* registers;
    unsigned words[registers_of_a];
    uint32_t number;
    int line;
};

struct Warpgroup {
    WgmmaRequest requests[warpgroup_threads];
    std::list<Reading> reading[warpgroup_threads];
    std::vector<int> waiting;
    int agent = -1;
    uint32_t issued = 0;
    std::list<InFlight> in_flight;
};

inline std::vector<Warpgroup> warpgroups;
inline TensorCore tensor_core;
inline Operand operand_a, operand_b;

inline void start_cluster_wgmma() { warpgroups.assign(machine.threads.size() / warpgroup_threads, Warpgroup{}); }

// Row and column of the accumulator's register i in a thread of the warpgroup.
inline size_t accumulator_index(int thread, int i, int columns) {
    int const row = 16 * (thread / warp_threads) + thread % warp_threads / 4 + 8 * (i / 2 % 2);
    int const column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
    return static_cast<size_t>(row * columns + column);
}

inline void expect_same(Warpgroup const& group, int first) {
    WgmmaRequest const& a = group.requests[0];
    for (int t = 1; t < warpgroup_threads; ++t) {
        WgmmaRequest const& b = group.requests[t];
        if (a.line != b.line || a.columns != b.columns || a.descriptor_a != b.descriptor_a || a.descriptor_b != b.descriptor_b ||
            a.accumulate != b.accumulate)
            fail(Error::descriptor, b.line,
                 "a warpgroup executes a wgmma as one, with the same operands: %s (line %d, descriptors %016llx and "
                 "%016llx) differs from %s (line %d, %016llx and %016llx)",
                 machine.name(first + t).c_str(), b.line, b.descriptor_a, b.descriptor_b, machine.name(first).c_str(), a.line,
                 a.descriptor_a, a.descriptor_b);
    }
}

// The accumulators of this request that are already in flight, or null if they are at rest.
inline InFlight* find_in_flight(Warpgroup& group, int first) {
    for (InFlight& entry : group.in_flight) {
        int same = 0, overlapping = 0;
        for (int t = 0; t < warpgroup_threads; ++t) {
            WgmmaRequest const& r = group.requests[t];
            same += entry.registers[t] == r.accumulators && entry.count == r.columns / 2 && !entry.delivered[t];
            overlapping += !entry.delivered[t] && entry.registers[t] < r.accumulators + r.columns / 2 &&
                           r.accumulators < entry.registers[t] + entry.count;
        }
        if (same == warpgroup_threads) return &entry;
        if (overlapping != 0)
            fail(Error::accumulator, group.requests[0].line,
                 "the accumulators of %s overlap those of a wgmma in flight without being the same, or not all threads waited "
                 "for it",
                 machine.warpgroup_name(first / warpgroup_threads).c_str());
    }
    return nullptr;
}

inline InFlight& start_flight(Warpgroup& group, int first) {
    WgmmaRequest const& request = group.requests[0];
    group.in_flight.emplace_back();
    InFlight& entry = group.in_flight.back();
    entry.count = request.columns / 2;
    entry.value.resize(static_cast<size_t>(wgmma_rows * request.columns));
    for (int t = 0; t < warpgroup_threads; ++t) {
        if (!machine.threads[first + t].wgmma_fenced)
            fail(Error::accumulator, request.line,
                 "%s issues a wgmma on accumulators that its own instructions may have touched, without wgmma_fence since",
                 machine.name(first + t).c_str());
        entry.registers[t] = group.requests[t].accumulators;
        if (request.accumulate) expect_set(entry.registers[t], entry.count, request.line);
        for (int i = 0; i < entry.count; ++i) {
            uint32_t bits;
            std::memcpy(&bits, &entry.registers[t][i], 4);
            if (request.accumulate && bits == in_flight_pattern) accumulator_in_flight(request.line);
            entry.value[accumulator_index(t, i, request.columns)] = entry.registers[t][i];
        }
        for (int i = 0; i < entry.count; ++i) std::memcpy(&entry.registers[t][i], &in_flight_pattern, 4);
    }
    return entry;
}

inline void start_reading(Warpgroup& group, int first) {
    read_registers(operand_a, group.requests);
    for (int t = 0; t < warpgroup_threads; ++t) {
        WgmmaRequest const& request = group.requests[t];
        if (!machine.threads[first + t].wgmma_fenced)
            fail(Error::accumulator, request.line,
                 "%s issues a wgmma on registers of A that its own instructions may have written, without wgmma_fence since",
                 machine.name(first + t).c_str());
        expect_set(request.registers_a, registers_of_a, request.line);
        Reading reading{request.registers_a, {}, group.issued, request.line};
        std::copy_n(request.registers_a, registers_of_a, reading.words);
        group.reading[t].push_back(reading);
    }
}

// Registers of A that wgmmas up to `complete` have read may change from now on; they must not have changed before.
inline void stop_reading(std::list<Reading>& readings, uint32_t complete) {
    while (!readings.empty() && readings.front().number <= complete) {
        Reading const& reading = readings.front();
        if (!std::equal(reading.words, reading.words + registers_of_a, reading.registers))
            fail(Error::accumulator, reading.line, "registers of A were written between the issue of this wgmma and the wait for it");
        readings.pop_front();
    }
}

inline void issue(Warpgroup& group, int first) {
    expect_same(group, first);
    WgmmaRequest const& request = group.requests[0];
    if (group.agent < 0) group.agent = shared.new_agent({Agent::wgmma, first / warpgroup_threads}, request.line);
    ++group.issued;
    AsyncAccess const access{machine.order.common(first, warpgroup_threads), group.agent, group.issued, request.line,
                             "the wgmma of " + machine.warpgroup_name(first / warpgroup_threads)};
    if (request.registers_a == nullptr)
        read_operand(operand_a, request.descriptor_a, wgmma_rows, request.major_a, access, 'A');
    else
        start_reading(group, first);
    read_operand(operand_b, request.descriptor_b, request.columns, request.major_b, access, 'B');
    InFlight* entry = find_in_flight(group, first);
    if (entry == nullptr) entry = &start_flight(group, first);
    entry->last = group.issued;
    if (request.input == WgmmaInput::bytes)
        return tensor_core.multiply_bytes(entry->value, operand_a, request.signed_a, operand_b, request.signed_b,
                                          request.accumulate != 0);
    split_operand(operand_a, request.input);
    split_operand(operand_b, request.input);
    tensor_core.multiply(entry->value, operand_a, operand_b, request.input, request.accumulate != 0);
}

inline void wgmma(WgmmaRequest const* request) {
    int const me = machine.running;
    int const index = me / warpgroup_threads;
    if (me % machine.block_threads / warpgroup_threads >= machine.block_threads / warpgroup_threads ||
        (machine.blocks() > 1 && machine.block_threads % warpgroup_threads != 0))
        fail(Error::misuse, request->line, "a wgmma needs a whole warpgroup of %d threads; the block has %d threads",
             warpgroup_threads, machine.block_threads);
    accumulators_exist = true;
    Warpgroup& group = warpgroups[index];
    group.requests[me % warpgroup_threads] = *request;
    ++machine.self().wgmmas;
    group.waiting.push_back(me);
    if (group.waiting.size() < warpgroup_threads) return machine.suspend({Wait::wgmma, index, 0, request->line});
    group.waiting.clear();
    issue(group, index * warpgroup_threads);
    for (int t = 0; t < warpgroup_threads; ++t) machine.make_ready(index * warpgroup_threads + t);
    machine.suspend({});
}

inline void wgmma_fence() { machine.self().wgmma_fenced = true; }

inline void wgmma_commit() { machine.self().wgmma_groups.push_back(machine.self().wgmmas); }

inline void deliver(InFlight& entry, int lane, int line) {
    for (int i = 0; i < entry.count; ++i) {
        uint32_t bits;
        std::memcpy(&bits, &entry.registers[lane][i], 4);
        if (bits != in_flight_pattern)
            fail(Error::accumulator, line,
                 "register %d of a wgmma accumulator was written between the issue of the wgmma and the wait for it", i);
        entry.registers[lane][i] = entry.value[accumulator_index(lane, i, 2 * entry.count)];
    }
    entry.delivered[lane] = true;
    ++entry.deliveries;
}

inline void wgmma_wait(int pending, int line) {
    Thread& thread = machine.self();
    auto const groups = static_cast<int>(thread.wgmma_groups.size());
    if (groups <= pending) return;
    uint32_t const complete = thread.wgmma_groups[groups - 1 - pending];
    Warpgroup& group = warpgroups[machine.running / warpgroup_threads];
    int const lane = machine.running % warpgroup_threads;
    if (group.agent >= 0) machine.order.learn(machine.running, group.agent, complete);
    stop_reading(group.reading[lane], complete);
    for (auto entry = group.in_flight.begin(); entry != group.in_flight.end();) {
        if (entry->last <= complete && !entry->delivered[lane]) {
            deliver(*entry, lane, line);
            thread.wgmma_fenced = false;
        }
        entry = entry->deliveries == warpgroup_threads ? group.in_flight.erase(entry) : std::next(entry);
    }
}

inline void expect_wgmmas_waited() {
    size_t const index = static_cast<size_t>(machine.running / warpgroup_threads);
    if (index >= warpgroups.size()) return;
    for (InFlight const& entry : warpgroups[index].in_flight)
        if (!entry.delivered[machine.running % warpgroup_threads])
            fail(Error::accumulator, 0, "returns while a wgmma of its warpgroup is in flight");
}

}  // namespace cb::emulator

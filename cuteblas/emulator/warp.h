// Instructions that a warp executes as one: ldmatrix, mma.sync and shuffles. The last lane to arrive does the work of all.
#pragma once

#include <cmath>
#include <vector>

#include "shared.h"
#include "wgmma.h"

namespace cb::emulator {

constexpr uint32_t matrix_row_bytes = 16;

// What one lane brings to a collective.
struct Lane {
    enum Kind { none, load, load_transposed, product, exchange } kind = none;
    uint32_t* to = nullptr;  // of a load or an exchange
    uint32_t row = 0;        // of a load: shared offset of the row that the lane addresses
    MmaRequest mma{};
    int line = 0;
    int mask = 0;  // of an exchange
};

struct Warp {
    Lane lanes[warp_threads];
    int arrived = 0;
};

inline std::vector<Warp> warps;

inline void start_cluster_warps() { warps.assign(machine.threads.size() / warp_threads, Warp{}); }

inline void expect_same(Warp const& warp, int first) {
    Lane const& a = warp.lanes[0];
    for (int i = 1; i < warp_threads; ++i)
        if (Lane const& b = warp.lanes[i]; a.kind != b.kind || a.line != b.line || a.mma.m != b.mma.m || a.mma.n != b.mma.n ||
                                           a.mma.k != b.mma.k || a.mma.input != b.mma.input || a.mask != b.mask)
            fail(Error::barrier, b.line,
                 "a warp executes ldmatrix, mma.sync and shuffles as one, but %s is at line %d and %s at line %d",
                 machine.name(first).c_str(), a.line, machine.name(first + i).c_str(), b.line);
}

// Waits for the whole warp; `work` runs once, in the last lane to arrive.
template <class Work>
void collective(Lane const& lane, Work work) {
    int const me = machine.running;
    int const index = me / warp_threads;
    if (me % machine.block_threads / warp_threads >= machine.block_threads / warp_threads)
        fail(Error::misuse, lane.line, "ldmatrix, mma.sync and shuffles need a whole warp of %d threads; the block has %d threads",
             warp_threads, machine.block_threads);
    Warp& warp = warps[index];
    warp.lanes[me % warp_threads] = lane;
    if (++warp.arrived < warp_threads) return machine.suspend({Wait::collective, index, 0, lane.line});
    warp.arrived = 0;
    expect_same(warp, index * warp_threads);
    work(warp);
    for (int i = 0; i < warp_threads; ++i) machine.make_ready(index * warp_threads + i);
    machine.suspend({});
}

// Each lane reads the row that it addresses (checked like any other read); the elements go to the lanes as PTX ISA, "ldmatrix" says.
inline void distribute(Warp& warp) {
    bool const transposed = warp.lanes[0].kind == Lane::load_transposed;
    for (int l = 0; l < warp_threads; ++l)
        for (int matrix = 0; matrix < 4; ++matrix) {
            auto const element = [&](int row, int column) {
                uint16_t bits;
                std::memcpy(&bits, shared.data + warp.lanes[8 * matrix + row].row + 2 * column, 2);
                return static_cast<uint32_t>(bits);
            };
            int const along = 2 * (l % 4), across = l / 4;
            warp.lanes[l].to[matrix] = transposed ? element(along, across) | element(along + 1, across) << 16
                                                  : element(across, along) | element(across, along + 1) << 16;
        }
}

inline void ldmatrix(unsigned* to, void const* from, bool transposed, int line) {
    uint32_t const offset = shared.locate(from, matrix_row_bytes, matrix_row_bytes, "reads", line);
    shared.read(machine.running, offset, matrix_row_bytes, line);
    if (machine.launch->counting) counts.note(true, false, matrix_row_bytes, line, offset);
    collective({transposed ? Lane::load_transposed : Lane::load, to, offset, {}, line}, distribute);
}

// Where the registers of mma.sync keep their elements (PTX ISA, "Matrix Fragments for mma"): lane l, value v. An operand with
// `packed` elements in a register has rows l / 4 and, counted by registers, 8 rows further, then the next k.
struct Position {
    int row, column;
};

inline Position operand_position(int lane, int value, int rows, int packed) {
    int const word = value / packed, blocks = rows / 8;
    return {lane / 4 + 8 * (word % blocks), packed * (lane % 4) + value % packed + 4 * packed * (word / blocks)};
}

inline Position accumulator_position(int lane, int value) { return {lane / 4 + 8 * (value / 2), 2 * (lane % 4) + value % 2}; }

template <class T>
std::vector<T> gather_operand(Warp const& warp, void const* MmaRequest::*registers, int rows, int depth, int packed) {
    std::vector<T> matrix(static_cast<size_t>(rows * depth));
    for (int l = 0; l < warp_threads; ++l)
        for (int v = 0; v < rows * depth / warp_threads; ++v) {
            auto const [row, k] = operand_position(l, v, rows, packed);
            matrix[static_cast<size_t>(row * depth + k)] = static_cast<T const*>(warp.lanes[l].mma.*registers)[v];
        }
    return matrix;
}

template <class T>
void gather_accumulators(std::vector<T>& c, Warp const& warp) {
    MmaRequest const& shape = warp.lanes[0].mma;
    c.resize(static_cast<size_t>(shape.m * shape.n));
    for (int l = 0; l < warp_threads; ++l)
        for (int v = 0; v < shape.m * shape.n / warp_threads; ++v) {
            auto const [row, column] = accumulator_position(l, v);
            c[static_cast<size_t>(row * shape.n + column)] = static_cast<T const*>(warp.lanes[l].mma.d)[v];
        }
}

template <class T>
void scatter_accumulators(std::vector<T> const& c, Warp const& warp) {
    MmaRequest const& shape = warp.lanes[0].mma;
    for (int l = 0; l < warp_threads; ++l)
        for (int v = 0; v < shape.m * shape.n / warp_threads; ++v) {
            auto const [row, column] = accumulator_position(l, v);
            static_cast<T*>(warp.lanes[l].mma.d)[v] = c[static_cast<size_t>(row * shape.n + column)];
        }
}

// 16-bit operands go through the model of wgmma: one aligned, truncating sum of 16 products, of which k8 uses half.
inline void multiply_floats(Warp& warp) {
    MmaRequest const& shape = warp.lanes[0].mma;
    WgmmaInput const input = shape.input == MmaInput::half ? WgmmaInput::half : WgmmaInput::bfloat16;
    auto const load = [&](Operand& operand, void const* MmaRequest::*registers, int rows) {
        std::vector<uint16_t> const matrix = gather_operand<uint16_t>(warp, registers, rows, shape.k, 2);
        operand.rows = rows;
        operand.bits.assign(static_cast<size_t>(rows * wgmma_depth), 0);
        for (int row = 0; row < rows; ++row)
            std::copy_n(&matrix[static_cast<size_t>(row * shape.k)], shape.k, &operand.bits[static_cast<size_t>(row * wgmma_depth)]);
        split_operand(operand, input);
    };
    load(operand_a, &MmaRequest::a, shape.m);
    load(operand_b, &MmaRequest::b, shape.n);
    static std::vector<float> c;
    gather_accumulators(c, warp);
    tensor_core.multiply(c, operand_a, operand_b, input, true);
    scatter_accumulators(c, warp);
}

// Sequential in k: 64-bit products are fused into the sum, integers wrap.
template <class T, class In, class Step>
void multiply_in_order(Warp& warp, int packed, Step step) {
    MmaRequest const& shape = warp.lanes[0].mma;
    std::vector<In> const a = gather_operand<In>(warp, &MmaRequest::a, shape.m, shape.k, packed);
    std::vector<In> const b = gather_operand<In>(warp, &MmaRequest::b, shape.n, shape.k, packed);
    static std::vector<T> c;
    gather_accumulators(c, warp);
    for (int row = 0; row < shape.m; ++row)
        for (int column = 0; column < shape.n; ++column) {
            T& sum = c[static_cast<size_t>(row * shape.n + column)];
            for (int k = 0; k < shape.k; ++k)
                sum = step(sum, a[static_cast<size_t>(row * shape.k + k)], b[static_cast<size_t>(column * shape.k + k)]);
        }
    scatter_accumulators(c, warp);
}

inline void multiply(Warp& warp) {
    switch (warp.lanes[0].mma.input) {
        case MmaInput::half:
        case MmaInput::bfloat16: return multiply_floats(warp);
        case MmaInput::int8:
            return multiply_in_order<uint32_t, int8_t>(
                warp, 4, [](uint32_t c, int8_t a, int8_t b) { return c + static_cast<uint32_t>(a * b); });
        case MmaInput::uint8:
            return multiply_in_order<uint32_t, uint8_t>(
                warp, 4, [](uint32_t c, uint8_t a, uint8_t b) { return c + static_cast<uint32_t>(a * b); });
        case MmaInput::float64:
            return multiply_in_order<double, double>(warp, 1, [](double c, double a, double b) { return std::fma(a, b, c); });
    }
}

// Every lane gets the value of the lane whose number differs in the bits of the mask.
inline void exchange_values(Warp& warp) {
    uint32_t given[warp_threads];
    for (int l = 0; l < warp_threads; ++l) given[l] = *warp.lanes[l].to;
    for (int l = 0; l < warp_threads; ++l) *warp.lanes[l].to = given[l ^ warp.lanes[l].mask];
}

inline unsigned exchange(unsigned value, int mask, int line) {
    if (mask < 0 || mask >= warp_threads) fail(Error::misuse, line, "a shuffle's mask is 0 to %d, got %d", warp_threads - 1, mask);
    uint32_t bits = value;
    collective({Lane::exchange, &bits, 0, {}, line, mask}, exchange_values);
    return bits;
}

// A lane's registers; those of float64 have two words.
inline void mma(MmaRequest const* request) {
    int const packed = request->input == MmaInput::int8 || request->input == MmaInput::uint8 ? 4 : request->input == MmaInput::float64 ? 1 : 2;
    int const words = request->input == MmaInput::float64 ? 2 : 1;
    expect_set(request->a, words * request->m * request->k / warp_threads / packed, request->line);
    expect_set(request->b, words * request->n * request->k / warp_threads / packed, request->line);
    expect_set(request->d, words * request->m * request->n / warp_threads, request->line);
    collective({Lane::product, nullptr, 0, *request, request->line}, multiply);
}

}  // namespace cb::emulator

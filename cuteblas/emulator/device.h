// The host side of the device functions: what generated kernel bodies call when they run in the emulator. Every access, barrier and
// asynchronous operation goes to the runtime, which checks it; arithmetic is done here.
#pragma once

#include "interface.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__

static cb::emulator::Extent3 threadIdx, blockIdx, blockDim, gridDim;
static cb::emulator::Runtime const* cuteblas_runtime;

extern "C" __attribute__((visibility("default"))) void cuteblas_bind(cb::emulator::Runtime const* runtime,
                                                                     cb::emulator::Coordinates* coordinates) {
    cuteblas_runtime = runtime;
    *coordinates = {&threadIdx, &blockIdx, &blockDim, &gridDim};
}

// What the compiler calls where the checks find something that it was told to look for (kernel.py). The first argument describes it.
struct CuteblasFound {
    char const* file;
    unsigned line, column;
    struct Type {
        unsigned short kind, info;
        char name[1];
    } const* type;
};
#define CB_FOUND(name, kind, index, type, ...)                                                                        \
    extern "C" __attribute__((visibility("hidden"), noinline)) void __ubsan_handle_##name(CuteblasFound const* found, __VA_ARGS__) { \
        cuteblas_runtime->undefined(cb::emulator::Undefined::kind, found->file, static_cast<int>(found->line), index, type); \
    }
CB_FOUND(out_of_bounds, index, static_cast<int>(value), found->type->name, unsigned long value)
CB_FOUND(type_mismatch_v1, access, 0, found->type->name, unsigned long)
CB_FOUND(divrem_overflow, division, 0, "", unsigned long, unsigned long)
CB_FOUND(shift_out_of_bounds, shift, 0, "", unsigned long, unsigned long)
#undef CB_FOUND

namespace cb {

using uint = unsigned;
using uint64 = unsigned long long;

struct half {
    unsigned short bits;
};

struct bfloat16 {
    unsigned short bits;
};

template <class T>
struct alignas(2 * sizeof(T)) complex {
    T re, im;
};

struct alignas(16) b128 {
    unsigned words[4];
};

// The line of a body on which a function is called, as a default argument. A type of its own, so that no int converts to it.
struct Site {
    int line;
};

namespace detail {

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

template <bool>
struct enable_if {};
template <>
struct enable_if<true> {
    using type = int;
};
template <bool Condition>
using enable = typename enable_if<Condition>::type;

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<complex<T>> = true;

template <class T>
constexpr bool is_float8 = false;

template <class T>
constexpr bool is_integer = same<T, signed char> || same<T, unsigned char> || same<T, short> || same<T, unsigned short> ||
                            same<T, int> || same<T, unsigned> || same<T, long long> || same<T, unsigned long long>;

template <class To, class From>
[[gnu::always_inline]] inline To bit_cast(From const& value) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To result;
    __builtin_memcpy(&result, &value, sizeof(To));
    return result;
}

inline float to_float(half value) {
    uint const sign = uint(value.bits & 0x8000u) << 16;
    uint const magnitude = value.bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // A half's exponent and significand, read as those of a float, are 2^112 too small; the product is exact, for subnormals too.
    return bit_cast<float>(sign | bit_cast<uint>(bit_cast<float>(magnitude << 13) * 0x1p112f));
}

inline float to_float(bfloat16 value) { return bit_cast<float>(uint(value.bits) << 16); }

inline half to_half(float value) {
    uint const bits = bit_cast<uint>(value);
    unsigned short const sign = static_cast<unsigned short>(bits >> 16 & 0x8000u);
    uint const magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {0x7fff};
    if (magnitude >= 0x477ff000u) return {static_cast<unsigned short>(sign | 0x7c00u)};  // rounds to 2^16 or more
    if (magnitude < 0x38800000u) {  // subnormal half: adding 0.5 leaves it, rounded, in the low bits of the significand
        uint const rounded = bit_cast<uint>(bit_cast<float>(magnitude) + 0.5f) - bit_cast<uint>(0.5f);
        return {static_cast<unsigned short>(sign | rounded)};
    }
    uint const rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u);
    return {static_cast<unsigned short>(sign | rounded >> 13)};
}

inline bfloat16 to_bfloat16(float value) {
    uint const bits = bit_cast<uint>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<unsigned short>(bits >> 16 | 0x40u)};
    return {static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

// A float that rounds to any shorter format as the value itself does: if the value is not a float, the neighbour towards zero or away
// from it whose last bit is set.
inline float round_to_odd(double value) {
    float const nearest = static_cast<float>(value);
    double const back = nearest;
    if (back == value || value != value) return nearest;
    uint const bits = bit_cast<uint>(nearest);
    return bit_cast<float>((bits - (__builtin_fabs(back) > __builtin_fabs(value) ? 1u : 0u)) | 1u);
}

// A real number as float or double, exactly where the type can hold it.
template <class Real, class T>
Real real_number(T const& value) {
    if constexpr (same<T, half> || same<T, bfloat16>) {
        return to_float(value);
    } else {
        return static_cast<Real>(value);
    }
}

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

// An accumulator that a wgmma has not delivered yet must not be used.
template <class T>
void expect_delivered(T const& value, Site site) {
    if constexpr (same<T, float> || same<T, int>) {
        if (bit_cast<uint>(value) == emulator::in_flight_pattern) cuteblas_runtime->accumulator_in_flight(site.line);
    }
}

// Whether a value is what a register holds before it is set. Real types may have changed its sign.
template <class T>
[[gnu::always_inline]] inline bool is_unset(T const& value) {
    if constexpr (is_complex<T>) {
        return is_unset(value.re) || is_unset(value.im);
    } else if constexpr (sizeof(T) == 8) {
        constexpr uint64 pattern = uint64(emulator::unset_pattern) << 32 | emulator::unset_pattern;
        uint64 const bits = bit_cast<uint64>(value);
        return bits == pattern || (same<T, double> && bits == (pattern ^ 1ull << 63));
    } else if constexpr (sizeof(T) == 4) {
        uint const bits = bit_cast<uint>(value);
        return bits == emulator::unset_pattern || (same<T, float> && bits == (emulator::unset_pattern ^ 1u << 31));
    } else {
        return false;
    }
}

template <class T>
[[gnu::always_inline]] inline void expect_set(T const& value, Site site) {
    if (is_unset(value)) cuteblas_runtime->register_unset(site.line);
}

// Shorter types are looked at by the word. Shared memory may get what is not set, as of rows that do not exist; it is the same there.
template <int N, class T>
[[gnu::always_inline]] inline void expect_all_set(T const* r, Site site) {
    if constexpr (sizeof(T) == 16 && !is_complex<T>) {
        struct Halves {
            uint64 half[2];
        };
        for (int i = 0; i < N; ++i)
            for (uint64 half : bit_cast<Halves>(r[i]).half) expect_set(half, site);
    } else if constexpr (sizeof(T) >= 4) {
        for (int i = 0; i < N; ++i) expect_set(r[i], site);
    } else if constexpr (N * sizeof(T) >= 4) {
        for (unsigned i = 0; i < N * sizeof(T); i += 4) {
            uint word;
            __builtin_memcpy(&word, reinterpret_cast<char const*>(r) + i, 4);
            expect_set(word, site);
        }
    }
}

template <int N, class T>
constexpr int access_bytes() {
    constexpr int bytes = N * int(sizeof(T));
    static_assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16, "one access moves 1, 2, 4, 8 or 16 bytes");
    return bytes;
}

// Whether there are so many registers from here on, as far as the compiler knows: so it must be inlined, and what calls it too.
template <int N, class T>
[[gnu::always_inline]] inline void expect_room(T const* r, Site site) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_dynamic_object_size)
    if (__builtin_dynamic_object_size(r, 0) < N * sizeof(T)) cuteblas_runtime->past_registers(N * sizeof(T), site.line);
#endif
#endif
}

template <int N, class T>
void clear(T* r) {
    __builtin_memset(static_cast<void*>(r), 0, N * sizeof(T));
}

// Memory may hold any byte for true; bools in registers are 0 and 1.
template <int N, class T>
void normalise(T* r) {
    if constexpr (same<T, bool>)
        for (int i = 0; i < N; ++i) r[i] = bit_cast<unsigned char>(r[i]) != 0;
}

}  // namespace detail

// What follows each declaration of registers (kernel.py).
template <class T, unsigned long N>
void unset(T (&r)[N]) {
    for (unsigned long i = 0; i < sizeof(r); i += 4)
        __builtin_memcpy(reinterpret_cast<char*>(r) + i, &emulator::unset_pattern, sizeof(r) - i < 4 ? sizeof(r) - i : 4);
}

#define CB_SITE Site site = {__builtin_LINE()}
#define CB_INLINE [[gnu::always_inline]] inline

// Ordinary memory

template <int N, class T>
CB_INLINE void load_global(T* r, T const* g, CB_SITE) {
    detail::expect_room<N>(r, site);
    cuteblas_runtime->load_global(r, g, detail::access_bytes<N, T>(), site.line);
    detail::normalise<N>(r);
}

template <int N, class T>
CB_INLINE void load_global(T* r, T const* g, bool p, CB_SITE) {
    detail::expect_room<N>(r, site);
    if (p) return load_global<N, T>(r, g, site);
    detail::clear<N>(r);
    cuteblas_runtime->inactive(false, false, detail::access_bytes<N, T>(), site.line);
}

template <int N, class T>
CB_INLINE void store_global(T* g, T const* r, CB_SITE) {
    detail::expect_room<N>(r, site);
    detail::expect_all_set<N>(r, site);
    cuteblas_runtime->store_global(g, r, detail::access_bytes<N, T>(), site.line);
}

template <int N, class T>
CB_INLINE void store_global(T* g, T const* r, bool p, CB_SITE) {
    detail::expect_room<N>(r, site);
    if (p) return store_global<N, T>(g, r, site);
    cuteblas_runtime->inactive(false, true, detail::access_bytes<N, T>(), site.line);
}

template <int N, class T>
CB_INLINE void load_shared(T* r, T const* s, CB_SITE) {
    detail::expect_room<N>(r, site);
    cuteblas_runtime->load_shared(r, s, detail::access_bytes<N, T>(), site.line);
    detail::normalise<N>(r);
}

template <int N, class T>
CB_INLINE void load_covering(T* r, T const* s, CB_SITE) {
    detail::expect_room<N>(r, site);
    cuteblas_runtime->load_covering(r, s, detail::access_bytes<N, T>(), site.line);
    detail::normalise<N>(r);
}

template <int N, class T>
CB_INLINE void store_shared(T* s, T const* r, CB_SITE) {
    detail::expect_room<N>(r, site);
    cuteblas_runtime->store_shared(s, r, detail::access_bytes<N, T>(), site.line);
}

inline void load_shared_between(uint& r, uint const* s, int bits, CB_SITE) {
    uint words[2];
    for (int i = 0; i < 2; ++i) load_shared<1>(words + i, s + i, site);
    r = uint((static_cast<unsigned long long>(words[1]) << 32 | words[0]) >> (bits & 31));
}

inline void load_shared_pair(uint& r, unsigned short const* first, unsigned short const* second, CB_SITE) {
    unsigned short halves[2];
    load_shared<1>(halves, first, site);
    load_shared<1>(halves + 1, second, site);
    r = uint(halves[0]) | uint(halves[1]) << 16;
}

template <class T>
T* shared_memory(int byte_offset) {
    return reinterpret_cast<T*>(emulator::shared_window + emulator::shared_start + byte_offset);
}

template <class T>
T* settled(T* g) {
    return g;
}

template <class To, int Bytes, class From>
To* aligned_down(From* g) {
    return reinterpret_cast<To*>((reinterpret_cast<uint64>(g) & ~static_cast<uint64>(Bytes - 1)) | emulator::covering);
}

inline uint between_words(uint first, uint second, int bits) {
    return uint((static_cast<unsigned long long>(second) << 32 | first) >> (bits & 31));
}

inline uint load_flag(uint const* g, CB_SITE) { return cuteblas_runtime->load_flag(g, site.line); }
inline void store_flag(uint* g, uint v, CB_SITE) { cuteblas_runtime->store_flag(g, v, site.line); }
// No other thread runs between the two: a look lets them run before it.
inline uint count_arrival(uint* g, CB_SITE) {
    uint const before = cuteblas_runtime->load_flag(g, site.line);
    cuteblas_runtime->store_flag(g, before + 1, site.line);
    return before;
}

// Warp-wide matrix loads and products

template <class T>
CB_INLINE void ldmatrix_x4(uint* r, T const* s, CB_SITE) {
    detail::expect_room<4>(r, site);
    cuteblas_runtime->ldmatrix(r, s, false, site.line);
}

template <class T>
CB_INLINE void ldmatrix_x4_trans(uint* r, T const* s, CB_SITE) {
    detail::expect_room<4>(r, site);
    cuteblas_runtime->ldmatrix(r, s, true, site.line);
}

#define CB_MMA(M, N, K, IN, INPUT, ACCUMULATOR, REGISTER)                                                                     \
    template <class In, detail::enable<detail::same<In, IN>> = 0>                                                            \
    CB_INLINE void mma_m##M##n##N##k##K(ACCUMULATOR* d, REGISTER const* a, REGISTER const* b, CB_SITE) {                     \
        detail::expect_room<M * N / 32>(d, site);                                                                            \
        detail::expect_room<M * K * sizeof(IN) / 32 / sizeof(REGISTER)>(a, site);                                            \
        detail::expect_room<N * K * sizeof(IN) / 32 / sizeof(REGISTER)>(b, site);                                            \
        emulator::MmaRequest const request = {M, N, K, emulator::MmaInput::INPUT, d, a, b, site.line};                       \
        cuteblas_runtime->mma(&request);                                                                                     \
    }
CB_MMA(16, 8, 8, half, half, float, uint)
CB_MMA(16, 8, 16, half, half, float, uint)
CB_MMA(16, 8, 8, bfloat16, bfloat16, float, uint)
CB_MMA(16, 8, 16, bfloat16, bfloat16, float, uint)
CB_MMA(16, 8, 32, signed char, int8, int, uint)
CB_MMA(16, 8, 32, unsigned char, uint8, int, uint)
CB_MMA(8, 8, 4, double, float64, double, double)
CB_MMA(16, 8, 4, double, float64, double, double)
CB_MMA(16, 8, 8, double, float64, double, double)
CB_MMA(16, 8, 16, double, float64, double, double)
#undef CB_MMA

// A complex number is the real matrix ((re, -im), (im, re)): products of 16 x 8 x 8 or 16 x 8 x 16.
template <bool ConjB = false>
CB_INLINE void complex_mma_m8n8k4(complex<double>* d, complex<double> const* a, complex<double> const* b, CB_SITE) {
    detail::expect_room<2>(d, site);
    detail::expect_room<1>(a, site);
    detail::expect_room<1>(b, site);
    double const matrix[4] = {a->re, a->im, ConjB ? a->im : -a->im, ConjB ? -a->re : a->re};
    double const vector[2] = {b->re, b->im};
    double sums[4] = {d[0].re, d[1].re, d[0].im, d[1].im};
    mma_m16n8k8<double>(sums, matrix, vector, site);
    d[0] = complex<double>{sums[0], sums[2]};
    d[1] = complex<double>{sums[1], sums[3]};
}

template <bool ConjB = false>
CB_INLINE void complex_mma_m8n8k8(complex<double>* d, complex<double> const* a, complex<double> const* b, CB_SITE) {
    detail::expect_room<2>(d, site);
    detail::expect_room<2>(a, site);
    detail::expect_room<2>(b, site);
    double const matrix[8] = {a[0].re, a[0].im, ConjB ? a[0].im : -a[0].im, ConjB ? -a[0].re : a[0].re,
                              a[1].re, a[1].im, ConjB ? a[1].im : -a[1].im, ConjB ? -a[1].re : a[1].re};
    double const vector[4] = {b[0].re, b[0].im, b[1].re, b[1].im};
    double sums[4] = {d[0].re, d[1].re, d[0].im, d[1].im};
    mma_m16n8k16<double>(sums, matrix, vector, site);
    d[0] = complex<double>{sums[0], sums[2]};
    d[1] = complex<double>{sums[1], sums[3]};
}

// Products of planes of bfloat16: six, the smallest first, added to the total once.
template <class T>
CB_INLINE void expect_planes(T const* d, uint const* a, uint const* b, Site site) {
    detail::expect_room<4>(d, site);
    detail::expect_room<12>(a, site);
    detail::expect_room<6>(b, site);
}
inline void planes_mma_m16n8k16(float (&sums)[4], uint const* a, uint const* b, Site site) {
    constexpr int order[6][2] = {{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};
    for (auto const& planes : order) mma_m16n8k16<bfloat16>(sums, a + 4 * planes[0], b + 2 * planes[1], site);
}
CB_INLINE void split_mma_m16n8k16(float* d, uint const* a, uint const* b, CB_SITE) {
    expect_planes(d, a, b, site);
    float sums[4] = {0, 0, 0, 0};
    planes_mma_m16n8k16(sums, a, b, site);
    for (int i = 0; i < 4; ++i) d[i] += sums[i];
}

template <bool ConjB = false>
CB_INLINE void split_complex_mma_m16n8k8(complex<float>* d, uint const* a, uint const* b, CB_SITE) {
    expect_planes(d, a, b, site);
    uint other[6];
    float sums[4] = {0, 0, 0, 0};
    for (int i = 0; i < 6; ++i) other[i] = ConjB ? b[i] : b[i] ^ 0x80000000u;                        // (re, -im)
    planes_mma_m16n8k16(sums, a, other, site);
    for (int i = 0; i < 4; ++i) {
        d[i].re += sums[i];
        sums[i] = 0;
    }
    for (int i = 0; i < 6; ++i) other[i] = (b[i] & 0xffffu) << 16 | (b[i] >> 16 ^ (ConjB ? 0x8000u : 0u));    // (im, re)
    planes_mma_m16n8k16(sums, a, other, site);
    for (int i = 0; i < 4; ++i) d[i].im += sums[i];
}

// Asynchronous copies

template <int N, class T>
void cp_async(T* s, T const* g, bool p, CB_SITE) {
    constexpr int bytes = detail::access_bytes<N, T>();
    if constexpr (bytes >= 4) {
        cuteblas_runtime->cp_async(s, g, bytes, p, site.line);
    } else {
        T r[N];
        load_global<N, T>(r, g, p, site);
        store_shared<N, T>(s, r, site);
    }
}

template <int N, class T>
void cp_async_part(T* s, T const* g, int bytes, CB_SITE) {
    static_assert(N == 1 && sizeof(T) == 4, "a word is copied in part");
    cuteblas_runtime->cp_async_part(s, g, sizeof(T), bytes, site.line);
}

inline void cp_async_commit() { cuteblas_runtime->cp_async_commit(); }

template <int N>
void cp_async_wait() {
    cuteblas_runtime->cp_async_wait(N);
}

// Barriers

inline void syncthreads(CB_SITE) { cuteblas_runtime->syncthreads(site.line); }

inline bool syncthreads_or(bool x, CB_SITE) { return cuteblas_runtime->syncthreads_or(x, site.line); }
inline void syncwarp(CB_SITE) { cuteblas_runtime->syncwarp(site.line); }
template <class T>
T shuffle_xor(T x, int mask, CB_SITE) {
    detail::expect_set(x, site);
    uint words[(sizeof(T) + 3) / 4] = {};
    __builtin_memcpy(words, &x, sizeof(T));
    for (uint& word : words) word = cuteblas_runtime->exchange(word, mask, site.line);
    __builtin_memcpy(&x, words, sizeof(T));
    return x;
}
inline void cluster_sync(CB_SITE) { cuteblas_runtime->cluster_sync(false, site.line); }
inline void cluster_sync_ordered(CB_SITE) { cuteblas_runtime->cluster_sync(true, site.line); }
inline void named_barrier_sync(int id, int threads, CB_SITE) { cuteblas_runtime->named_barrier(id, threads, true, site.line); }
inline void named_barrier_arrive(int id, int threads, CB_SITE) { cuteblas_runtime->named_barrier(id, threads, false, site.line); }

inline void mbarrier_init(uint64* bar, int count, CB_SITE) { cuteblas_runtime->mbarrier_init(bar, count, site.line); }
inline void mbarrier_init_fence() { cuteblas_runtime->fence_proxy_async(); }
inline void mbarrier_arrive(uint64* bar, CB_SITE) { cuteblas_runtime->mbarrier_arrive(bar, 0, site.line); }
inline void mbarrier_arrive_expect_tx(uint64* bar, int bytes, CB_SITE) { cuteblas_runtime->mbarrier_arrive(bar, bytes, site.line); }
inline void mbarrier_arrive_at(uint64* bar, int rank, CB_SITE) { cuteblas_runtime->mbarrier_arrive_at(bar, rank, site.line); }
inline void mbarrier_wait(uint64* bar, int parity, CB_SITE) { cuteblas_runtime->mbarrier_wait(bar, parity, site.line); }
template <class T>
void store_async(T* to, T value, int rank, uint64* bar, CB_SITE) {
    static_assert(sizeof(T) == sizeof(uint));
    detail::expect_set(value, site);
    cuteblas_runtime->store_async(to, detail::bit_cast<uint>(value), rank, bar, site.line);
}
inline void next_launch_may_begin() {}
inline void wait_for_launch_before() {}  // launches run one after the other
inline void fence_proxy_async() { cuteblas_runtime->fence_proxy_async(); }

// TMA. One overload per rank: the line is a default argument, which cannot follow a parameter pack.

inline void tma_prefetch(TensorMap const*) {}

#define CB_TMA(RANK, PARAMETERS, ...)                                                \
    template <class T>                                                               \
    void tma_load(T* smem, TensorMap const* map, uint64* bar, PARAMETERS, CB_SITE) { \
        int const coordinates[] = {__VA_ARGS__};                                     \
        cuteblas_runtime->tma_load(smem, map, bar, RANK, coordinates, site.line);    \
    }                                                                                \
    template <class T>                                                               \
    void tma_load_multicast(T* smem, TensorMap const* map, uint64* bar, int mask, PARAMETERS, CB_SITE) { \
        int const coordinates[] = {__VA_ARGS__};                                     \
        cuteblas_runtime->tma_load_multicast(smem, map, bar, mask, RANK, coordinates, site.line); \
    }                                                                                \
    template <class T>                                                               \
    void tma_store(TensorMap const* map, T const* smem, PARAMETERS, CB_SITE) {       \
        int const coordinates[] = {__VA_ARGS__};                                     \
        cuteblas_runtime->tma_store(map, smem, RANK, coordinates, site.line);        \
    }
#define CB_LIST(...) __VA_ARGS__
CB_TMA(1, CB_LIST(int c0), c0)
CB_TMA(2, CB_LIST(int c0, int c1), c0, c1)
CB_TMA(3, CB_LIST(int c0, int c1, int c2), c0, c1, c2)
CB_TMA(4, CB_LIST(int c0, int c1, int c2, int c3), c0, c1, c2, c3)
CB_TMA(5, CB_LIST(int c0, int c1, int c2, int c3, int c4), c0, c1, c2, c3, c4)
#undef CB_LIST
#undef CB_TMA

inline void tma_store_commit() { cuteblas_runtime->tma_store_commit(); }

template <int N>
void tma_store_wait_read() {
    cuteblas_runtime->tma_store_wait(N, false);
}

template <int N>
void tma_store_wait() {
    cuteblas_runtime->tma_store_wait(N, true);
}

// wgmma

inline uint64 wgmma_descriptor(void const* smem, int leading_bytes, int stride_bytes, int swizzle, CB_SITE) {
    return cuteblas_runtime->wgmma_descriptor(smem, leading_bytes, stride_bytes, swizzle, site.line);
}

// The start-address field has 14 bits; a carry out of it would spoil the field above, as on the device.
inline uint64 wgmma_descriptor_advance(uint64 descriptor, int bytes) { return descriptor + static_cast<uint64>(bytes >> 4); }

inline void wgmma_fence() { cuteblas_runtime->wgmma_fence(); }
inline void wgmma_commit() { cuteblas_runtime->wgmma_commit(); }

template <int N>
void wgmma_wait(CB_SITE) {
    cuteblas_runtime->wgmma_wait(N, site.line);
}

template <int N, class In, int MajorA, int MajorB>
void wgmma_m64k16(float (&d)[N / 2], uint64 descriptor_a, uint64 descriptor_b, int accumulate, CB_SITE) {
    static_assert(N % 8 == 0 && 8 <= N && N <= 256, "the columns of a wgmma are a multiple of 8 up to 256");
    static_assert(detail::same<In, half> || detail::same<In, bfloat16>, "the operands of a wgmma are half or bfloat16");
    constexpr auto input = detail::same<In, half> ? emulator::WgmmaInput::half : emulator::WgmmaInput::bfloat16;
    emulator::WgmmaRequest const request = {d, N, input, MajorA, MajorB, descriptor_a, descriptor_b, nullptr, accumulate, site.line, false, false};
    cuteblas_runtime->wgmma(&request);
}

template <int N>
void wgmma_m64k8_tf32(float (&d)[N / 2], uint64 descriptor_a, uint64 descriptor_b, int accumulate, CB_SITE) {
    static_assert(N % 8 == 0 && 8 <= N && N <= 256, "the columns of a wgmma are a multiple of 8 up to 256");
    auto const input = emulator::WgmmaInput::tfloat32;
    emulator::WgmmaRequest const request = {d, N, input, 0, 0, descriptor_a, descriptor_b, nullptr, accumulate, site.line, false, false};
    cuteblas_runtime->wgmma(&request);
}

template <int N, class A, class B>
void wgmma_m64k32(int (&d)[N / 2], uint64 descriptor_a, uint64 descriptor_b, int accumulate, CB_SITE) {
    static_assert((N % 16 == 0 || N == 8 || N == 24) && 8 <= N && N <= 256,
                  "the columns of a wgmma of bytes are 8, 24 or a multiple of 16 up to 256");
    constexpr bool signed_a = detail::same<A, signed char>, signed_b = detail::same<B, signed char>;
    static_assert(signed_a || detail::same<A, unsigned char>, "the operands of this wgmma are signed or unsigned bytes");
    static_assert(signed_b || detail::same<B, unsigned char>, "the operands of this wgmma are signed or unsigned bytes");
    emulator::WgmmaRequest const request = {reinterpret_cast<float*>(d), N, emulator::WgmmaInput::bytes, 0, 0,
                                            descriptor_a, descriptor_b, nullptr, accumulate, site.line, signed_a, signed_b};
    cuteblas_runtime->wgmma(&request);
}

template <int N, class In, int MajorB>
void wgmma_m64k16_rs(float (&d)[N / 2], uint const (&a)[4], uint64 descriptor_b, int accumulate, CB_SITE) {
    static_assert(N % 8 == 0 && 8 <= N && N <= 256, "the columns of a wgmma are a multiple of 8 up to 256");
    static_assert(detail::same<In, half> || detail::same<In, bfloat16>, "the operands of a wgmma are half or bfloat16");
    constexpr auto input = detail::same<In, half> ? emulator::WgmmaInput::half : emulator::WgmmaInput::bfloat16;
    emulator::WgmmaRequest const request = {d, N, input, 0, MajorB, 0, descriptor_b, a, accumulate, site.line, false, false};
    cuteblas_runtime->wgmma(&request);
}

template <int R>
void setmaxnreg_inc() {
    static_assert(R % 8 == 0 && 24 <= R && R <= 256, "setmaxnreg takes a multiple of 8 from 24 to 256");
}

template <int R>
void setmaxnreg_dec() {
    setmaxnreg_inc<R>();
}

// Arithmetic

template <class T>
T zero() {
    return T{};
}

template <class T>
T one() {
    return T{1};
}

template <class A, class B>
auto min(A a, B b) -> decltype(a + b) {
    return a < b ? a : b;
}

template <class A, class B>
auto max(A a, B b) -> decltype(a + b) {
    return a > b ? a : b;
}

template <class T>
bool is_zero(T const& x) {
    return x == T{};
}
template <class T>
bool is_zero(complex<T> const& x) {
    return x.re == T{} && x.im == T{};
}

template <class Out, class Acc>
Out convert(Acc const& value, CB_SITE) {
    using namespace detail;
    expect_delivered(value, site);
    expect_set(value, site);
    if constexpr (same<Out, Acc>) {
        return value;
    } else if constexpr (is_float8<Out> || is_float8<Acc>) {
        Out result;
        convert_float8(result, value);
        return result;
    } else if constexpr (same<Acc, half> || same<Acc, bfloat16>) {
        return convert<Out>(to_float(value), site);
    } else if constexpr (same<Out, half> || same<Out, bfloat16>) {
        float shorter;
        if constexpr (same<Acc, double>) {
            shorter = round_to_odd(value);
        } else {
            shorter = static_cast<float>(value);
        }
        if constexpr (same<Out, half>) {
            return to_half(shorter);
        } else {
            return to_bfloat16(shorter);
        }
    } else if constexpr (is_complex<Out>) {
        using Part = decltype(Out::re);
        if constexpr (is_complex<Acc>) {
            return Out{Part(value.re), Part(value.im)};
        } else {
            return Out{Part(value), Part{}};
        }
    } else if constexpr (same<Out, bool>) {
        return !is_zero(value);
    } else {
        return static_cast<Out>(value);
    }
}

template <bool ConjA = false, bool ConjB = false, class Acc, class A, class B>
void mac(Acc& acc, A const& a, B const& b) {
    using namespace detail;
    if constexpr (is_complex<Acc>) {
        auto const ai = ConjA ? -a.im : a.im;
        auto const bi = ConjB ? -b.im : b.im;
        acc.re = fused(a.re, b.re, acc.re);
        acc.re = fused(-ai, bi, acc.re);
        acc.im = fused(a.re, bi, acc.im);
        acc.im = fused(ai, b.re, acc.im);
    } else if constexpr (same<Acc, bool>) {
        acc = acc || (a && b);
    } else if constexpr (is_integer<Acc>) {
        acc = static_cast<Acc>(static_cast<uint64>(acc) + static_cast<uint64>(a) * static_cast<uint64>(b));
    } else {
        acc = fused(real_number<Acc>(a), real_number<Acc>(b), acc);
    }
}

inline void mac_in_order(float& acc, float a, float b) { mac(acc, a, b); }

inline int dp4a(int acc, uint a, uint b) {
    uint sum = static_cast<uint>(acc);
    for (int shift = 0; shift < 32; shift += 8)
        sum += static_cast<uint>(static_cast<signed char>(a >> shift) * static_cast<signed char>(b >> shift));
    return static_cast<int>(sum);
}

inline void mac_dp4a(int& acc, uint a, uint b) { acc = dp4a(acc, a, b); }

template <class S>
S multiply(S const& a, S const& b) {
    using namespace detail;
    if constexpr (same<S, bool>) {
        return a && b;
    } else if constexpr (is_complex<S>) {
        return S{fused(a.re, b.re, -(a.im * b.im)), fused(a.re, b.im, a.im * b.re)};
    } else if constexpr (is_integer<S>) {
        return static_cast<S>(static_cast<uint64>(a) * static_cast<uint64>(b));
    } else {
        return a * b;
    }
}

template <class S>
S add(S const& a, S const& b) {
    using namespace detail;
    if constexpr (same<S, bool>) {
        return a || b;
    } else if constexpr (is_complex<S>) {
        return S{a.re + b.re, a.im + b.im};
    } else if constexpr (is_integer<S>) {
        return static_cast<S>(static_cast<uint64>(a) + static_cast<uint64>(b));
    } else {
        return a + b;
    }
}

template <class Out, class Acc, class S>
Out scale(Acc const& acc, S alpha, CB_SITE) {
    return convert<Out>(multiply(alpha, convert<S>(acc, site)), site);
}

// Register transposes

inline void transpose_b8x4(uint (&w)[4]) {
    uint t[4] = {};
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) t[i] |= (w[j] >> 8 * i & 0xffu) << 8 * j;
    for (int i = 0; i < 4; ++i) w[i] = t[i];
}

inline void transpose_b16x2(uint (&w)[2]) {
    uint const low = (w[0] & 0xffffu) | w[1] << 16;
    uint const high = w[0] >> 16 | (w[1] & 0xffff0000u);
    w[0] = low;
    w[1] = high;
}

template <class To, class From>
To* recast(From* r) {
    return reinterpret_cast<To*>(r);
}

template <class To, class From>
To const* recast(From const* r) {
    return reinterpret_cast<To const*>(r);
}

#undef CB_SITE
#undef CB_INLINE

}  // namespace cb

// CUDA's names for what the text needs that both preludes have.
#define CB_DEVICE inline
#define CB_TABLE static constexpr
#define __float_as_int cb::detail::bit_cast<int, float>
#define __int_as_float cb::detail::bit_cast<float, int>
#define __double2hiint(x) static_cast<int>(cb::detail::bit_cast<unsigned long long>(x) >> 32)
#define __hiloint2double(hi, lo) cb::detail::bit_cast<double>(static_cast<unsigned long long>(static_cast<unsigned>(hi)) << 32 | (lo))
#define __double2loint(x) static_cast<unsigned>(cb::detail::bit_cast<unsigned long long>(x))
#define __double2ll_rn(x) static_cast<long long>(__builtin_rint(x))
#define __fma_rn __builtin_fma
#define __fmaf_rn __builtin_fmaf
#define __dsqrt_rn __builtin_sqrt
#define __ffs __builtin_ffs
extern "C" double rint(double);
#include "../codegen/prelude/float8.cuh"

namespace cb {

inline uint low_bytes(uint a, uint b, uint c, uint d) { return (a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | d << 24; }

}  // namespace cb

namespace cb::detail {

template <int F, int B, unsigned L, unsigned I, unsigned N>
constexpr bool is_float8<float8<F, B, L, I, N>> = true;

}  // namespace cb::detail

#include "split.h"
#include "values.h"

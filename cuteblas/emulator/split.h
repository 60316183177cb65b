// The emulator's version of prelude/split.cuh.
#pragma once

namespace cb {

inline float absolute_value(float x) { return detail::bit_cast<float>(detail::bit_cast<uint>(x) & 0x7fffffffu); }

inline void largest_magnitude(float x, float& top) {
    float const magnitude = absolute_value(x);
    top = magnitude > top ? magnitude : top;
}

inline float power_of_two(int n) { return detail::bit_cast<float>(static_cast<uint>(n + 127) << 23); }

inline float scalbn(float x, int n) {
    n = n < -252 ? -252 : n > 252 ? 252 : n;
    int const rest = n < -126 || n > 126 ? n / 2 : 0;
    return x * power_of_two(n - rest) * power_of_two(rest);
}

inline void row_factors(int n, float& first, float& second) {
    n = n < -252 ? -252 : n > 252 ? 252 : n;
    int const rest = n < -126 || n > 126 ? n / 2 : 0;
    first = power_of_two(n - rest);
    second = power_of_two(rest);
}
inline float scaled(float x, float factor) { return x * factor; }

inline int row_shift(float largest, int limit) {
    uint const top = detail::bit_cast<uint>(largest);
    if (top == 0 || top >= 0x7f800000u) return 0;
    return limit - (top >= 0x00800000u ? static_cast<int>(top >> 23) - 127 : -118 - __builtin_clz(top));
}

inline float infinite() { return detail::bit_cast<float>(0x7f800000u); }
inline bool row_is_marked(float sum) { return !(sum < infinite()); }
inline float row_need(int zeros, int small, float sum) {
    if (row_is_marked(sum)) return infinite();
    return small ? static_cast<float>(zeros) + 3.0f * static_cast<float>(small) : 0.0f;
}
inline float row_offer(float sum, float largest) { return sum == 0 || row_is_marked(sum) ? largest : sum / largest; }

inline void add_magnitude(float x, float& sum, float& least) {
    float const magnitude = absolute_value(x);
    sum += magnitude;
    least = magnitude < least ? magnitude : least;
}

inline void count_magnitude(float x, float narrow, float broad, int& zeros, int& small, float& sum) {
    float const magnitude = absolute_value(x);
    zeros += magnitude == 0.0f;
    small += magnitude < narrow && magnitude > 0.0f;
    if (magnitude < broad && magnitude > 0.0f) sum = infinite();
}

template <class Plane>
Plane opposite(Plane x) {
    x.bits ^= 0x8000u;
    return x;
}

template <class Plane>
void convert_pair(Plane& a, Plane& b, float x, float y) {
    a = convert<Plane>(x);
    b = convert<Plane>(y);
}

template <class Plane>
float plane_rest(float x, Plane plane, float factor) {
    return (x - detail::to_float(plane)) * factor;
}

// Pairs of bfloat16, the first in the low half.
inline void split_pair(float x, float y, uint& first, uint& second, uint& third, uint& least, uint& most, uint& lost) {
    float rest[2] = {x, y};
    uint* const planes[3] = {&first, &second, &third};
    for (int p = 0; p < 3; ++p) {
        uint pair = 0;
        for (int i = 0; i < 2; ++i) {
            // The third is what is left, and whole: its low half is zero unless the pair is out of range.
            if (p == 2) lost |= detail::bit_cast<uint>(rest[i]);
            uint const bits = p < 2 ? convert<bfloat16>(rest[i]).bits : detail::bit_cast<uint>(rest[i]) >> 16;
            pair |= bits << 16 * i;
            rest[i] -= detail::bit_cast<float>(bits << 16);
        }
        *planes[p] = pair;
    }
    uint low = 0, high = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        uint const magnitude = first >> shift & 0x7fff, before = (magnitude - 1) & 0xffff;
        uint const known_least = least >> shift & 0xffff, known_most = most >> shift & 0xffff;
        low |= (before < known_least ? before : known_least) << shift;
        high |= (magnitude > known_most ? magnitude : known_most) << shift;
    }
    least = low;
    most = high;
}

inline bool pairs_are_between(uint least, uint most, uint lost, int low, int high) {
    if (lost & 0xffff) return false;
    uint const floor = static_cast<uint>((127 + low) << 7) - 1, ceiling = static_cast<uint>((127 + high) << 7);
    for (int shift = 0; shift < 32; shift += 16)
        if ((least >> shift & 0xffff) < floor || (most >> shift & 0xffff) >= ceiling) return false;
    return true;
}

template <int N, class T>
void wgmma_delivered(T (&)[N]) {}

}  // namespace cb

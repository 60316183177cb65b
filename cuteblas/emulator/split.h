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
float plane_rest(float x, Plane plane, float factor) {
    return (x - detail::to_float(plane)) * factor;
}

template <int N>
void wgmma_delivered(float (&)[N]) {}

}  // namespace cb

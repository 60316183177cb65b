// cuteblas prelude, float32 as sums of 16-bit planes: scaling by powers of two, and what is known of a row.
namespace cb {

CB_DEVICE float power_of_two(int n) { return __int_as_float((n + 127) << 23); }            // -126 <= n <= 127

// x * 2^n, rounded at most once: a second factor is needed only where the first cannot reach a subnormal result.
CB_DEVICE float scalbn(float x, int n) {
  n = min(max(n, -252), 252);
  int const rest = n < -126 || n > 126 ? n / 2 : 0;
  return __fmul_rn(__fmul_rn(x, power_of_two(n - rest)), power_of_two(rest));
}
// The same in two parts: the factors, and the product.
CB_DEVICE void row_factors(int n, float& first, float& second) {
  n = min(max(n, -252), 252);
  int const rest = n < -126 || n > 126 ? n / 2 : 0;
  first = power_of_two(n - rest);
  second = power_of_two(rest);
  asm("" : "+f"(first), "+f"(second));         // they are not computed again wherever they are used
}
CB_DEVICE float scaled(float x, float factor) { return __fmul_rn(x, factor); }
// The largest of magnitudes; NaNs do not count.
CB_DEVICE void largest_magnitude(float x, float& top) { top = fmaxf(top, fabsf(x)); }
// The power of two that takes a magnitude into [2^limit, 2^(limit + 1)); 0 for zero and infinity.
CB_DEVICE int row_shift(float largest, int limit) {
  unsigned const top = static_cast<unsigned>(__float_as_int(largest));
  if (top == 0 || top >= 0x7f800000u) return 0;
  return limit - (top >= 0x00800000u ? static_cast<int>(top >> 23) - 127 : -118 - __clz(static_cast<int>(top)));
}
// What a row needs of the other operand's rows, and what it offers to them. A sum that is not finite marks a row: it has an infinity, a
// NaN, or an element too small to split. Such a row needs more than there is.
CB_DEVICE bool row_is_marked(float sum) { return !(sum < __int_as_float(0x7f800000)); }
CB_DEVICE float row_need(int zeros, int small, float sum) {
  if (row_is_marked(sum)) return __int_as_float(0x7f800000);
  return small ? static_cast<float>(zeros) + 3.0f * static_cast<float>(small) : 0.0f;
}
CB_DEVICE float row_offer(float sum, float largest) { return sum == 0.0f || row_is_marked(sum) ? largest : __fdiv_rn(sum, largest); }
// The sum of magnitudes, and the least of them.
CB_DEVICE void add_magnitude(float x, float& sum, float& least) {
  sum = __fadd_rn(sum, fabsf(x));
  least = fminf(least, fabsf(x));
}
// Count what is zero or small; what is too small to split makes the sum of the row infinite.
CB_DEVICE void count_magnitude(float x, float narrow, float broad, int& zeros, int& small, float& sum) {
  float const magnitude = fabsf(x);
  zeros += magnitude == 0.0f;
  small += magnitude < narrow && magnitude > 0.0f;
  if (magnitude < broad && magnitude > 0.0f) sum = __int_as_float(0x7f800000);
}

template <class Plane> CB_DEVICE Plane opposite(Plane x) { return Plane{static_cast<unsigned short>(x.bits ^ 0x8000u)}; }
// Two conversions by one instruction, also where the numbers do not lie side by side.
CB_DEVICE void convert_pair(half& a, half& b, float x, float y) {
  asm("{ .reg .b32 t; cvt.rn.f16x2.f32 t, %3, %2; mov.b32 {%0, %1}, t; }" : "=h"(a.bits), "=h"(b.bits) : "f"(x), "f"(y));
}
CB_DEVICE void convert_pair(bfloat16& a, bfloat16& b, float x, float y) {
  asm("{ .reg .b32 t; cvt.rn.bf16x2.f32 t, %3, %2; mov.b32 {%0, %1}, t; }" : "=h"(a.bits), "=h"(b.bits) : "f"(x), "f"(y));
}
template <class Plane> CB_DEVICE float plane_rest(float x, Plane plane, float factor) { x = __fsub_rn(x, to_float(plane)); return factor == 1.0f ? x : __fmul_rn(x, factor); }

// Two floats as sums of three bfloat16 each, packed. What has been seen is kept: of the first ones, as bits and in each half alone,
// `least` that is not zero, less 1, and `most`; in the low half of `lost`, bits that are in none of the three.
CB_DEVICE unsigned bfloat16_pair(float x, float y) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
  return pair;
}
CB_DEVICE void split_pair(float x, float y, unsigned& first, unsigned& second, unsigned& third, unsigned& least, unsigned& most, unsigned& lost) {
  first = bfloat16_pair(x, y);
  x = __fsub_rn(x, __int_as_float(static_cast<int>(first << 16)));
  y = __fsub_rn(y, __int_as_float(static_cast<int>(first & 0xffff0000u)));
  second = bfloat16_pair(x, y);
  x = __fsub_rn(x, __int_as_float(static_cast<int>(second << 16)));
  y = __fsub_rn(y, __int_as_float(static_cast<int>(second & 0xffff0000u)));
  asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(third) : "r"(__float_as_int(x)), "r"(__float_as_int(y)));
  lost |= static_cast<unsigned>(__float_as_int(x)) | static_cast<unsigned>(__float_as_int(y));
  unsigned const magnitude = first & 0x7fff7fffu;
  asm("{ .reg .b32 t; add.u16x2 t, %1, %2; min.u16x2 %0, %0, t; }" : "+r"(least) : "r"(magnitude), "r"(0xffffffffu));
  asm("max.u16x2 %0, %0, %1;" : "+r"(most) : "r"(magnitude));
}
// Whether all magnitudes, but for zeros, are at least 2^low and less than 2^high.
CB_DEVICE bool pairs_are_between(unsigned least, unsigned most, unsigned lost, int low, int high) {
  unsigned const floor = static_cast<unsigned>(127 + low << 7) - 1, ceiling = static_cast<unsigned>(127 + high << 7);
  return !(lost & 0xffffu) && min(least & 0xffffu, least >> 16) >= floor && max(most & 0xffffu, most >> 16) < ceiling;
}

// The compiler must not read accumulators before the wait that delivers them: it does not know that the wait writes them.
template <int N> CB_DEVICE void wgmma_delivered(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> CB_DEVICE void wgmma_delivered(int (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

}  // namespace cb

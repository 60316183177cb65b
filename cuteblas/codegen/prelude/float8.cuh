// Numbers of 8 bits, which are stored and converted; nothing is computed in them. The emulator compiles this text too.
// Conversions are those of ml_dtypes to the bit: to nearest, ties to even, of a float64 by way of a float32. What is too large becomes
// infinite, or NaN where there is no infinity (PTX's own conversions saturate), and a NaN keeps its sign.
namespace cb {

// Bits of the fraction; the bias of the exponent; without the sign, the largest number, what follows it and what a NaN becomes.
template <int Fraction, int Bias, unsigned Largest, unsigned Beyond, unsigned NaN> struct float8 { unsigned char bits; };
using float8_e4m3fn = float8<3, 7, 0x7e, 0x7f, 0x7f>;
using float8_e5m2 = float8<2, 15, 0x7b, 0x7c, 0x7e>;

template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE bool is_nan(float8<F, B, L, I, N> x) {
  return (x.bits & 0x7fu) > (I < N ? I : L);
}
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE float to_float(float8<F, B, L, I, N> x) {
  unsigned const sign = (x.bits & 0x80u) << 24, magnitude = x.bits & 0x7fu;
  if (magnitude > L) return __int_as_float(static_cast<int>(sign | (is_nan(x) ? 0x7fc00000u : 0x7f800000u)));
  if (magnitude >= 1u << F) return __int_as_float(static_cast<int>(sign | ((magnitude << (23 - F)) + (static_cast<unsigned>(127 - B) << 23))));
  float const subnormal = static_cast<float>(magnitude) * (1.0f / (1 << (B + F - 1)));
  return sign ? -subnormal : subnormal;
}

// -- From other types ----------------------------------------------------------------------------------------------------
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(float8<F, B, L, I, N>& r, float x) {
  unsigned const u = static_cast<unsigned>(__float_as_int(x)), magnitude = u & 0x7fffffffu;
  int const below = 128 - B - static_cast<int>(magnitude >> 23);              // binades below the least normal number
  unsigned const significand = below > 0 ? (magnitude & 0x7fffffu) | 0x800000u : magnitude - (static_cast<unsigned>(127 - B) << 23);
  int const shift = 23 - F + (below <= 0 ? 0 : below < F + 2 ? below : F + 2);        // by 25 nothing is left
  unsigned bits = (significand + (1u << (shift - 1)) - 1u + (significand >> shift & 1u)) >> shift;
  bits = magnitude > 0x7f800000u ? N : bits > L ? I : bits;
  r.bits = static_cast<unsigned char>((u >> 24 & 0x80u) | bits);
}
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(float8<F, B, L, I, N>& r, double x) {
  if (x == x) convert_float8(r, static_cast<float>(x));
  else r.bits = static_cast<unsigned char>((static_cast<unsigned>(__double2hiint(x)) >> 24 & 0x80u) | N);
}
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(float8<F, B, L, I, N>& r, half x) {
  if ((x.bits & 0x7fffu) <= 0x7c00u) convert_float8(r, convert<float>(x));
  else r.bits = static_cast<unsigned char>((x.bits >> 8 & 0x80u) | N);
}
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(float8<F, B, L, I, N>& r, bfloat16 x) {
  convert_float8(r, convert<float>(x));
}
template <class In, int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(float8<F, B, L, I, N>& r, In x) {
  convert_float8(r, static_cast<float>(x));
}

// -- To other types ------------------------------------------------------------------------------------------------------
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(float& r, float8<F, B, L, I, N> x) { r = to_float(x); }
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(double& r, float8<F, B, L, I, N> x) {
  r = is_nan(x) ? __hiloint2double(static_cast<int>((x.bits & 0x80u) << 24 | 0x7ff80000u), 0) : to_float(x);
}
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(half& r, float8<F, B, L, I, N> x) {
  if (is_nan(x)) r.bits = static_cast<unsigned short>((x.bits & 0x80u) << 8 | 0x7e00u);
  else r = convert<half>(to_float(x));
}
template <int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(bfloat16& r, float8<F, B, L, I, N> x) {
  if (is_nan(x)) r.bits = static_cast<unsigned short>((x.bits & 0x80u) << 8 | 0x7fc0u);
  else r = convert<bfloat16>(to_float(x));
}
template <class Out, int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE void convert_float8(Out& r, float8<F, B, L, I, N> x) {
  r = convert<Out>(to_float(x));
}
template <int F, int B, unsigned L, unsigned I, unsigned N, int F2, int B2, unsigned L2, unsigned I2, unsigned N2>
CB_DEVICE void convert_float8(float8<F, B, L, I, N>& r, float8<F2, B2, L2, I2, N2> x) { convert_float8(r, to_float(x)); }
template <int F, int B, unsigned L, unsigned I, unsigned N>
CB_DEVICE void convert_float8(float8<F, B, L, I, N>& r, float8<F, B, L, I, N> x) { r = x; }

#ifdef __CUDACC__
template <int F, int B, unsigned L, unsigned I, unsigned N> struct converter<float8<F, B, L, I, N>> {
  template <class In> static CB_DEVICE float8<F, B, L, I, N> from(In const& x) { float8<F, B, L, I, N> r; convert_float8(r, x); return r; }
};
template <class Out, int F, int B, unsigned L, unsigned I, unsigned N> CB_DEVICE Out convert(float8<F, B, L, I, N> const& x) {
  Out r;
  convert_float8(r, x);
  return r;
}
#endif
}  // namespace cb

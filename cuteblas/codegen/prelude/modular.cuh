// cuteblas prelude, float64 as residues of integers: docs/performance/gemm-modular.md. The emulator compiles this text too.
namespace cb {

// -- Moduli --------------------------------------------------------------------------------------------------------------
// Pairwise coprime: 256 255 253 251 247 241 239 233, 229 227 223 217 211 199 197.
CB_DEVICE unsigned modulus_of(int index) {
  unsigned long long const less_one = index < 8 ? 0xe8eef0f6fafcfeffull : 0x00c4c6d2d8dee2e4ull;
  return static_cast<unsigned>(less_one >> 8 * (index & 7) & 255u) + 1u;
}
// The product of the first ones as a sum of two, to 100 bits.
CB_DEVICE void next_product(int index, double& most, double& rest) {
  double const p = modulus_of(index), product = most * p;
  rest = __fma_rn(rest, p, __fma_rn(most, p, -product));
  most = product + rest;
  rest = rest - (most - product);
}
CB_DEVICE void product_of_moduli(int count, double& most, double& rest) {
  most = 1.0;
  rest = 0.0;
  for (int i = 0; i < count; ++i) next_product(i, most, rest);
}
// The most that the norms of a row of A' and of a row of B' may be, multiplied with each other; of a product of moduli.
CB_DEVICE double most_of_norms(double product) { return product * 0.49999; }

// -- What is known of a row ----------------------------------------------------------------------------------------------
CB_DEVICE int exponent_of(double x) { return (__double2hiint(x) >> 20 & 0x7ff) - 1023; }
CB_DEVICE double power_of_two_f64(int n) { return __hiloint2double((n + 1023) << 20, 0); }        // -1022 <= n <= 1023
// An element: the sums of magnitudes and of squares, and the least exponent of a bit that is set.
CB_DEVICE void add_element(double x, double& sum, double& squares, int& low) {
  unsigned const high = static_cast<unsigned>(__double2hiint(x)), word = static_cast<unsigned>(__double2loint(x));
  sum = sum + __hiloint2double(static_cast<int>(high & 0x7fffffffu), word);
  squares = __fma_rn(x, x, squares);
  int const exponent = static_cast<int>(high >> 20 & 0x7ffu);
  int const zeros = word ? __ffs(static_cast<int>(word)) : __ffs(static_cast<int>(high | 0x100000u)) + 32;
  int const bit = (exponent ? exponent : 1) - 1076 + zeros;
  low = x != 0.0 && bit < low ? bit : low;
}
// The same of a complex one, of whose magnitude no more than 8 % are left out: the larger part, or both over the root of two.
CB_DEVICE void add_complex_element(double re, double im, double& sum, double& squares, int& low) {
  double x = 0.0, y = 0.0;
  add_element(re, x, squares, low);
  add_element(im, y, squares, low);
  double const larger = x > y ? x : y, both = (x + y) * 0.7071067811865475;
  sum = sum + (larger > both ? larger : both);
}
// The least cosine of the angle between magnitudes and ones, and the most of bits, twice: of squares, above the lowest bit. A row that
// ranges too far, or has an infinity or a NaN, has none and too many.
CB_DEVICE void judge_row(double sum, double squares, int low, int length, float& cosine, float& bits) {
  if (sum == 0.0) return;
  if (!(squares >= power_of_two_f64(-800) && squares < power_of_two_f64(800))) {
    cosine = -1.0f;
    bits = 1e9f;
    return;
  }
  float const own = static_cast<float>(sum / __dsqrt_rn(squares * length) * 0.999999);
  cosine = own < cosine ? own : cosine;
  float const twice = static_cast<float>(exponent_of(squares) + 1 - 2 * low);
  bits = twice > bits ? twice : bits;
}
// How many moduli a product needs, and in the byte above whether the integers are the elements; 0 if it is left to native arithmetic.
// Sums of what ten moduli hold are exact to the last bit. The cosine of both angles together is at least the `least` for 14 moduli.
CB_DEVICE unsigned choose_moduli(float cosine_a, float bits_a, float cosine_b, float bits_b, float least) {
  double product = 1.0, rest = 0.0;
  for (int i = 0; i < 10; ++i) {
    next_product(i, product, rest);
    double const most = most_of_norms(product);
    if (bits_a + bits_b <= static_cast<float>(exponent_of(most * most))) return static_cast<unsigned>(i + 1) | 256u;
  }
  if (cosine_a < 0.0f || cosine_b < 0.0f) return 0u;
  double const a = cosine_a, b = cosine_b, together = a * b - __dsqrt_rn((1.0 - a * a) * (1.0 - b * b));
  return together >= least ? 14u : together >= least * 0.08 ? 15u : 0u;
}
CB_DEVICE int moduli_of(unsigned choice) { return static_cast<int>(choice & 255u); }
// The power of two by which a row is scaled.
CB_DEVICE int row_exponent(double squares, int low, unsigned choice, double most) {
  if (squares == 0.0) return 0;
  return choice >> 8 ? -low : exponent_of(most / squares) >> 1;
}

// -- Residues ------------------------------------------------------------------------------------------------------------
#ifdef __CUDACC__
// Four products of unsigned and signed bytes.
CB_DEVICE int dot_of_bytes(unsigned a, unsigned b, int sum) {
  int r;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(sum));
  return r;
}
#endif
CB_DEVICE long long scaled_integer(double x, double factor) { return __double2ll_rn(x * factor); }
template <int P> struct byte_weights {
  static constexpr int centred(int x) { return x % P > P / 2 ? x % P - P : x % P; }
  static constexpr int power(int n) { return n == 0 ? 1 : power(n - 1) * 256 % P; }
  static constexpr unsigned packed(int n) {
    return static_cast<unsigned>(centred(power(n)) & 255) | static_cast<unsigned>(centred(power(n + 1)) & 255) << 8 |
           static_cast<unsigned>(centred(power(n + 2)) & 255) << 16 | static_cast<unsigned>(centred(power(n + 3)) & 255) << 24;
  }
  // Bytes are those of x + 2^63; the sum of theirs is more than -2^18. What is added to it is a multiple of P and 2^23 as a float.
  static constexpr int multiple = (262144 / P + 2) * P, start = 0x4b000000 + multiple + P - power(7) * 128 % P;
  static constexpr unsigned low = packed(0), high = packed(4);
};
// x mod P, the nearest to zero, by floats that are integers below 2^24.
template <int P> CB_DEVICE signed char residue(long long x) {
  using weights = byte_weights<P>;
  constexpr float integers = 12582912.0f;                                     // 1.5 * 2^23: what is added to it is rounded
  unsigned const lower = static_cast<unsigned>(x), upper = static_cast<unsigned>(x >> 32) ^ 0x80000000u;
  int const bits = dot_of_bytes(upper, weights::high, dot_of_bytes(lower, weights::low, weights::start));
  float const sum = __int_as_float(bits) - (8388608.0f + weights::multiple);
  float const quotient = __fmaf_rn(sum, 1.0f / P, integers) - integers;
  return static_cast<signed char>(__float_as_int(__fmaf_rn(quotient, -static_cast<float>(P), sum) + integers));
}
// A sum of products of residues, of a magnitude up to 2^30, mod p, from 0 on: what is added to make it positive, and 2^39 / p, rounded up.
CB_DEVICE unsigned residue_offset(unsigned p) { return (1073741824u / p + 1u) * p; }
CB_DEVICE unsigned residue_reciprocal(unsigned p) { return static_cast<unsigned>(549755813887ull / p) + 1u; }
CB_DEVICE unsigned char residue_of_sum(int sum, unsigned p, unsigned offset, unsigned reciprocal) {
  unsigned const positive = static_cast<unsigned>(sum) + offset;
  unsigned const quotient = static_cast<unsigned>(static_cast<unsigned long long>(positive) * reciprocal >> 32) >> 7;
  return static_cast<unsigned char>(positive - quotient * p);
}

// -- From residues to numbers --------------------------------------------------------------------------------------------
// 2^32 / p times a number below p: the whole part, and what is left.
CB_DEVICE unsigned next_word(unsigned& rest, unsigned p) {
  unsigned const high = (rest << 16) / p, below = (rest << 16) - high * p, low = (below << 16) / p;
  rest = (below << 16) - low * p;
  return high << 16 | low;
}
// 2^96 / p times the inverse, mod p, of the product of the others: what residues are multiplied with, as three words.
CB_DEVICE void reconstruction_weight(int count, int index, unsigned& high, unsigned& middle, unsigned& low) {
  unsigned const p = modulus_of(index);
  unsigned others = 1;
  for (int i = 0; i < count; ++i) others = i == index ? others : others * modulus_of(i) % p;
  // Euclid: a = x * others, b = y * others, mod p.
  int a = static_cast<int>(p), b = static_cast<int>(others), x = 0, y = 1;
  while (b > 1) {
    int const quotient = a / b, left = a - quotient * b, z = x - quotient * y;
    a = b;
    b = left;
    x = y;
    y = z;
  }
  unsigned rest = y < 0 ? static_cast<unsigned>(y) + p : static_cast<unsigned>(y);
  high = next_word(rest, p);
  middle = next_word(rest, p);
  low = next_word(rest, p);
}
// Twelve sums of bytes times bytes of the weights, from the lowest: a part of the product of moduli, in units of 2^-96, whatever is
// whole left out. As 64 bits, and 32 bits below them.
CB_DEVICE unsigned long long four_sums(unsigned const* sums) {                 // pairs of sums below 2^20 fit a word
  return static_cast<unsigned long long>(sums[2] + (sums[3] << 8)) * 65536u + (sums[0] + (sums[1] << 8));
}
CB_DEVICE void fraction_of_sums(unsigned const (&sums)[12], unsigned long long& part, unsigned& below) {
  unsigned long long const low = four_sums(sums);
  part = (four_sums(sums + 8) << 32) + four_sums(sums + 4) + (low >> 32);
  below = static_cast<unsigned>(low);
}
CB_DEVICE void subtract_fraction(unsigned long long& part, unsigned& below, unsigned long long other, unsigned other_below) {
  part = part - other - (below < other_below ? 1u : 0u);
  below = below - other_below;
}
// The integer, rounded once; `most` and `rest` are 2^-64 of the product of moduli. Words become float64 by their bits, above 2^84, 2^52
// and 2^20, in place of conversions; `first` is the nearest to the upper two, and what it leaves of them is exact. Zero is positive.
CB_DEVICE double integer_of(unsigned long long part, unsigned below, double most, double rest) {
  unsigned const high = static_cast<unsigned>(part >> 32) ^ 0x80000000u, low = static_cast<unsigned>(part);
  double const upper = __hiloint2double(0x45300000, high) - (power_of_two_f64(84) + power_of_two_f64(63));
  double const lower = __hiloint2double(0x43300000, low) - power_of_two_f64(52);
  double const first = upper + lower;
  double const second = lower - (first - upper) + (__hiloint2double(0x41300000, below) - power_of_two_f64(20));
  return ::rint(__fma_rn(first, most, __fma_rn(first, rest, second * most))) + 0.0;
}
CB_DEVICE double unscaled(double x, int row, int column) { return x * power_of_two_f64(-row - column); }

}  // namespace cb

// cuteblas prelude, float64 as residues of integers: docs/performance/gemm-modular.md. The emulator compiles this text too.
namespace cb {

// -- Moduli --------------------------------------------------------------------------------------------------------------
// Pairwise coprime: 256 255 253 251 247 241 239 233, 229 227 223 217 211 199 197.
CB_DEVICE constexpr unsigned modulus_of(int index) {
  unsigned long long const less_one = index < 8 ? 0xe8eef0f6fafcfeffull : 0x00c4c6d2d8dee2e4ull;
  return static_cast<unsigned>(less_one >> 8 * (index & 7) & 255u) + 1u;
}
// The most that the norms of a row of A' and of a row of B' may be, multiplied with each other; of a product of moduli.
CB_DEVICE constexpr double most_of_norms(double product) { return product * 0.49999; }

// What follows from their number. By the Chinese remainder theorem, residues are multiplied with weights, 2^96 / p times the inverse, mod
// p, of the product of the others: of each four moduli a word for each of twelve bytes, from the lowest.
struct ModuliTable {
  double most[16] = {}, rest[16] = {};            // the product of so many of the first ones, as a sum of two
  int exponents[16] = {};                         // of the square of the most that norms may be
  unsigned weights[16][48] = {};
  constexpr ModuliTable() {
    unsigned product[4] = {1u, 0u, 0u, 0u};
    for (int count = 0; count < 16; ++count) {
      if (count) multiply(product, modulus_of(count - 1));
      unsigned left[4] = {product[0], product[1], product[2], product[3]};
      bool negative = false, ignored = false;
      most[count] = take_nearest(left, negative);
      rest[count] = take_nearest(left, ignored) * (negative ? -1.0 : 1.0);
      double const norms = most_of_norms(most[count]);
      for (double square = norms * norms; square >= 2.0; square *= 0.5) ++exponents[count];
      for (int i = 0; i < count; ++i) weigh(weights[count], count, i);
    }
  }
  static constexpr void multiply(unsigned (&x)[4], unsigned by) {
    unsigned long long carry = 0;
    for (unsigned& word : x) {
      carry += static_cast<unsigned long long>(word) * by;
      word = static_cast<unsigned>(carry);
      carry >>= 32;
    }
  }
  // The float64 that is nearest to a number of 128 bits, and what is left of the number, which may be below zero.
  static constexpr double take_nearest(unsigned (&x)[4], bool& negative) {
    unsigned shifted[4] = {x[0], x[1], x[2], x[3]};
    int exponent = 75;
    if (!(x[0] | x[1] | x[2] | x[3])) return 0.0;
    for (; !(shifted[3] >> 31); --exponent) multiply(shifted, 2u);
    unsigned long long const top = static_cast<unsigned long long>(shifted[3]) << 32 | shifted[2], below = top & 2047u;
    unsigned long long const odd = top >> 11 & 1u, more = shifted[1] | shifted[0];
    double value = static_cast<double>((top >> 11) + (below + (odd | (more ? 1u : 0u)) > 1024u ? 1u : 0u)), unit = 1.0;
    for (; exponent > 0; --exponent) value *= 2.0;
    for (; exponent < 0; ++exponent) value *= 0.5;
    double taken = value;
    long long borrow = 0;
    unsigned words[4] = {};
    for (int i = 0; i < 3; ++i) unit *= 4294967296.0;
    for (int i = 3; i >= 0; --i, unit /= 4294967296.0) {
      words[i] = static_cast<unsigned>(taken / unit);
      taken -= static_cast<double>(words[i]) * unit;
    }
    for (int i = 0; i < 4; ++i) {
      borrow += static_cast<long long>(x[i]) - static_cast<long long>(words[i]);
      x[i] = static_cast<unsigned>(borrow);
      borrow >>= 32;
    }
    negative = borrow < 0;
    if (negative)
      for (int i = 0, carry = 1; i < 4; ++i) {
        x[i] = ~x[i] + static_cast<unsigned>(carry);
        carry = carry && !x[i];
      }
    return value;
  }
  static constexpr void weigh(unsigned (&words)[48], int count, int index) {
    unsigned const p = modulus_of(index);
    unsigned others = 1, rest = 0;
    for (int i = 0; i < count; ++i) others = i == index ? others : others * modulus_of(i) % p;
    while (rest * others % p != 1 % p) ++rest;
    for (int limb = 11; limb >= 0; --limb, rest %= p) {
      rest *= 256;
      words[index / 4 * 12 + limb] |= rest / p << 8 * (index % 4);
    }
  }
};
CB_TABLE ModuliTable moduli_table{};
CB_DEVICE void product_of_moduli(int count, double& most, double& rest) {
  most = moduli_table.most[count];
  rest = moduli_table.rest[count];
}
CB_DEVICE unsigned weights_of_moduli(int count, int word) { return moduli_table.weights[count][word]; }

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
#pragma unroll
  for (int count = 1; count <= 10; ++count)
    if (bits_a + bits_b <= static_cast<float>(moduli_table.exponents[count])) return static_cast<unsigned>(count) | 256u;
  if (cosine_a < 0.0f || cosine_b < 0.0f) return 0u;
  double const a = cosine_a, b = cosine_b, together = a * b - __dsqrt_rn((1.0 - a * a) * (1.0 - b * b));
  return together >= least ? 14u : together >= least * 0.08 ? 15u : 0u;
}
CB_DEVICE int moduli_of(unsigned choice) { return static_cast<int>(choice & 255u); }
// The power of two by which a row is scaled: without rounding, half of the exponent of most / squares.
CB_DEVICE int row_exponent(double squares, int low, unsigned choice, double most) {
  if (squares == 0.0) return 0;
  int const shift = exponent_of(most) - exponent_of(squares);
  return choice >> 8 ? -low : (shift - (squares * power_of_two_f64(shift) > most ? 1 : 0)) >> 1;
}

// -- Residues ------------------------------------------------------------------------------------------------------------
#ifdef __CUDACC__
// The lowest bytes of four words.
CB_DEVICE unsigned low_bytes(unsigned a, unsigned b, unsigned c, unsigned d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}
#endif
CB_DEVICE long long scaled_integer(double x, double factor) { return __double2ll_rn(x * factor); }
// The bytes of an integer as signed ones, of which all but the highest are 128 less.
CB_DEVICE void signed_bytes(long long x, unsigned& low, unsigned& high) {
  low = static_cast<unsigned>(x) ^ 0x80808080u;
  high = static_cast<unsigned>(x >> 32) ^ 0x00808080u;
}
// What signed bytes are multiplied with, the powers of 256 mod P nearest to zero, and what their sum begins with: 2^23 + 2^17 as the bits
// of a float, and what makes it the integer mod P. The sum is of a magnitude below 2^17.
struct alignas(8) ByteWeights { unsigned low, high; };
struct alignas(16) ResidueFactors { int start; float inverse; int minus; int unused; };
struct ResidueTable {
  ByteWeights weights[16] = {};
  ResidueFactors factors[16] = {};
  constexpr ResidueTable() {
    for (int i = 0; i < 16; ++i) {
      int const p = static_cast<int>(modulus_of(i));
      int power = 1 % p, offset = 8388608 + 131072;
      for (int byte = 0; byte < 8; ++byte) {
        unsigned const centred = static_cast<unsigned>(power > p / 2 ? power - p : power) & 255u;
        (byte < 4 ? weights[i].low : weights[i].high) |= centred << 8 * (byte % 4);
        offset += byte < 7 ? p - 128 * power % p : 0;
        power = power * 256 % p;
      }
      factors[i] = {0x4b000000 + 131072 + (p - offset % p) % p, 1.0f / static_cast<float>(p), -p, 0};
    }
  }
};
CB_TABLE ResidueTable residue_table{};
CB_DEVICE void residue_weights(int index, unsigned& low, unsigned& high) {
  ByteWeights const found = residue_table.weights[index];
  low = found.low;
  high = found.high;
}
CB_DEVICE void residue_factors(int index, int& start, float& inverse, int& minus) {
  ResidueFactors const found = residue_table.factors[index];
  start = found.start;
  inverse = found.inverse;
  minus = found.minus;
}
// A sum mod P, in the lowest byte, from -128 on: a fused multiply-add with 1 / P and 1.5 * 2^23 rounds the quotient, which is the nearest
// one, or for a remainder of 127 modulo 255 the next (tests/kernels/test_gemm_modular.py); both floats are their lower 23 bits mod 256.
CB_DEVICE unsigned residue_bits(int sum, float inverse, int minus) {
  int const quotient = __float_as_int(__fmaf_rn(__int_as_float(sum), inverse, 12582912.0f));
  return static_cast<unsigned>(quotient) * static_cast<unsigned>(minus) + static_cast<unsigned>(sum);
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

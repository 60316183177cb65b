// cuteblas prelude, products of float32 on 16-bit tensor cores: D (16, 8) += A (16, k) B (8, k)^T by a warp, of planes in registers.
namespace cb {

// Six products of three bfloat16 planes, the smallest first, as sums of their own that are added to the total once, rounded. What a
// lane holds of a plane of A are four words of two bfloat16, of B two.
CB_DEVICE void planes_mma_m16n8k16(float (&sums)[4], unsigned const* a, unsigned const* b) {
  mma_m16n8k16<bfloat16>(sums, a + 8, b);
  mma_m16n8k16<bfloat16>(sums, a + 4, b + 2);
  mma_m16n8k16<bfloat16>(sums, a, b + 4);
  mma_m16n8k16<bfloat16>(sums, a + 4, b);
  mma_m16n8k16<bfloat16>(sums, a, b + 2);
  mma_m16n8k16<bfloat16>(sums, a, b);
}
CB_DEVICE void split_mma_m16n8k16(float* d, unsigned const* a, unsigned const* b) {
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  planes_mma_m16n8k16(sums, a, b);
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = __fadd_rn(d[i], sums[i]);
}

// A complex number of A is the pair (re, im) along k: its products with (re, -im) of B add up to the real part, those with (im, re)
// to the imaginary one; conjugation of B changes signs.
template <bool ConjB = false>
CB_DEVICE void split_complex_mma_m16n8k8(complex<float>* d, unsigned const* a, unsigned const* b) {
  unsigned real[6], imaginary[6];
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    unsigned const word = ConjB ? b[i] ^ 0x80000000u : b[i];
    real[i] = word ^ 0x80000000u;
    imaginary[i] = word >> 16 | word << 16;
  }
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  planes_mma_m16n8k16(sums, a, real);
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i].re = __fadd_rn(d[i].re, sums[i]), sums[i] = 0.0f;
  planes_mma_m16n8k16(sums, a, imaginary);
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i].im = __fadd_rn(d[i].im, sums[i]);
}

}  // namespace cb

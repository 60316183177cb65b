// cuteblas prelude, complex products on the float64 tensor cores (sm_80): D (8, 8) += A (8, 4) B (8, 4)^T by a warp.
namespace cb {

// The sign bit alone: no work for the float64 unit.
template <bool Minus> CB_DEVICE double with_sign(double x) {
  return Minus ? __hiloint2double(__double2hiint(x) ^ static_cast<int>(0x80000000u), __double2loint(x)) : x;
}

// A complex number is the real matrix ((re, -im), (im, re)): the real parts of 8 rows of C and then their imaginary parts are the 16
// rows of one real product, the real parts of 4 columns of A and B and then their imaginary parts its 8 columns. A lane holds an
// element of A, one of B and two of C. Conjugation changes signs of the matrix alone. Before sm_90 it is four products of 8 x 8 x 4.
template <bool ConjA = false, bool ConjB = false>
CB_DEVICE void complex_mma_m8n8k4(complex<double>* d, complex<double> const* a, complex<double> const* b) {
  double const matrix[4] = {a->re, with_sign<ConjA>(a->im), with_sign<ConjA == ConjB>(a->im), with_sign<ConjB>(a->re)};
  double const vector[2] = {b->re, b->im};
  double sums[4] = {d[0].re, d[1].re, d[0].im, d[1].im};
#if __CUDA_ARCH__ >= 900
  mma_m16n8k8<double>(sums, matrix, vector);
#else
  for (int part = 0; part < 2; ++part) {
    mma_m8n8k4<double>(sums, matrix + 2 * part, vector + part);
    mma_m8n8k4<double>(sums + 2, matrix + 2 * part + 1, vector + part);
  }
#endif
  d[0] = complex<double>{sums[0], sums[2]};
  d[1] = complex<double>{sums[1], sums[3]};
}

}  // namespace cb

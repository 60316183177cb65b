// cuteblas prelude, complex products on the float64 tensor cores: D (8, 8) += A (8, k) B (8, k)^T by a warp.
namespace cb {

// The sign bit alone: no work for the float64 unit.
template <bool Minus> CB_DEVICE double with_sign(double x) {
  return Minus ? __hiloint2double(__double2hiint(x) ^ static_cast<int>(0x80000000u), __double2loint(x)) : x;
}

// A complex number is the real matrix ((re, -im), (im, re)): the real parts of 8 rows of C and then their imaginary parts are the 16
// rows of a real product, the real parts of 4 columns of A and B and then their imaginary parts 8 of its columns. Conjugation of B
// changes signs of the matrix alone. Before sm_90 there is no instruction of 16 rows: four products of 8 x 8 x 4, of which a lane
// holds an element of A, one of B and two of C.
template <bool ConjB = false>
CB_DEVICE void complex_mma_m8n8k4(complex<double>* d, complex<double> const* a, complex<double> const* b) {
  double const matrix[4] = {a->re, a->im, with_sign<!ConjB>(a->im), with_sign<ConjB>(a->re)};
  double const vector[2] = {b->re, b->im};
  double sums[4] = {d[0].re, d[1].re, d[0].im, d[1].im};
  for (int part = 0; part < 2; ++part) {
    mma_m8n8k4<double>(sums, matrix + 2 * part, vector + part);
    mma_m8n8k4<double>(sums + 2, matrix + 2 * part + 1, vector + part);
  }
  d[0] = complex<double>{sums[0], sums[2]};
  d[1] = complex<double>{sums[1], sums[3]};
}

// Since sm_90: 8 columns in one instruction, 4 and then 4, so that sums have the order of two products of 4. A lane holds two
// elements of A, two of B and two of C.
template <bool ConjB = false>
CB_DEVICE void complex_mma_m8n8k8(complex<double>* d, complex<double> const* a, complex<double> const* b) {
  double const matrix[8] = {a[0].re, a[0].im, with_sign<!ConjB>(a[0].im), with_sign<ConjB>(a[0].re),
                            a[1].re, a[1].im, with_sign<!ConjB>(a[1].im), with_sign<ConjB>(a[1].re)};
  double const vector[4] = {b[0].re, b[0].im, b[1].re, b[1].im};
  double sums[4] = {d[0].re, d[1].re, d[0].im, d[1].im};
  mma_m16n8k16<double>(sums, matrix, vector);
  d[0] = complex<double>{sums[0], sums[2]};
  d[1] = complex<double>{sums[1], sums[3]};
}

}  // namespace cb

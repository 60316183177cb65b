// cuteblas prelude, complex products on the float64 tensor cores (sm_80): D (8, 8) += A (8, 4) B (8, 4)^T by a warp.
namespace cb {

// The sign bit alone: no work for the float64 unit, which the tensor cores keep busy.
template <bool Minus> CB_DEVICE double with_sign(double x) {
  return Minus ? __hiloint2double(__double2hiint(x) ^ static_cast<int>(0x80000000u), __double2loint(x)) : x;
}

// A complex number is the matrix ((re, -im), (im, re)): the real and imaginary parts of 8 rows of C are the 16 rows of one real
// product, the real and imaginary parts of 4 columns of A and B its 8 columns. A lane holds an element of A and one of B, as they lie
// in memory, and two of C. Conjugation changes signs of the matrix alone. Older than sm_90, the four quarters are products of 8 x 8 x 4.
template <bool ConjA = false, bool ConjB = false>
CB_DEVICE void complex_mma_m8n8k4(complex<double>* d, complex<double> const* a, complex<double> const* b) {
  double const a00 = a->re, a10 = with_sign<ConjA>(a->im), a01 = with_sign<ConjA == ConjB>(a->im), a11 = with_sign<ConjB>(a->re);
#if __CUDA_ARCH__ >= 900
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+d"(d[0].re), "+d"(d[1].re), "+d"(d[0].im), "+d"(d[1].im)
               : "d"(a00), "d"(a10), "d"(a01), "d"(a11), "d"(b->re), "d"(b->im));
#else
  asm volatile("{\n"
               "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%4}, {%8}, {%0, %1};\n"
               "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%2, %3}, {%5}, {%8}, {%2, %3};\n"
               "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%6}, {%9}, {%0, %1};\n"
               "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%2, %3}, {%7}, {%9}, {%2, %3};\n"
               "}"
               : "+d"(d[0].re), "+d"(d[1].re), "+d"(d[0].im), "+d"(d[1].im)
               : "d"(a00), "d"(a10), "d"(a01), "d"(a11), "d"(b->re), "d"(b->im));
#endif
}

}  // namespace cb

// cuteblas prelude, warp-wide matrix loads (sm_75): 8 x 8 matrices of 16-bit elements from shared memory into registers.
namespace cb {

// Lane i gives the address of row i % 8 of matrix i / 8: 16 bytes. Word j of lane l gets the two elements of matrix j at row l / 4,
// columns 2 (l % 4) and 2 (l % 4) + 1; transposed, at column l / 4 of rows 2 (l % 4) and 2 (l % 4) + 1 (PTX ISA, "ldmatrix").
template <class T> CB_DEVICE void ldmatrix_x4(unsigned* r, T const* s) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(s)) : "memory");
}
template <class T> CB_DEVICE void ldmatrix_x4_trans(unsigned* r, T const* s) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(s)) : "memory");
}

}  // namespace cb

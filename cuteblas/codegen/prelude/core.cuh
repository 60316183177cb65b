// cuteblas prelude: types, memory accesses, barriers and arithmetic of generated kernels.
namespace cb {

#define CB_DEVICE __device__ __forceinline__
#define CB_TABLE static __device__ constexpr

// -- Types ---------------------------------------------------------------------------------------------------------------
struct half { unsigned short bits; };
struct bfloat16 { unsigned short bits; };
template <class T> struct alignas(2 * sizeof(T)) complex { T re, im; };
struct alignas(16) b128 { unsigned int word[4]; };

template <class T, int N> struct alignas(N * sizeof(T)) vec { T value[N]; };

template <class A, class B> CB_DEVICE auto min(A a, B b) -> decltype(a + b) { return a < b ? a : b; }
template <class A, class B> CB_DEVICE auto max(A a, B b) -> decltype(a + b) { return a > b ? a : b; }

template <class T> CB_DEVICE T zero() { return T{}; }
template <class T> CB_DEVICE T one() { return T{1}; }
template <class T> CB_DEVICE bool is_zero(T x) { return x == T{}; }
template <class T> CB_DEVICE bool is_zero(complex<T> x) { return x.re == T{} && x.im == T{}; }
CB_DEVICE bool is_zero(half x) { return (x.bits & 0x7fffu) == 0; }
CB_DEVICE bool is_zero(bfloat16 x) { return (x.bits & 0x7fffu) == 0; }

// -- Conversions ---------------------------------------------------------------------------------------------------------
CB_DEVICE float to_float(half x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits)); return r; }
CB_DEVICE float to_float(bfloat16 x) { return __int_as_float(static_cast<int>(static_cast<unsigned>(x.bits) << 16)); }

// A float that rounds to any shorter format as x itself does: if x is not a float, the neighbour towards zero or away from it whose
// last bit is set.
CB_DEVICE float round_to_odd(double x) {
  float const nearest = static_cast<float>(x);
  double const back = nearest;
  if (back == x || x != x) return nearest;
  int const bits = __float_as_int(nearest);
  return __int_as_float((bits - (fabs(back) > fabs(x) ? 1 : 0)) | 1);
}

template <class Out> struct converter {
  static CB_DEVICE Out from(half x) { return static_cast<Out>(to_float(x)); }
  static CB_DEVICE Out from(bfloat16 x) { return static_cast<Out>(to_float(x)); }
  template <class In> static CB_DEVICE Out from(In const& x) { return static_cast<Out>(x); }
};
template <> struct converter<bool> {
  template <class In> static CB_DEVICE bool from(In const& x) { return !is_zero(x); }
};
template <> struct converter<half> {
  static CB_DEVICE half from(half x) { return x; }
  static CB_DEVICE half from(bfloat16 x) { return from(to_float(x)); }
  static CB_DEVICE half from(float x) { half r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
  static CB_DEVICE half from(double x) { return from(round_to_odd(x)); }
  template <class In> static CB_DEVICE half from(In x) { return from(static_cast<float>(x)); }
};
template <> struct converter<bfloat16> {
  static CB_DEVICE bfloat16 from(bfloat16 x) { return x; }
  static CB_DEVICE bfloat16 from(half x) { return from(to_float(x)); }
  static CB_DEVICE bfloat16 from(float x) {
    bfloat16 r;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
#else
    unsigned u = static_cast<unsigned>(__float_as_int(x));
    unsigned rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;              // to nearest, ties to even
    r.bits = static_cast<unsigned short>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
#endif
    return r;
  }
  static CB_DEVICE bfloat16 from(double x) { return from(round_to_odd(x)); }
  template <class In> static CB_DEVICE bfloat16 from(In x) { return from(static_cast<float>(x)); }
};
template <class T> struct converter<complex<T>> {
  template <class S> static CB_DEVICE complex<T> from(complex<S> const& x) { return complex<T>{static_cast<T>(x.re), static_cast<T>(x.im)}; }
  template <class In> static CB_DEVICE complex<T> from(In const& x) { return complex<T>{converter<T>::from(x), T{}}; }
};
template <class Out, class In> CB_DEVICE Out convert(In const& x) { return converter<Out>::from(x); }

// -- Arithmetic ----------------------------------------------------------------------------------------------------------
// Unsigned arithmetic at least as wide as int, in which signed and narrow integers wrap as NumPy's do.
template <int Bytes> struct wrap { using type = unsigned int; };
template <> struct wrap<8> { using type = unsigned long long; };

template <class Acc> struct arithmetic {                                     // integers
  using U = typename wrap<sizeof(Acc)>::type;
  static CB_DEVICE Acc mul(Acc a, Acc b) { return static_cast<Acc>(static_cast<U>(a) * static_cast<U>(b)); }
  static CB_DEVICE Acc add(Acc a, Acc b) { return static_cast<Acc>(static_cast<U>(a) + static_cast<U>(b)); }
  static CB_DEVICE Acc mac(Acc acc, Acc a, Acc b) { return static_cast<Acc>(static_cast<U>(acc) + static_cast<U>(a) * static_cast<U>(b)); }
};
template <> struct arithmetic<bool> {
  static CB_DEVICE bool mul(bool a, bool b) { return a && b; }
  static CB_DEVICE bool add(bool a, bool b) { return a || b; }
  static CB_DEVICE bool mac(bool acc, bool a, bool b) { return acc || (a && b); }
};
template <> struct arithmetic<float> {
  static CB_DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
  static CB_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
  static CB_DEVICE float mac(float acc, float a, float b) { return __fmaf_rn(a, b, acc); }
};
template <> struct arithmetic<double> {
  static CB_DEVICE double mul(double a, double b) { return __dmul_rn(a, b); }
  static CB_DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
  static CB_DEVICE double mac(double acc, double a, double b) { return __fma_rn(a, b, acc); }
};
template <class T> struct arithmetic<complex<T>> {
  using C = complex<T>;
  using R = arithmetic<T>;
  static CB_DEVICE C mul(C a, C b) { return C{R::mac(-R::mul(a.im, b.im), a.re, b.re), R::mac(R::mul(a.im, b.re), a.re, b.im)}; }
  static CB_DEVICE C add(C a, C b) { return C{R::add(a.re, b.re), R::add(a.im, b.im)}; }
  static CB_DEVICE C mac(C acc, C a, C b) {
    acc.re = R::mac(acc.re, a.re, b.re);
    acc.re = R::mac(acc.re, -a.im, b.im);
    acc.im = R::mac(acc.im, a.re, b.im);
    acc.im = R::mac(acc.im, a.im, b.re);
    return acc;
  }
};
template <bool Conj, class T> struct conjugate { static CB_DEVICE T of(T const& x) { return x; } };
template <class T> struct conjugate<true, complex<T>> { static CB_DEVICE complex<T> of(complex<T> const& x) { return complex<T>{x.re, -x.im}; } };

template <bool ConjA = false, bool ConjB = false, class Acc, class A, class B> CB_DEVICE void mac(Acc& acc, A const& a, B const& b) {
  acc = arithmetic<Acc>::mac(acc, convert<Acc>(conjugate<ConjA, A>::of(a)), convert<Acc>(conjugate<ConjB, B>::of(b)));
}
// The same for float32, where the compiler leaves such products in the order in which they are written.
CB_DEVICE void mac_in_order(float& acc, float a, float b) { asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(acc) : "f"(a), "f"(b)); }
// Four products of signed bytes held in words; the sum wraps (sm_61).
CB_DEVICE int dp4a(int acc, unsigned a, unsigned b) {
  int r;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(acc));
  return r;
}
CB_DEVICE void mac_dp4a(int& acc, unsigned a, unsigned b) { acc = dp4a(acc, a, b); }
template <class T> CB_DEVICE T add(T const& a, T const& b) { return arithmetic<T>::add(a, b); }
template <class Out, class Acc, class S> CB_DEVICE Out scale(Acc const& acc, S alpha) { return convert<Out>(arithmetic<S>::mul(alpha, convert<S>(acc))); }

// -- Ordinary memory -----------------------------------------------------------------------------------------------------
extern __shared__ __align__(1024) unsigned char dynamic_shared_memory[];
template <class T> CB_DEVICE T* shared_memory(int byte_offset) { return reinterpret_cast<T*>(dynamic_shared_memory + byte_offset); }
CB_DEVICE unsigned shared_address(void const* s) { return static_cast<unsigned>(__cvta_generic_to_shared(s)); }

template <int N, class T> CB_DEVICE void read_vector(T* r, T const* m) {
  vec<T, N> v = *reinterpret_cast<vec<T, N> const*>(m);
#pragma unroll
  for (int i = 0; i < N; ++i) r[i] = v.value[i];
}
// Memory may hold any byte for true; bools in registers are 0 and 1.
template <int N> CB_DEVICE void read_vector(bool* r, bool const* m) {
  unsigned char bytes[N];
  read_vector<N>(bytes, reinterpret_cast<unsigned char const*>(m));
#pragma unroll
  for (int i = 0; i < N; ++i) r[i] = bytes[i] != 0;
}
template <int N, class T> CB_DEVICE void write_vector(T* m, T const* r) {
  vec<T, N> v;
#pragma unroll
  for (int i = 0; i < N; ++i) v.value[i] = r[i];
  *reinterpret_cast<vec<T, N>*>(m) = v;
}
template <int N, class T> CB_DEVICE void load_global(T* r, T const* g) { read_vector<N>(r, g); }
template <int N, class T> CB_DEVICE void load_global(T* r, T const* g, bool p) {
#pragma unroll
  for (int i = 0; i < N; ++i) r[i] = zero<T>();
  if (p) read_vector<N>(r, g);
}
template <int N, class T> CB_DEVICE void store_global(T* g, T const* r) { write_vector<N>(g, r); }
template <int N, class T> CB_DEVICE void store_global(T* g, T const* r, bool p) { if (p) write_vector<N>(g, r); }
template <int N, class T> CB_DEVICE void load_shared(T* r, T const* s) { read_vector<N>(r, s); }
// Of which a part may never have been written: what comes of that is cut off.
template <int N, class T> CB_DEVICE void load_covering(T* r, T const* s) { read_vector<N>(r, s); }
template <int N, class T> CB_DEVICE void store_shared(T* s, T const* r) { write_vector<N>(s, r); }
// The word that begins some bits behind a word, and the word of two elements.
CB_DEVICE void load_shared_between(unsigned& r, unsigned const* s, int bits) { r = __funnelshift_r(s[0], s[1], bits); }
CB_DEVICE void load_shared_pair(unsigned& r, unsigned short const* first, unsigned short const* second) {
  r = __byte_perm(*first, *second, 0x5410);
}

// An address of global memory that the compiler computes here, once, instead of wherever it is used.
template <class T> CB_DEVICE T* settled(T* g) {
  asm("" : "+l"(g));
  __builtin_assume(__isGlobal(g));
  return g;
}

// The last multiple of some bytes that is not behind an address (by subtraction: the compiler sees that it is still global memory).
template <class To, int Bytes, class From> CB_DEVICE To* aligned_down(From* g) {
  unsigned long long const behind = reinterpret_cast<unsigned long long>(g) & (Bytes - 1);
  return reinterpret_cast<To*>(const_cast<char*>(reinterpret_cast<char const*>(g)) - behind);
}
// The word that begins some bits behind the first of two neighbours.
CB_DEVICE unsigned between_words(unsigned first, unsigned second, int bits) { return __funnelshift_r(first, second, bits); }

CB_DEVICE unsigned load_flag(unsigned const* g) { unsigned v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(g) : "memory"); return v; }
// How many have arrived before: who sees them sees what they have written.
CB_DEVICE unsigned count_arrival(unsigned* g) {
  unsigned v;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(v) : "l"(g) : "memory");
  return v;
}
CB_DEVICE void store_flag(unsigned* g, unsigned v) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(g), "r"(v) : "memory"); }

// -- Asynchronous copies from global to shared memory (sm_80; before that, ordinary ones) -------------------------------------
template <int N, class T> CB_DEVICE void cp_async(T* s, T const* g, bool p) {
  constexpr int bytes = N * static_cast<int>(sizeof(T));
#if __CUDA_ARCH__ >= 800
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(s)), "l"(g), "r"(p ? 16 : 0));
    return;
  } else if constexpr (bytes == 4 || bytes == 8) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(s)), "l"(g), "n"(bytes), "r"(p ? bytes : 0));
    return;
  }
#endif
  T r[N];
  load_global<N>(r, g, p);
  store_shared<N>(s, r);
}
// Words of which so many bytes are read, a multiple of 2; the others are zero.
template <int N, class T> CB_DEVICE void cp_async_part(T* s, T const* g, int bytes) {
  static_assert(N == 1 && sizeof(T) == 4, "a word is copied in part");
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(s)), "l"(g), "r"(bytes));
#else
  *s = bytes == 4 ? *g : bytes == 2 ? static_cast<T>(*reinterpret_cast<unsigned short const*>(g)) : T{};
#endif
}
CB_DEVICE void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}
template <int N> CB_DEVICE void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// -- Barriers ------------------------------------------------------------------------------------------------------------
CB_DEVICE void syncthreads() { __syncthreads(); }
CB_DEVICE bool syncthreads_or(bool x) { return __syncthreads_or(x) != 0; }
CB_DEVICE void syncwarp() { __syncwarp(); }
// What the lane has whose number differs from this one's in the bits of a mask.
template <class T> CB_DEVICE T shuffle_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
template <class R> CB_DEVICE complex<R> shuffle_xor(complex<R> x, int mask) {
  return complex<R>{shuffle_xor(x.re, mask), shuffle_xor(x.im, mask)};
}
CB_DEVICE void named_barrier_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
CB_DEVICE void named_barrier_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// -- Launches that overlap (PTX ISA, "griddepcontrol"; sm_90) ------------------------------------------------------------------
CB_DEVICE void next_launch_may_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
CB_DEVICE void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// -- Transposes of small blocks held in words --------------------------------------------------------------------------------
template <class To, class From> CB_DEVICE To* recast(From* r) { return reinterpret_cast<To*>(r); }

CB_DEVICE void transpose_b16x2(unsigned (&w)[2]) {
  unsigned const low = __byte_perm(w[0], w[1], 0x5410), high = __byte_perm(w[0], w[1], 0x7632);
  w[0] = low, w[1] = high;
}
CB_DEVICE void transpose_b8x4(unsigned (&w)[4]) {
  unsigned const a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[0], w[1], 0x7362);
  unsigned const c = __byte_perm(w[2], w[3], 0x5140), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, c, 0x5410), w[1] = __byte_perm(a, c, 0x7632);
  w[2] = __byte_perm(b, d, 0x5410), w[3] = __byte_perm(b, d, 0x7632);
}

}  // namespace cb

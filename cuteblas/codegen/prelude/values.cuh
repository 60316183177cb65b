// cuteblas prelude, functions of values: what an epilogue computes between a sum and memory, under NumPy's names and by its rules.
// Additions and products are the rounding intrinsics: the compiler must not fuse them, so that every result is NumPy's.
namespace cb {

// -- Numbers without a literal -------------------------------------------------------------------------------------------
template <class T> CB_DEVICE T infinity(int sign);
template <> CB_DEVICE float infinity<float>(int sign) { return __int_as_float(sign < 0 ? 0xff800000 : 0x7f800000); }
template <> CB_DEVICE double infinity<double>(int sign) { return __longlong_as_double(sign < 0 ? 0xfff0000000000000ll : 0x7ff0000000000000ll); }
template <class T> CB_DEVICE T not_a_number(int sign);
template <> CB_DEVICE float not_a_number<float>(int sign) { return __int_as_float(sign < 0 ? 0xffc00000 : 0x7fc00000); }
template <> CB_DEVICE double not_a_number<double>(int sign) { return __longlong_as_double(sign < 0 ? 0xfff8000000000000ll : 0x7ff8000000000000ll); }

// -- Arithmetic; integers wrap -------------------------------------------------------------------------------------------
template <class T> CB_DEVICE T multiply(T a, T b) { return arithmetic<T>::mul(a, b); }

template <class T> CB_DEVICE T subtract(T a, T b) { using U = typename wrap<sizeof(T)>::type; return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); }
CB_DEVICE float subtract(float a, float b) { return __fsub_rn(a, b); }
CB_DEVICE double subtract(double a, double b) { return __dsub_rn(a, b); }
template <class T> CB_DEVICE complex<T> subtract(complex<T> a, complex<T> b) { return complex<T>{subtract(a.re, b.re), subtract(a.im, b.im)}; }

template <class T> CB_DEVICE T negative(T x) { return subtract(T{}, x); }
CB_DEVICE float negative(float x) { return -x; }
CB_DEVICE double negative(double x) { return -x; }
template <class T> CB_DEVICE complex<T> negative(complex<T> x) { return complex<T>{-x.re, -x.im}; }

template <class T> CB_DEVICE T absolute(T x) { return x < T{} ? negative(x) : x; }
CB_DEVICE float absolute(float x) { return fabsf(x); }
CB_DEVICE double absolute(double x) { return fabs(x); }
CB_DEVICE float absolute(complex<float> x) { return hypotf(x.re, x.im); }
CB_DEVICE double absolute(complex<double> x) { return hypot(x.re, x.im); }

CB_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
CB_DEVICE double divide(double a, double b) { return __ddiv_rn(a, b); }
// Smith's algorithm: numerator and denominator are scaled by the larger part of b, so that no square can overflow.
template <class T> CB_DEVICE complex<T> divide(complex<T> a, complex<T> b) {
  bool const by_real = absolute(b.re) >= absolute(b.im);
  T const large = by_real ? b.re : b.im, small = by_real ? b.im : b.re;
  if (large == T{}) return complex<T>{divide(a.re, absolute(large)), divide(a.im, absolute(large))};
  T const ratio = divide(small, large), scale = divide(T{1}, add(large, multiply(small, ratio)));
  if (by_real) return complex<T>{multiply(add(a.re, multiply(a.im, ratio)), scale), multiply(subtract(a.im, multiply(a.re, ratio)), scale)};
  return complex<T>{multiply(add(multiply(a.re, ratio), a.im), scale), multiply(subtract(multiply(a.im, ratio), a.re), scale)};
}

template <class T> CB_DEVICE T square(T x) { return multiply(x, x); }
CB_DEVICE float reciprocal(float x) { return __frcp_rn(x); }
CB_DEVICE double reciprocal(double x) { return __drcp_rn(x); }
template <class T> CB_DEVICE complex<T> reciprocal(complex<T> x) { return divide(complex<T>{T{1}, T{}}, x); }

CB_DEVICE float power(float a, float b) { return powf(a, b); }
CB_DEVICE double power(double a, double b) { return pow(a, b); }
template <class T> CB_DEVICE T power(T base, T exponent) {                   // NumPy refuses negative exponents; here they give 0, or 1 / base
  if (exponent < T{}) return base == T{1} ? base : absolute(base) == T{1} ? (exponent & 1 ? base : T{1}) : T{};
  T result{1};
  for (; exponent; exponent >>= 1, base = multiply(base, base))
    if (exponent & 1) result = multiply(result, base);
  return result;
}

// -- Order: NaN wins, as in NumPy ----------------------------------------------------------------------------------------
template <class T> CB_DEVICE T minimum(T a, T b) { return a < b || a != a ? a : b; }
template <class T> CB_DEVICE T maximum(T a, T b) { return a > b || a != a ? a : b; }
template <class T> CB_DEVICE T sign(T x) { return x > T{} ? T{1} : x < T{} ? negative(T{1}) : x == T{} ? T{} : x; }
template <class T> CB_DEVICE bool less(T a, T b) { return a < b; }
template <class T> CB_DEVICE bool less_equal(T a, T b) { return a <= b; }
template <class T> CB_DEVICE bool greater(T a, T b) { return a > b; }
template <class T> CB_DEVICE bool greater_equal(T a, T b) { return a >= b; }
template <class T> CB_DEVICE bool equal(T a, T b) { return a == b; }
template <class T> CB_DEVICE bool equal(complex<T> a, complex<T> b) { return a.re == b.re && a.im == b.im; }
template <class T> CB_DEVICE bool not_equal(T a, T b) { return !equal(a, b); }
template <class T> CB_DEVICE bool isnan(T x) { return not_equal(x, x); }

// -- Logic and choice ----------------------------------------------------------------------------------------------------
CB_DEVICE bool logical_and(bool a, bool b) { return a && b; }
CB_DEVICE bool logical_or(bool a, bool b) { return a || b; }
CB_DEVICE bool logical_xor(bool a, bool b) { return a != b; }
CB_DEVICE bool logical_not(bool x) { return !x; }
template <class T> CB_DEVICE T where(bool condition, T a, T b) { return condition ? a : b; }

// -- Complex numbers -----------------------------------------------------------------------------------------------------
template <class T> CB_DEVICE T real(complex<T> x) { return x.re; }
template <class T> CB_DEVICE T imag(complex<T> x) { return x.im; }
template <class T> CB_DEVICE complex<T> conj(complex<T> x) { return complex<T>{x.re, -x.im}; }

// -- Elementary functions: those of the CUDA math library, without fast-math -------------------------------------------------
#define CB_ELEMENTARY(name, of_float, of_double)              \
  CB_DEVICE float name(float x) { return of_float(x); }       \
  CB_DEVICE double name(double x) { return of_double(x); }
CB_ELEMENTARY(floor, ::floorf, ::floor)
CB_ELEMENTARY(ceil, ::ceilf, ::ceil)
CB_ELEMENTARY(rint, ::rintf, ::rint)
CB_ELEMENTARY(sqrt, __fsqrt_rn, __dsqrt_rn)
CB_ELEMENTARY(exp, ::expf, ::exp)
CB_ELEMENTARY(exp2, ::exp2f, ::exp2)
CB_ELEMENTARY(expm1, ::expm1f, ::expm1)
CB_ELEMENTARY(log, ::logf, ::log)
CB_ELEMENTARY(log2, ::log2f, ::log2)
CB_ELEMENTARY(log1p, ::log1pf, ::log1p)
CB_ELEMENTARY(sin, ::sinf, ::sin)
CB_ELEMENTARY(cos, ::cosf, ::cos)
CB_ELEMENTARY(tanh, ::tanhf, ::tanh)
CB_ELEMENTARY(erf, ::erff, ::erf)
#undef CB_ELEMENTARY

// 1 / (1 + exp(-x)) without the overflow at large negative x.
template <class T> CB_DEVICE T sigmoid(T x) {
  T const e = exp(-absolute(x));
  return divide(x >= T{} ? T{1} : e, add(T{1}, e));
}

}  // namespace cb

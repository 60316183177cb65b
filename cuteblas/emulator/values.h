// The host side of the prelude's functions of values: what epilogues compute, under NumPy's names and by its rules. The compiler is
// told not to fuse additions with products, so that every result is NumPy's.
#pragma once

namespace cb {

// Numbers without a literal

template <class T>
T infinity(int sign) {
    return static_cast<T>(sign < 0 ? -__builtin_inf() : __builtin_inf());
}

template <class T>
T not_a_number(int sign) {
    return static_cast<T>(__builtin_copysign(__builtin_nan(""), sign));
}

// Arithmetic; integers wrap

template <class T>
T subtract(T const& a, T const& b) {
    if constexpr (detail::is_complex<T>) {
        return T{a.re - b.re, a.im - b.im};
    } else if constexpr (detail::is_integer<T>) {
        return static_cast<T>(static_cast<uint64>(a) - static_cast<uint64>(b));
    } else {
        return a - b;
    }
}

template <class T>
T negative(T const& x) {
    if constexpr (detail::is_complex<T>) {
        return T{-x.re, -x.im};
    } else if constexpr (detail::is_integer<T>) {
        return subtract(T{}, x);
    } else {
        return -x;
    }
}

template <class T>
T absolute(T x) {
    return x < T{} ? negative(x) : x;
}
inline float absolute(float x) { return __builtin_fabsf(x); }
inline double absolute(double x) { return __builtin_fabs(x); }
inline float absolute(complex<float> x) { return __builtin_hypotf(x.re, x.im); }
inline double absolute(complex<double> x) { return __builtin_hypot(x.re, x.im); }

// Complex numbers by Smith's algorithm: numerator and denominator are scaled by the larger part of b, so that no square can overflow.
template <class T>
T divide(T const& a, T const& b) {
    if constexpr (detail::is_complex<T>) {
        bool const by_real = absolute(b.re) >= absolute(b.im);
        auto const large = by_real ? b.re : b.im, small = by_real ? b.im : b.re;
        if (large == 0) return T{a.re / absolute(large), a.im / absolute(large)};
        auto const ratio = small / large, scale = 1 / (large + small * ratio);
        if (by_real) return T{(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
        return T{(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
    } else {
        return a / b;
    }
}

template <class T>
T square(T const& x) {
    return multiply(x, x);
}

template <class T>
T reciprocal(T const& x) {
    return divide(one<T>(), x);
}

template <class T>
T power(T base, T exponent) {  // NumPy refuses negative exponents; here they give 0, or 1 / base
    if (exponent < T{}) return base == T{1} ? base : absolute(base) == T{1} ? (exponent & 1 ? base : T{1}) : T{};
    T result{1};
    for (; exponent; exponent >>= 1, base = multiply(base, base))
        if (exponent & 1) result = multiply(result, base);
    return result;
}
inline float power(float a, float b) { return __builtin_powf(a, b); }
inline double power(double a, double b) { return __builtin_pow(a, b); }

// Order: NaN wins, as in NumPy

template <class T>
T minimum(T const& a, T const& b) {
    return a < b || a != a ? a : b;
}

template <class T>
T maximum(T const& a, T const& b) {
    return a > b || a != a ? a : b;
}

template <class T>
T sign(T const& x) {
    return x > T{} ? T{1} : x < T{} ? negative(T{1}) : x == T{} ? T{} : x;
}

template <class T>
bool less(T const& a, T const& b) {
    return a < b;
}

template <class T>
bool less_equal(T const& a, T const& b) {
    return a <= b;
}

template <class T>
bool greater(T const& a, T const& b) {
    return a > b;
}

template <class T>
bool greater_equal(T const& a, T const& b) {
    return a >= b;
}

template <class T>
bool equal(T const& a, T const& b) {
    if constexpr (detail::is_complex<T>) {
        return a.re == b.re && a.im == b.im;
    } else {
        return a == b;
    }
}

template <class T>
bool not_equal(T const& a, T const& b) {
    return !equal(a, b);
}

template <class T>
bool isnan(T const& x) {
    return not_equal(x, x);
}

// Logic and choice

inline bool logical_and(bool a, bool b) { return a && b; }
inline bool logical_or(bool a, bool b) { return a || b; }
inline bool logical_xor(bool a, bool b) { return a != b; }
inline bool logical_not(bool x) { return !x; }

template <class T>
T where(bool condition, T const& a, T const& b) {
    return condition ? a : b;
}

// Complex numbers

template <class T>
T real(complex<T> const& x) {
    return x.re;
}

template <class T>
T imag(complex<T> const& x) {
    return x.im;
}

template <class T>
complex<T> conj(complex<T> const& x) {
    return {x.re, -x.im};
}

// Elementary functions: those of the C library

#define CB_ELEMENTARY(name)                                        \
    inline float name(float x) { return __builtin_##name##f(x); }  \
    inline double name(double x) { return __builtin_##name(x); }
CB_ELEMENTARY(floor)
CB_ELEMENTARY(ceil)
CB_ELEMENTARY(rint)
CB_ELEMENTARY(sqrt)
CB_ELEMENTARY(exp)
CB_ELEMENTARY(exp2)
CB_ELEMENTARY(expm1)
CB_ELEMENTARY(log)
CB_ELEMENTARY(log2)
CB_ELEMENTARY(log1p)
CB_ELEMENTARY(sin)
CB_ELEMENTARY(cos)
CB_ELEMENTARY(tanh)
CB_ELEMENTARY(erf)
#undef CB_ELEMENTARY

// 1 / (1 + exp(-x)) without the overflow at large negative x.
template <class T>
T sigmoid(T const& x) {
    T const e = exp(-absolute(x));
    return (x >= 0 ? T{1} : e) / (1 + e);
}

}  // namespace cb

"""The functions of the Array API standard, version 2024.12, by their parameters."""

__all__ = ["CONSTANTS", "DTYPES", "FFT", "LINALG", "LISTS", "MAIN", "NUMPYS", "VERSION"]

VERSION = "2024.12"

CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float32", "float64", "complex64", "complex128")

NUMPYS = ("cumsum", "float16", "gradient", "isin", "lib", "pad", "quantile", "transpose")
"""Names of NumPy beyond the standard, for which xarray looks."""

LISTS = frozenset({"broadcast_arrays", "meshgrid"})
"""Functions that return lists, where NumPy's and CuPy's return tuples."""

MAIN = {
    # creation
    "start, /, stop=None, step=1, *, dtype=None, device=None": "arange",
    "shape, *, dtype=None, device=None": "empty ones zeros",
    "x, /, *, dtype=None, device=None": "empty_like ones_like zeros_like",
    "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None": "eye",
    "shape, fill_value, *, dtype=None, device=None": "full",
    "x, /, fill_value, *, dtype=None, device=None": "full_like",
    "start, stop, /, num, *, dtype=None, device=None, endpoint=True": "linspace",
    "*arrays, indexing='xy'": "meshgrid",
    "x, /, *, k=0": "tril triu",
    # data types
    "x, dtype, /, *, copy=True, device=None": "astype",
    "from_, to, /": "can_cast",
    "type, /": "finfo iinfo",
    "dtype, kind": "isdtype",
    "*arrays_and_dtypes": "result_type",
    # elements
    "x, /": "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log "
    "log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan tanh trunc "
    "matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values",
    "x1, x2, /": "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
    "floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor matmul "
    "maximum minimum multiply nextafter not_equal pow remainder subtract",
    "x, /, min=None, max=None": "clip",
    # indices and searches
    "x, indices, /, *, axis=None": "take",
    "x, indices, /, *, axis=-1": "take_along_axis",
    "x, /, *, axis=None, keepdims=False": "all any argmax argmin count_nonzero max mean min",
    "x1, x2, /, *, side='left', sorter=None": "searchsorted",
    "condition, x1, x2, /": "where",
    "x, /, *, axis=-1, descending=False, stable=True": "argsort sort",
    # products
    "x1, x2, /, *, axes=2": "tensordot",
    "x1, x2, /, *, axis=-1": "vecdot",
    # shapes
    "*arrays": "broadcast_arrays",
    "x, /, shape": "broadcast_to",
    "arrays, /, *, axis=0": "concat stack",
    "x, /, axis": "expand_dims squeeze",
    "x, /, *, axis=None": "flip",
    "x, source, destination, /": "moveaxis",
    "x, /, axes": "permute_dims",
    "x, repeats, /, *, axis=None": "repeat",
    "x, /, shape, *, copy=None": "reshape",
    "x, /, shift, *, axis=None": "roll",
    "x, repetitions, /": "tile",
    "x, /, *, axis=0": "unstack",
    # sums
    "x, /, *, axis=None, dtype=None, include_initial=False": "cumulative_prod cumulative_sum",
    "x, /, *, axis=None, dtype=None, keepdims=False": "prod sum",
    "x, /, *, axis=None, correction=0.0, keepdims=False": "std var",
    "x, /, *, axis=-1, n=1, prepend=None, append=None": "diff",
}

LINALG = {
    "x, /, *, upper=False": "cholesky",
    "x1, x2, /, *, axis=-1": "cross vecdot",
    "x, /": "det eigh eigvalsh inv matrix_transpose slogdet svdvals",
    "x, /, *, offset=0": "diagonal",
    "x1, x2, /": "matmul outer solve",
    "x, /, *, keepdims=False, ord='fro'": "matrix_norm",
    "x, n, /": "matrix_power",
    "x, /, *, rtol=None": "matrix_rank pinv",
    "x, /, *, mode='reduced'": "qr",
    "x, /, *, full_matrices=True": "svd",
    "x1, x2, /, *, axes=2": "tensordot",
    "x, /, *, offset=0, dtype=None": "trace",
    "x, /, *, axis=None, keepdims=False, ord=2": "vector_norm",
}

FFT = {
    "x, /, *, n=None, axis=-1, norm='backward'": "fft hfft ifft ihfft irfft rfft",
    "x, /, *, s=None, axes=None, norm='backward'": "fftn ifftn irfftn rfftn",
    "n, /, *, d=1.0, dtype=None, device=None": "fftfreq rfftfreq",
    "x, /, *, axes=None": "fftshift ifftshift",
}

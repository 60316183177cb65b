"""What the Array API standard, version 2024.12, says about its functions: parameters, dtypes that
they take and return.

Written from the text of the standard (https://data-apis.org/array-api/2024.12/), independently of
the package.
"""

from __future__ import annotations

from itertools import combinations

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REAL_FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
KINDS = {
    "all": ("bool", *INTEGERS, *REAL_FLOATS, *COMPLEX),
    "numeric": (*INTEGERS, *REAL_FLOATS, *COMPLEX),
    "real": (*INTEGERS, *REAL_FLOATS),
    "floating": (*REAL_FLOATS, *COMPLEX),
    "real floating": REAL_FLOATS,
    "complex floating": COMPLEX,
    "integral": INTEGERS,
    "integral or bool": ("bool", *INTEGERS),
    "signed integer": INTEGERS[:4],
    "unsigned integer": INTEGERS[4:],
    "bool": ("bool",),
}

# Functions of one array, element by element: what they take, and whether they return it, bool, or
# its real type.
UNARY = {
    ("numeric", "same"): "conj negative positive round sign square",
    ("numeric", "real"): "abs real",
    ("real", "same"): "ceil floor trunc",
    (
        "floating",
        "same"
    ): "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 reciprocal sin sinh sqrt tan "
    "tanh",
    ("integral or bool", "same"): "bitwise_invert",
    ("numeric", "bool"): "isfinite isinf isnan",
    ("real floating", "bool"): "signbit",
    ("bool", "bool"): "logical_not",
    ("complex floating", "real"): "imag",
}

# The same of two arrays; what they return is promoted first.
BINARY = {
    ("numeric", "same"): "add multiply subtract pow",
    ("real", "same"): "floor_divide remainder maximum minimum",
    ("floating", "same"): "divide",
    ("real floating", "same"): "atan2 copysign hypot logaddexp nextafter",
    ("integral or bool", "same"): "bitwise_and bitwise_or bitwise_xor",
    ("integral", "same"): "bitwise_left_shift bitwise_right_shift",
    ("all", "bool"): "equal not_equal",
    ("real", "bool"): "greater greater_equal less less_equal",
    ("bool", "bool"): "logical_and logical_or logical_xor",
}

OPERATORS = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
             "floordiv": "floor_divide", "mod": "remainder", "pow": "pow", "and": "bitwise_and",
             "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
             "rshift": "bitwise_right_shift", "eq": "equal", "ne": "not_equal", "lt": "less",
             "le": "less_equal", "gt": "greater", "ge": "greater_equal",}

# Promotion of two different types, both orders.
PROMOTIONS = {**{(f"{sign}int{a}", f"{sign}int{b}"): f"{sign}int{b}" for sign in ("", "u")
                 for a, b in combinations((8, 16, 32, 64), 2)},
              **{(f"uint{a}", f"int{b}"): f"int{max(2 * a, b)}" for a in (8, 16, 32)
                 for b in (8, 16, 32, 64)}, ("float32", "float64"): "float64",
              ("complex64", "complex128"): "complex128", ("float32", "complex64"): "complex64",
              ("float32", "complex128"): "complex128", ("float64", "complex64"): "complex128",
              ("float64", "complex128"): "complex128",}

SIGNATURES = {
    "": """
        arange(start, /, stop=None, step=1, *, dtype=None, device=None)
        asarray(obj, /, *, dtype=None, device=None, copy=None)
        empty(shape, *, dtype=None, device=None)
        empty_like(x, /, *, dtype=None, device=None)
        eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
        from_dlpack(x, /, *, device=None, copy=None)
        full(shape, fill_value, *, dtype=None, device=None)
        full_like(x, /, fill_value, *, dtype=None, device=None)
        linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
        meshgrid(*arrays, indexing='xy')
        ones(shape, *, dtype=None, device=None)
        ones_like(x, /, *, dtype=None, device=None)
        tril(x, /, *, k=0)
        triu(x, /, *, k=0)
        zeros(shape, *, dtype=None, device=None)
        zeros_like(x, /, *, dtype=None, device=None)
        astype(x, dtype, /, *, copy=True, device=None)
        can_cast(from_, to, /)
        finfo(type, /)
        iinfo(type, /)
        isdtype(dtype, kind)
        result_type(*arrays_and_dtypes)
        clip(x, /, min=None, max=None)
        take(x, indices, /, *, axis=None)
        take_along_axis(x, indices, /, *, axis=-1)
        matmul(x1, x2, /)
        matrix_transpose(x, /)
        tensordot(x1, x2, /, *, axes=2)
        vecdot(x1, x2, /, *, axis=-1)
        broadcast_arrays(*arrays)
        broadcast_to(x, /, shape)
        concat(arrays, /, *, axis=0)
        expand_dims(x, /, axis)
        flip(x, /, *, axis=None)
        moveaxis(x, source, destination, /)
        permute_dims(x, /, axes)
        repeat(x, repeats, /, *, axis=None)
        reshape(x, /, shape, *, copy=None)
        roll(x, /, shift, *, axis=None)
        squeeze(x, /, axis)
        stack(arrays, /, *, axis=0)
        tile(x, repetitions, /)
        unstack(x, /, *, axis=0)
        argmax(x, /, *, axis=None, keepdims=False)
        argmin(x, /, *, axis=None, keepdims=False)
        count_nonzero(x, /, *, axis=None, keepdims=False)
        nonzero(x, /)
        searchsorted(x1, x2, /, *, side='left', sorter=None)
        where(condition, x1, x2, /)
        unique_all(x, /)
        unique_counts(x, /)
        unique_inverse(x, /)
        unique_values(x, /)
        argsort(x, /, *, axis=-1, descending=False, stable=True)
        sort(x, /, *, axis=-1, descending=False, stable=True)
        cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
        cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
        max(x, /, *, axis=None, keepdims=False)
        mean(x, /, *, axis=None, keepdims=False)
        min(x, /, *, axis=None, keepdims=False)
        prod(x, /, *, axis=None, dtype=None, keepdims=False)
        std(x, /, *, axis=None, correction=0.0, keepdims=False)
        sum(x, /, *, axis=None, dtype=None, keepdims=False)
        var(x, /, *, axis=None, correction=0.0, keepdims=False)
        all(x, /, *, axis=None, keepdims=False)
        any(x, /, *, axis=None, keepdims=False)
        diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
    """,
    "linalg": """
        cholesky(x, /, *, upper=False)
        cross(x1, x2, /, *, axis=-1)
        det(x, /)
        diagonal(x, /, *, offset=0)
        eigh(x, /)
        eigvalsh(x, /)
        inv(x, /)
        matmul(x1, x2, /)
        matrix_norm(x, /, *, keepdims=False, ord='fro')
        matrix_power(x, n, /)
        matrix_rank(x, /, *, rtol=None)
        matrix_transpose(x, /)
        outer(x1, x2, /)
        pinv(x, /, *, rtol=None)
        qr(x, /, *, mode='reduced')
        slogdet(x, /)
        solve(x1, x2, /)
        svd(x, /, *, full_matrices=True)
        svdvals(x, /)
        tensordot(x1, x2, /, *, axes=2)
        trace(x, /, *, offset=0, dtype=None)
        vecdot(x1, x2, /, *, axis=-1)
        vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
    """,
    "fft": """
        fft(x, /, *, n=None, axis=-1, norm='backward')
        ifft(x, /, *, n=None, axis=-1, norm='backward')
        fftn(x, /, *, s=None, axes=None, norm='backward')
        ifftn(x, /, *, s=None, axes=None, norm='backward')
        rfft(x, /, *, n=None, axis=-1, norm='backward')
        irfft(x, /, *, n=None, axis=-1, norm='backward')
        rfftn(x, /, *, s=None, axes=None, norm='backward')
        irfftn(x, /, *, s=None, axes=None, norm='backward')
        hfft(x, /, *, n=None, axis=-1, norm='backward')
        ihfft(x, /, *, n=None, axis=-1, norm='backward')
        fftfreq(n, /, *, d=1.0, dtype=None, device=None)
        rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
        fftshift(x, /, *, axes=None)
        ifftshift(x, /, *, axes=None)
    """,
}

# What functions return that is not one array: a sequence of arrays, a named tuple of them, or
# something else.
RETURNS = {
    list: "broadcast_arrays meshgrid",
    tuple: "nonzero unstack",
    bool: "can_cast isdtype",
}
NAMED_TUPLES = {"unique_all": ("values", "indices", "inverse_indices", "counts"),
                "unique_counts": ("values", "counts"),
                "unique_inverse": ("values", "inverse_indices"),
                "linalg.eigh": ("eigenvalues", "eigenvectors"), "linalg.qr": ("Q", "R"),
                "linalg.slogdet": ("sign", "logabsdet"), "linalg.svd": ("U", "S", "Vh"),}
OTHER_RETURNS = frozenset({"finfo", "iinfo", "result_type"})
FLOAT_INFO = {"bits": int, "eps": float, "max": float, "min": float, "smallest_normal": float}
INTEGER_INFO = {"bits": int, "max": int, "min": int}
INFO = {"capabilities": dict, "default_device": str, "default_dtypes": dict, "devices": list,
        "dtypes": dict}

CONSTANTS = {"e": 2.718281828459045, "inf": float("inf"), "nan": float("nan"), "newaxis": None,
             "pi": 3.141592653589793}

ATTRIBUTES = ("dtype", "device", "mT", "ndim", "shape", "size", "T")

METHODS = """
    __abs__(self, /) __add__(self, other, /) __and__(self, other, /) __array_namespace__(self, /, *, api_version=None)
    __bool__(self, /) __complex__(self, /) __dlpack__(self, /, *, stream=None, max_version=None, dl_device=None, copy=None)
    __dlpack_device__(self, /)
    __eq__(self, other, /) __float__(self, /) __floordiv__(self, other, /) __ge__(self, other, /) __getitem__(self, key, /)
    __gt__(self, other, /) __index__(self, /) __int__(self, /) __invert__(self, /) __le__(self, other, /) __lshift__(self, other, /)
    __lt__(self, other, /) __matmul__(self, other, /) __mod__(self, other, /) __mul__(self, other, /) __ne__(self, other, /)
    __neg__(self, /) __or__(self, other, /) __pos__(self, /) __pow__(self, other, /) __rshift__(self, other, /)
    __setitem__(self, key, value, /) __sub__(self, other, /) __truediv__(self, other, /) __xor__(self, other, /)
    to_device(self, device, /, *, stream=None)
"""

"""Arrays of other libraries, through DLPack."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

import cuteblas
from cuteblas import blas
from cuteblas.blas.libraries import _OFFSETS, Relabelled, _name_of, _pointer_of


class Tensor:
    """An array of a library that is neither NumPy nor CuPy and shares nothing but DLPack."""

    def __init__(self, data: np.ndarray, device: tuple[int, int] = (1, 0)):
        self.data = data
        self.device = device

    def __dlpack__(self, **arguments):
        return self.data.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.device

    def __array_namespace__(self, api_version=None):
        return sys.modules["tensors"]

    @property
    def dtype(self):
        return f"tensors.{self.data.dtype}"

    @property
    def shape(self):
        return self.data.shape


class Halves:
    """A bfloat16 tensor that exports capsules of the time before versions, or of today."""

    def __init__(self, bits: np.ndarray, versions: bool):
        self.bits, self.versions, self.dtype, self.shape = bits, versions, "tensors.bfloat16", bits.shape

    def __dlpack__(self, *, stream=None, **versioned):
        if versioned and not self.versions:
            raise TypeError("unexpected keyword arguments")
        return Relabelled(self.bits, code=4).__dlpack__(**versioned)

    def __dlpack_device__(self):
        return 1, 0

    __array_namespace__ = Tensor.__array_namespace__


class Orphan(Tensor):
    """An array of a library that cannot take arrays."""

    __array_namespace__ = None


@pytest.fixture(autouse=True)
def library(monkeypatch):
    module = ModuleType("tensors")
    module.from_dlpack = lambda x: Tensor(np.from_dlpack(x))
    monkeypatch.setitem(sys.modules, "tensors", module)
    monkeypatch.setattr(Tensor, "__module__", "tensors")
    monkeypatch.setattr(Orphan, "__module__", "orphans")


A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 4), np.float32)


def test_result_of_the_same_kind():
    got = blas.sgemm(2, Tensor(A), Tensor(B))
    assert type(got) is Tensor and got.data.flags.f_contiguous
    np.testing.assert_array_equal(got.data, 2 * (A @ B))
    np.testing.assert_array_equal(blas.gemm(1, Tensor(A.T), B.tolist(), trans_a="T").data, A @ B)


def test_in_place_and_without_copies():
    out = Tensor(np.zeros((4, 8), np.float32)[::2, ::2].T)
    memory = out.data
    c = Tensor(np.ones((2, 4), np.float32))
    assert blas.sgemm(1, Tensor(A), Tensor(B),
                      out=Tensor(np.empty((2, 4), np.float32))).data.sum() == (A @ B).sum()
    assert blas.sgemm(1, Tensor(A), Tensor(B), 1, c, overwrite_c=1) is c
    np.testing.assert_array_equal(c.data, A @ B + 1)
    with pytest.raises(ValueError, match=r"takes out of shape \(2, 4\)"):
        blas.sgemm(1, Tensor(A), Tensor(B), out=out)
    assert not memory.any()


def test_scalars():
    got = blas.sgemm(Tensor(np.array(2, np.float32)), Tensor(A), Tensor(B))
    np.testing.assert_array_equal(got.data, 2 * (A @ B))


@pytest.mark.parametrize("versions", [False, True])
def test_bfloat16(versions, monkeypatch):
    def from_dlpack(x):
        capsule = x.__dlpack__(max_version=(1, 0))
        assert b"dltensor" in _name_of(capsule)
        offset = _OFFSETS[_name_of(capsule)]
        assert ctypes.c_uint8.from_address(_pointer_of(capsule, _name_of(capsule))
                                           + offset).value == 4
        return Halves(np.from_dlpack(Relabelled(x, code=1)), versions)

    monkeypatch.setattr(sys.modules["tensors"], "from_dlpack", from_dlpack)
    monkeypatch.setattr(Halves, "__module__", "tensors")
    a, b = (Halves(x.astype(ml_dtypes.bfloat16).view(np.uint16), versions) for x in (A, B))
    got = blas.bgemm(2, a, b)
    assert type(got) is Halves
    np.testing.assert_array_equal(got.bits.view(ml_dtypes.bfloat16).astype(np.float32), 2 * (A @ B))
    if versions:
        out = Halves(np.zeros((2, 8), np.uint16)[:, ::2], versions)
        assert blas.bgemm(1, a, b, out=out) is out
        np.testing.assert_array_equal(out.bits.view(ml_dtypes.bfloat16).astype(np.float32), A @ B)


def test_read_only_memory_stays_as_it_is():
    frozen = np.zeros((2, 4), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writes into out, but out is read-only"):
        blas.sgemm(1, Tensor(A), Tensor(B), out=Tensor(frozen))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            (1, Tensor(A), B),
            "of one array library, but a is a tensors array on the host and b a numpy array on the host"
        ),
        (
            (1, Tensor(A, (4, 0)), B),
            "a Tensor of tensors.float32, is on a device of DLPack's type 4"
        ),
        (
            (1, Tensor(A.astype(object)), B),
            "cannot view a, a Tensor of tensors.object, through DLPack"
        ),
        ((1, Orphan(A), Orphan(B)), "a is a Orphan, whose library has no from_dlpack")
    ],
    ids=["mixed", "device", "object", "orphan"]
)
def test_refusals(arguments, message):
    with pytest.raises(TypeError, match=message):
        blas.sgemm(*arguments)


def test_cuteblas_counts_them_like_others():
    cuteblas.reset_stats()
    blas.sgemm(1, Tensor(A), Tensor(B))
    assert cuteblas.stats()["sgemm"] == {"calls": {"numpy": 1}}


def test_torch():
    torch = pytest.importorskip("torch")
    a, b = torch.arange(6.0, dtype=torch.float32).reshape(2, 3), torch.ones(3, 4)
    got = blas.sgemm(2, a, b)
    assert isinstance(got, torch.Tensor) and torch.equal(got, 2 * (a @ b))
    assert torch.equal(blas.sgemm(1, a.T, b, trans_a=1), a @ b)
    out = torch.empty(2, 4)
    assert blas.sgemm(1, a, b, out=out) is out and torch.equal(out, a @ b)
    halves = blas.bgemm(torch.tensor(2.0), a.bfloat16(), b.bfloat16())
    assert halves.dtype == torch.bfloat16 and torch.equal(halves.float(), 2 * (a @ b))
    into = torch.zeros(2, 8, dtype=torch.bfloat16)[:, ::2]
    assert blas.bgemm(1, a.bfloat16(), b.bfloat16(), out=into) is into and torch.equal(
        into.float(), a @ b
    )
    with pytest.raises(
        TypeError, match=r"cannot view a, a Tensor of torch.float32, through DLPack: .*require"
    ):
        blas.sgemm(1, a.requires_grad_(), b)


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    a, b = jnp.arange(6, dtype="float32").reshape(2, 3), jnp.ones((3, 4), "float32")
    got = blas.sgemm(2, a, b)
    assert isinstance(got, type(a)) and (got == 2 * (a @ b)).all()
    halves = blas.bgemm(1, a.astype("bfloat16"), b.astype("bfloat16"))
    assert halves.dtype == "bfloat16" and (halves == a @ b).all()
    with pytest.raises(ValueError, match="writes into out, but out is read-only"):
        blas.sgemm(1, a, b, out=got)

"""Making arrays, and where they are."""

from __future__ import annotations

import array as buffers
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import cuteblas
from cuteblas.array import creation, libraries
from cuteblas.array.wrapper import ndarray

A = np.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    monkeypatch.setenv("CUTEBLAS_DEVICE", "cpu")


def test_asarray_shares_what_it_can():
    x = cuteblas.asarray(A)
    assert type(x) is ndarray and x._data is A and cuteblas.asarray(x) is x and x.device == "cpu"
    assert cuteblas.asarray(x, dtype="f8", device="cpu") is x
    for y in (cuteblas.asarray(A, copy=True), cuteblas.asarray(x, copy=True), cuteblas.array(A),
              cuteblas.array(x)):
        assert not np.shares_memory(y._data, A) and (y == x).all()
    assert cuteblas.asarray(x, dtype="f4").dtype == np.float32 and cuteblas.array(A, copy=None)._data is A
    assert type(cuteblas.asarray(np.ma.array(A))._data) is np.ndarray
    buffer = buffers.array("d", [1, 2])
    cuteblas.asarray(buffer, copy=False)[0] = 7
    assert buffer[0] == 7


@pytest.mark.parametrize("obj", [1, 2.5, True, 1j, [1, 2], [[1.5], [2]], (1, 2), np.float32(3),
                                 [A, A], range(3), b"ab", "text", [None]], ids=str)
def test_asarray_of_other_things(obj):
    result, expected = cuteblas.asarray(obj), np.asarray(obj)
    assert type(result) is ndarray and result.dtype == expected.dtype
    np.testing.assert_array_equal(result._data, expected)
    assert cuteblas.array(obj, expected.dtype).shape == expected.shape


def test_asarray_of_lists_of_ours():
    x = ndarray(A)
    assert cuteblas.asarray([x, x]).shape == (2, 2, 3) and cuteblas.asarray(
        [[x[0, 0], 2.0]]
    ).shape == (1, 2)


@pytest.mark.parametrize("call", [lambda make, x: make([1, [2]]),
                                  lambda make, x: make(x, dtype="nonsense"),
                                  lambda make, x: make(x, dtype="f4", copy=False),
                                  lambda make, x: make([1, 2], copy=False)])
def test_refusals_are_numpys(call):
    with pytest.raises((TypeError, ValueError)) as theirs:
        call(np.asarray, A)
    with pytest.raises(theirs.type) as ours:
        call(cuteblas.asarray, ndarray(A))
    assert str(ours.value) == str(theirs.value)


def test_dlpack():
    x = ndarray(A)
    for y in (
        cuteblas.array.from_dlpack(x),
        cuteblas.array.from_dlpack(A, copy=False, device="cpu")
    ):
        assert np.shares_memory(y._data, A)
    assert np.shares_memory(np.from_dlpack(x), A)
    assert not np.shares_memory(cuteblas.array.from_dlpack(x, copy=True)._data, A)
    assert x.__dlpack_device__() == A.__dlpack_device__() and np.from_dlpack(
        x, copy=True, device="cpu"
    ).shape == (2, 3)
    fixed = A.copy()
    fixed.flags.writeable = False
    assert not cuteblas.array.from_dlpack(ndarray(fixed)).flags.writeable
    with pytest.raises((RuntimeError, ValueError), match="NumPy only supports stream=None"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(AttributeError, match="__dlpack_device__"):
        cuteblas.array.from_dlpack([1])


def test_to_device():
    x = ndarray(A)
    assert x.to_device("cpu") is x
    for unknown in ("tpu", "cuda:9", None):
        with pytest.raises(ValueError, match="Device not understood"):
            x.to_device(unknown) if unknown else x.to_device("gpu")
    with pytest.raises(ValueError, match="stream argument"):
        x.to_device("cpu", stream=1)


def test_default_device(monkeypatch):
    monkeypatch.setenv("CUTEBLAS_DEVICE", "nowhere")
    with pytest.raises(ValueError, match=r"Device not understood.*received: nowhere"):
        cuteblas.asarray([1])
    assert cuteblas.asarray(ndarray(A))._data is A and cuteblas.asarray([1], device="cpu").device == "cpu"
    monkeypatch.delenv("CUTEBLAS_DEVICE")
    monkeypatch.setattr(libraries, "_why_no_gpu", lambda: "the driver is asleep")
    assert libraries.default_device() == "cpu"
    with pytest.raises(ValueError,
                       match='Only "cpu" is allowed, but received: cuda:0; the driver is asleep'):
        cuteblas.asarray([1], device="cuda:0")


# -- two GPUs that are none ------------------------------------------------------------------------
class Gpus:
    """CuPy as far as making arrays is concerned: its arrays, in host memory, say that they are on
    one of two GPUs."""

    def __init__(self, monkeypatch):
        cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
        from tests.functions.host_cupy import on_gpu, on_host

        self.made, self.current, self.on_host = [], 0, on_host
        self.place = lambda x, device: on_gpu(np.asarray(x), device)
        monkeypatch.setattr(libraries, "_why_no_gpu", lambda: None)
        monkeypatch.setattr(libraries, "devices", lambda: ("cpu", "cuda:0", "cuda:1"))
        monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: self.current)
        monkeypatch.setattr(creation, "made_on", self.made_on)
        monkeypatch.setattr(libraries, "made_on", self.made_on)
        monkeypatch.setattr(cupy.ndarray, "get", on_host)
        monkeypatch.delenv("CUTEBLAS_DEVICE")

    @contextmanager
    def made_on(self, device):
        self.made.append(device)

        def array(x, dtype=None, copy=True):
            on_gpu = type(x).__module__.startswith("cupy")
            x = self.on_host(x) if on_gpu else x
            if copy is False and not (on_gpu and dtype in (None, x.dtype)):
                raise ValueError("Unable to avoid copy while creating an array as requested.")
            return self.place(np.array(x, dtype), int(device[-1]))

        yield np if device == "cpu" else SimpleNamespace(array=array, asarray=array)


@pytest.fixture
def gpus(monkeypatch):
    return Gpus(monkeypatch)


@pytest.mark.parametrize("name, device", [(None, "cuda:0"), ("cuda", "cuda:0"),
                                          ("cuda:1", "cuda:1"), ("cpu", "cpu")])
def test_devices_by_name(gpus, name, device):
    for obj in ([1, 2], A, ndarray(A) if name else [1]):
        assert cuteblas.asarray(obj, device=name).device == device
    assert gpus.made == [device] * 3
    gpus.current = 1
    assert libraries.checked_device("cuda") == libraries.default_device() == "cuda:1"


def test_arrays_stay_where_they_are(gpus):
    import cupy

    x = gpus.place(A, 1)
    assert cuteblas.asarray(x).device == cuteblas.asarray(ndarray(x)).device == ndarray(x).device == "cuda:1"
    assert cuteblas.asarray(ndarray(A)).device == "cpu" and cuteblas.asarray(x, device="cpu").device == "cpu"
    assert cuteblas.asarray(x, dtype="f4", device="cpu").dtype == np.float32
    assert libraries.checked_device(cupy.cuda.Device(1)) == "cuda:1"
    for unknown in ("cuda:2", "gpu", cupy.cuda.Device(7)):
        with pytest.raises(
            ValueError,
            match=r'Device not understood. "cpu", "cuda:0" and "cuda:1" are allowed, but received'
        ):
            libraries.checked_device(unknown)
    for obj, named in ((A, {"device": "cuda"}), (x, {"device": "cuda:0"}), (x, {"device": "cpu"}),
                       (x, {"dtype": "f4"})):
        with pytest.raises(ValueError,
                           match="Unable to avoid copy while creating an array as requested"):
            cuteblas.asarray(obj, copy=False, **named)
    assert cuteblas.asarray(x, copy=False, dtype=A.dtype).device == "cuda:1"
    assert cuteblas.asarray(x, dtype="f4").dtype == cuteblas.asarray(A, dtype="f4", device="cuda").dtype == np.float32
    with pytest.raises(ValueError,
                       match="Unable to avoid copy while moving an array from cpu to cuda:1"):
        cuteblas.array.from_dlpack(A, device="cuda:1", copy=False)
    assert cuteblas.array.from_dlpack(A, device="cuda:1").device == "cuda:1"
    assert cuteblas.array.from_dlpack(A).device == "cpu"


def test_moving(gpus):
    x = ndarray(A)
    there = x.to_device("cuda:1")
    assert there.device == "cuda:1" and there.to_device("cuda:1") is there and there.to_device("cpu").device == "cpu"
    np.testing.assert_array_equal(np.asarray(there.to_device("cpu")), A)
    assert repr(there) == repr(x).replace("'cpu'", "'cuda:1'") and str(there) == str(x)
    assert f"{there[0, 0].to_device('cpu'):.1f}" == "0.0"


@pytest.mark.gpu
def test_making_arrays_on_a_gpu(monkeypatch):
    import cupy

    monkeypatch.delenv("CUTEBLAS_DEVICE")
    xp = ndarray(A).__array_namespace__()
    assert {made.device for made in (xp.ones(3), cuteblas.asarray(A), cuteblas.asarray([1]),
                                     cuteblas.array([A, A]))} == {"cuda:0"}
    x = cupy.asarray(A)
    assert cuteblas.asarray(x)._data is x and cuteblas.asarray(x, copy=True)._data is not x
    assert cuteblas.asarray(x, device="cpu").device == "cpu" and cuteblas.asarray(
        [ndarray(x), ndarray(x)]
    ).shape == (2, 2, 3)
    assert cuteblas.array.from_dlpack(x).device == "cuda:0" and cuteblas.array.from_dlpack(ndarray(x), device="cpu").device == "cpu"
    assert cuteblas.array.from_dlpack(A, device="cuda").device == "cuda:0"
    assert np.from_dlpack(ndarray(x), device="cpu").shape == (2, 3)
    assert xp.ones_like(ndarray(A), device="cuda").device == "cuda:0"
    assert xp.astype(ndarray(x), xp.float32, device="cpu").device == "cpu"
    with pytest.raises(ValueError, match="inhomogeneous"):
        cuteblas.asarray([1, [2]])
    with pytest.raises(ValueError, match="object"):
        cuteblas.asarray([None])
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        cuteblas.asarray(x, dtype="f4", copy=False)
    with pytest.raises(ValueError, match="one device"):
        xp.add(ndarray(A), ndarray(x))
    for copied in (
        cuteblas.array.from_dlpack(x, copy=True)._data,
        cupy.from_dlpack(
            SimpleNamespace(
                __dlpack_device__=x.__dlpack_device__,
                __dlpack__=lambda **named: ndarray(x).__dlpack__(**{**named, "copy": True})
            )
        )
    ):
        assert copied.data.ptr != x.data.ptr and (copied == x).all()
    with cupy.cuda.Stream() as stream:
        pass
    assert ndarray(x).to_device("cpu", stream=stream).device == "cpu"

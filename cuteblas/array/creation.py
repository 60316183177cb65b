"""Arrays from other objects."""

from __future__ import annotations

from typing import Any

from ..engines.dispatch import kind_of
from .libraries import CPU, checked_device, copied_to, device_of, made_on
from .wrapper import ndarray, unwrapped

_CUDA_IN_DLPACK = (2, 13)           # device memory and managed memory


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None,
            copy: bool | None = None) -> ndarray:
    """Convert an object to an array of this package.

    Parameters
    ----------
    obj : array_like
        Arrays of this package and of CuPy stay on their device; everything else, NumPy's arrays
        included, goes to the default device.
    dtype : dtype, optional
        Element type of the result.
    device : str or cupy.cuda.Device, optional
        ``"cpu"``, ``"cuda"`` for CuPy's current device, ``"cuda:1"``. The default device is CuPy's
        current one on a machine with a GPU, else ``"cpu"``; the environment variable
        ``CUTEBLAS_DEVICE`` names another.
    copy : bool, optional
        Whether elements are copied: ``True`` always, ``False`` never, ``None`` only if they must
        be.

    Returns
    -------
    ndarray
        ``obj`` itself if nothing has to change.

    Raises
    ------
    ValueError
        For unknown devices, ragged lists, and copies that are forbidden but needed, in NumPy's
        words.
    TypeError
        For unknown types, in NumPy's words.

    Examples
    --------
    >>> import cuteblas
    >>> cuteblas.asarray([[1, 2], [3, 4]], device="cpu") @ [1, 1]
    cuteblas.array([3, 7])
    """
    raw = unwrapped(obj)
    on_gpu = kind_of(raw) == "cupy"
    target = device_of(raw) if device is None and (on_gpu or type(obj) is ndarray) else checked_device(device)
    if copy is False and (on_gpu or target != CPU) and not (on_gpu and device_of(raw) == target
                                                            and dtype in (None, raw.dtype)):
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    with made_on(target) as library:
        if on_gpu and target == CPU:
            data = library.asarray(copied_to(raw, CPU), dtype)
        else:
            data = library.array(raw, dtype, copy=copy)
    return obj if data is raw and type(obj) is ndarray else ndarray(data)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> ndarray:
    """Make an array from another library's array, using DLPack.

    Parameters
    ----------
    x : object
        An object with ``__dlpack__`` and ``__dlpack_device__``.
    device : str or cupy.cuda.Device, optional
        Where the result is; by default where ``x`` is.
    copy : bool, optional
        Whether elements are copied: ``True`` always, ``False`` never, ``None`` only if they must
        be.

    Returns
    -------
    ndarray
        On ``device``.

    Raises
    ------
    AttributeError
        If ``x`` cannot be exported.
    BufferError, ValueError
        If elements must be copied but may not be, for devices other than the host and CUDA's, and
        for unknown devices.

    Examples
    --------
    >>> import cuteblas.array
    >>> a = np.arange(3.0)
    >>> x = cuteblas.array.from_dlpack(a)
    >>> x[0] = 7
    >>> a
    array([7., 1., 2.])
    """
    kind, ordinal = x.__dlpack_device__()
    here = f"cuda:{ordinal}" if kind in _CUDA_IN_DLPACK else CPU
    target = here if device is None else checked_device(device)
    if copy is False and here != target:
        raise ValueError(f"Unable to avoid copy while moving an array from {here} to {target}.")
    with made_on(here) as library:
        if here == CPU:
            data = library.from_dlpack(x, **({} if copy is None else {"copy": copy}))
        else:
            data = library.from_dlpack(x)           # CuPy copies to the host alone
            data = data.copy() if copy and here == target else data
    return ndarray(copied_to(data, target))

"""By the types of operands, and without CuPy: their kinds, engines, replays and own functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from .._forks import forget_in_children, use_cuda
from .emulator import EMULATOR, Emulator

if TYPE_CHECKING:
    from .cuda import Cuda

__all__ = ["NOTHING", "ByName", "Carrier", "Engine", "Func", "Kind", "Replayable", "engine_of",
           "fast_paths", "kind_of", "kind_of_type", "own_call", "own_types", "register_own_type",
           "replays"]

ByName = Mapping[str, Any]
Func = Callable[..., Any]
NOTHING: ByName = MappingProxyType({})
Kind = Literal["numpy", "subclass", "cupy", "foreign", "scalar", "like"]

fast_paths: dict[type, Callable[[Any, Any, Any, str | None], Any]] = {}
"""By the first operand's type: a function of (x1, x2, out, precision) for plain calls of
``matmul``, which returns the result or ``None``. Only :func:`register_own_type` writes it."""

own_types: dict[type, Func] = {}
"""Types that answer NumPy's functions with ours: a function of (call, operands, keywords) makes
the call on the arrays inside. Only :func:`register_own_type` writes it."""


def register_own_type(kind: type, call: Func,
                      matmul: Callable[[Any, Any, Any, str | None], Any]) -> None:
    own_types[kind], fast_paths[kind] = call, matmul


class Carrier:
    """An argument of a call that has operands of its own, as an epilogue has."""

    __slots__ = ()

    @property
    def given(self) -> ByName:
        """All of them, by name."""
        raise NotImplementedError

    def converted(self, convert: Callable[[str, Any], Any]) -> Any:
        """A copy with every array replaced by ``convert(name, array)``."""
        raise NotImplementedError


def own_call(*operands: object) -> Func | None:
    """What makes a call on the arrays inside operands of our types; ``None`` without one, or if
    another operand answers."""
    # The operands of an epilogue count, too.
    for x in operands:
        if type(x) in own_types or isinstance(x, Carrier):
            break
    else:
        return None
    types = {*map(type, operands)}.union(*(map(type, x.given.values()) for x in operands
                                           if isinstance(x, Carrier)))
    own = types & own_types.keys()
    return own_types[own.pop()] if own and not any(kind_of_type(kind) == "foreign" for kind in types
                                                   - own) else None


def kind_of(x: object) -> Kind:
    """The kind of an operand, by its type."""
    # "subclass" leaves ufuncs alone, "foreign" answers them itself (NEP 13), "scalar" is a number,
    # "like" is everything that NumPy would convert.
    return kind_of_type(type(x))  # type: ignore[arg-type]      # mypy doubts that classes are hashable


@lru_cache(maxsize=512)
def kind_of_type(kind: type) -> Kind:
    if issubclass(kind, np.ndarray):
        if kind is np.ndarray:
            return "numpy"
        return "subclass" if kind.__array_ufunc__ is np.ndarray.__array_ufunc__ else "foreign"
    cupy_array = getattr(sys.modules.get("cupy"), "ndarray", None)
    if cupy_array is not None and issubclass(kind, cupy_array):
        use_cuda()
        return "cupy"
    if hasattr(kind, "__array_ufunc__"):
        return "foreign"
    return "scalar" if issubclass(kind, (int, float, complex, np.generic)) else "like"


forget_in_children(kind_of_type.cache_clear)


Engine: TypeAlias = "Emulator | Cuda"
"""Arrays of one library, and the means to run plans on them. ``on_host`` arrays are NumPy's, of
any alignment and with subnormal numbers; ``kernels`` run on them where they are; ``moves`` takes
them to the GPU where that is faster; unless ``runs``, nothing is computed, counted or recorded;
``out_of_memory`` is raised without room for a workspace, or ``()``."""


def engine_of(x: Any) -> Engine:
    if kind_of(x) == "cupy":
        from .cuda import CUDA

        return CUDA
    return EMULATOR


class _Replays(dict[type, Func | None]):
    def __missing__(self, kind: type) -> Func | None:
        if kind_of_type(kind) != "cupy":
            return None
        from .replay.cupy import NDARRAY, replay

        self[NDARRAY] = replay
        forget_in_children(lambda: self.pop(NDARRAY, None))     # where CUDA is refused
        return self.get(kind)


replays = _Replays()
"""By the first operand's type: what replays a call from (head, operands, out, scalars)."""


class Replayable(NamedTuple):
    """A call that may be replayed or recorded: ``head`` is all but its arrays, ``inputs`` are only
    read, ``roles`` are those of inputs and, last, the result."""

    replay: Func
    head: Any
    inputs: tuple[Any, ...]
    out: Any
    roles: tuple[str, ...]
    scalars: tuple[Any, ...]

    def answer(self) -> Any:
        """The result if a call like this one was recorded, else ``None``."""
        return self.replay(self.head, self.inputs, self.out, self.scalars)

"""Types in the signatures of public functions: an array in, an array of that kind out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    overload,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import TypeVar as WithDefault

    from ..array.wrapper import ndarray
    from ..engines.sharded import ShardedArray
    from .epilogues import Bound, Epilogue

    Array = WithDefault("Array", default=NDArray[Any])
    _Own = TypeVar("_Own", bound=ndarray | ShardedArray)
    EpilogueLike: TypeAlias = Epilogue | Bound | Literal[
        "bgrad_a", "bgrad_b", "clamp", "dequantize", "gelu", "gelu_aux", "gelu_tanh", "leaky_relu",
        "relu", "relu_aux", "sigmoid", "silu", "tanh"] | None
else:
    Array, EpilogueLike = TypeVar("Array"), Any
_Result = TypeVar("_Result", covariant=True)
_P = ParamSpec("_P")

Card = Literal["a100", "l40s", "rtx4090", "h100", "h200", "b200"]
Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
Devices = Literal["all"] | Sequence[int]
Flag = bool | Literal[0, 1]
Order = Literal["K", "A", "C", "F"]
Precision = Literal["auto", "ieee", "fp16x3", "bf16x6", "tf32", "modular"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
Transposed = bool | Literal[0, 1, 2, "N", "T", "C", "H", "R", "n", "t", "c", "h", "r"]


class _Kept(Protocol[_Result]):
    """An array: this method returns one of the same library and element type, of any shape."""

    def squeeze(self) -> _Result: ...


class _Cast(Protocol[_Result]):
    """An array: this method returns one of the same library, of any shape and element type."""

    def clip(self, min: float, max: float, /) -> _Result: ...


class _Sharded(Protocol[_Result]):
    def like(self, shape: Sequence[int], dtype: Any, devices: Sequence[int], /) -> _Result: ...


Operand = _Kept[Array] | Sequence[Any] | complex
"""An array, or numbers that NumPy makes one of."""
Promoted = _Cast[Array] | _Sharded[Array] | Sequence[Any] | complex
"""An operand of a function whose result may have another element type."""


class _Product(Protocol[_P]):
    @overload
    def __call__(self, x1: _Own, x2: object, /, *args: _P.args, **named: _P.kwargs) -> _Own: ...
    @overload
    def __call__(self, x1: object, x2: _Own, /, *args: _P.args, **named: _P.kwargs) -> _Own: ...
    @overload
    def __call__(self, x1: Promoted[Array], x2: Promoted[Array], /,
                 *args: _P.args, **named: _P.kwargs) -> Array: ...
    @overload
    def __call__(self, **named: Any) -> Any: ...


def typed_product(function: Callable[Concatenate[Any, Any, _P], Any]) -> _Product[_P]:
    """Let type checkers see the result of two operands: ours if one is ours, else as both are."""
    return function         # type: ignore[return-value]


def typed_copy(function: Callable[Concatenate[Any, _P],
                                  Any]) -> Callable[Concatenate[Operand[Array], _P], Array]:
    """Let type checkers see a result of the operand's kind and element type."""
    return function


def typed_conversion(function: Callable[Concatenate[Any, _P],
                                        Any]) -> Callable[Concatenate[Promoted[Array], _P], Array]:
    """Let type checkers see a result of the operand's kind."""
    return function

"""A kernel's parameters: tensors are declared once, and a plan's values find parameters by name.

A :class:`TensorParam` declares the parameters of its layout; the kernel's :class:`Signature` puts
a plan's values into their order. What is missing or unknown is an error in planning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .._dtypes import dtype
from ..layout import Layout, Tensor
from ..layout.symbolic import IntLike
from .engine import CodegenError, Pointer

if TYPE_CHECKING:
    from .builder import KernelBuilder
    from .kernel import Param

__all__ = ["GlobalTensor", "Nested", "Signature", "TensorParam", "View", "declare"]

Nested = IntLike | tuple[IntLike, ...]
"""An extent or a stride of a mode, or those of the modes that are nested in it."""


@dataclass(frozen=True)
class TensorParam:
    """A tensor in global memory that a kernel takes.

    Attributes
    ----------
    name : str
        Its name, and that of its address.
    modes : str or tuple of str
        Names of its modes: a letter each, or a word each. The extent of ``m`` is the parameter
        ``M``, the stride ``d<name>_m``.
    element : str
        NumPy's name of the element type.
    strides : tuple of (int, str or None), optional
        The strides that are known when the kernel is generated, and of rows that follow each other
        without gaps the mode whose extent it is; ``None`` for those that are parameters. None are
        known by default.
    width : int
        Elements of a vector access along the mode with stride 1. They divide the address, the other
        strides and, unless it is known already, the extent of that mode.
    written : bool
        Whether the kernel writes it.
    map : str
        The name of its tensor map, if there is one.
    addressed : bool
        Whether the kernel has its address and its strides; else only the tensor map.
    batch : bool or tuple of bool
        Which of the batch modes, innermost first, it has a stride for; elsewhere it is 0.
    lowest : int, optional
        A lower bound of the strides.
    extents : tuple of str
        The names by which the extents of its modes are bound, empty where they are not; known once
        it is declared.

    Examples
    --------
    >>> from cuteblas.codegen.signature import TensorParam
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> A, = k.tensors(TensorParam("A", "mk", "float32", (None, 1)), modes="mk")
    >>> [q.name for q in k.build().params]
    ['A', 'M', 'K', 'dA_m']
    """

    name: str
    modes: str | tuple[str, ...]
    element: str
    strides: tuple[int | str | None, ...] | None = None
    width: int = 1
    written: bool = False
    map: str = ""
    addressed: bool = True
    batch: bool | tuple[bool, ...] = True
    lowest: int | None = None
    extents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.strides is not None and len(self.strides) != len(self.modes):
            raise CodegenError(
                f"{self.name} has the modes {', '.join(self.modes)} and {len(self.strides)} strides"
            )
        if self.width != 1 and 1 not in self.known_strides:
            raise CodegenError(
                f"vectors of {self.width} elements of {self.name} need a mode with stride 1, got {self}"
            )

    @property
    def known_strides(self) -> tuple[int | str | None, ...]:
        """The strides, ``None`` where they are parameters."""
        return self.strides if self.strides is not None else (None,) * len(self.modes)

    def along(self, mode: str) -> int:
        """What divides the extent of a mode: the width of vectors along it."""
        unit = dict(zip(self.modes, self.known_strides, strict=True)).get(mode) == 1
        return self.width if unit and self.addressed else 1


@dataclass(frozen=True)
class GlobalTensor:
    """A declared tensor in the kernel that takes it.

    Attributes
    ----------
    param : TensorParam
        Its declaration.
    pointer : Pointer or None
        Its address, if the kernel has it.
    extents, strides : tuple
        By mode; nested where modes are.
    batch, batch_strides : tuple
        Extents of the batch modes and its strides there, innermost first.

    Examples
    --------
    >>> from cuteblas.codegen.signature import TensorParam
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> A, = k.tensors(TensorParam("A", "mk", "float32", (None, 1)), modes="mk")
    >>> print(A.at().layout)
    (M,K):(dA_m,1)
    """

    param: TensorParam
    pointer: Pointer | None
    extents: tuple[Nested, ...]
    strides: tuple[Nested, ...]
    batch: tuple[IntLike, ...] = ()
    batch_strides: tuple[IntLike, ...] = ()

    @property
    def map(self) -> str:
        """The C++ name of its tensor map, if there is one."""
        return self.param.map

    @property
    def address(self) -> Pointer:
        """Its address."""
        if self.pointer is None:
            raise CodegenError(
                f"{self.param.name} has no address: the kernel accesses it through its tensor map only"
            )
        return self.pointer

    def at(self, index: IntLike | tuple[IntLike, ...] = 0,
           extents: tuple[Nested, ...] | None = None) -> Tensor:
        """The tensor at one index of the batch, which is flat or a coordinate; without batch modes
        there is only one.

        ``extents`` take the place of those that were declared.
        """
        shape = self.extents if extents is None else extents
        if not self.batch:
            return Tensor(self.address, Layout(shape, self.strides))
        whole = Tensor(self.address, Layout((*shape, self.batch),
                                            (*self.strides, self.batch_strides)))
        return whole[*(None for _ in shape), index]


@dataclass(frozen=True)
class View:
    """The memory and the strides of a tensor in a launch.

    Attributes
    ----------
    memory : object
        The value of the address parameter.
    strides : tuple
        By mode, in elements; a tuple for a mode that nests several.
    batch : tuple of int
        Strides of the batch modes, innermost first.
    map : object, optional
        The value of the tensor map parameter.

    Examples
    --------
    >>> from cuteblas.codegen.signature import View
    >>> View("a", (100, 1)).strides
    (100, 1)
    """

    memory: Any = None
    strides: tuple[int | tuple[int, ...], ...] = ()
    batch: tuple[int, ...] = ()
    map: Any = None


@dataclass(frozen=True)
class Part:
    """The part of a bound value that a parameter takes."""

    of: str
    kind: Literal["value", "address", "map", "stride", "batch"] = "value"
    at: int = 0                         # which stride
    leaf: int | None = None             # which of the modes that are nested in one, or batch mode
    multiple: int = 1                   # what divides the value
    extent: str = ""                    # the name of a stride's extent: if it is 1, any stride will do


@dataclass
class Declarations:
    """Tensors and parameters that a kernel has declared so far."""

    parts: dict[str, Part] = field(default_factory=dict)        # by parameter; others have their name
    tensors: dict[str, TensorParam] = field(default_factory=dict)
    extents: dict[str, Nested] = field(default_factory=dict)    # by mode
    batch: dict[str, tuple[IntLike, ...]] = field(default_factory=dict)         # by suffix


def declare(k: KernelBuilder, *tensors: TensorParam, modes: Iterable[str] = "", batch: int = 0,
            multiples: Mapping[str, int] | None = None, nested: Mapping[str, int] | None = None,
            typical: Mapping[str, int] | None = None, suffix: str = "") -> tuple[GlobalTensor, ...]:
    """Declare the tensors that a kernel works on, and with them its parameters; a method of its
    builder.

    Parameters have this order: tensor maps; addresses of tensors that the kernel reads, then of
    those that it writes; extents of ``modes``; unknown strides, tensor by tensor; extents of the
    ``batch`` modes, unless an earlier declaration made them; batch strides, tensor by tensor.

    Parameters
    ----------
    k : KernelBuilder
        The kernel that takes them.
    *tensors : TensorParam
        The tensors. They may share modes with those that were declared before.
    modes : iterable of str
        Modes whose extents become parameters, unless an earlier declaration made them. A name that
        is not a mode of a tensor becomes a parameter with that name.
    batch : int
        Number of batch modes.
    multiples : mapping of str to int, optional
        Powers of two that divide the extents of modes, in addition to the vectors along them.
    nested : mapping of str to int, optional
        The number of modes nested in a mode, if it is more than one.
    typical : mapping of str to int, optional
        Extents of modes for which the builder counts the costs of accesses.
    suffix : str
        Ends the names of extents: ``M`` becomes ``M<suffix>``.

    Returns
    -------
    tuple of GlobalTensor
        In the order of ``tensors``.

    Raises
    ------
    TypeError
        If two tensors have one name.

    Examples
    --------
    >>> from cuteblas.codegen.signature import TensorParam, declare
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> A, B = declare(k, TensorParam("A", "mk", "float32", (None, 1)), TensorParam("B", "nk", "float32", (None, 1)))
    >>> [q.name for q in k.build().params]
    ['A', 'B', 'dA_m', 'dB_n']
    """
    known, multiples, counts, usual = k.declarations, multiples or {}, nested or {}, typical or {}
    if twice := [t.name for i, t in enumerate(tensors)
                 if t.name in {*known.tensors, *(other.name for other in tensors[:i])}]:
        raise TypeError(f"{k.name} has two tensors with the name {twice[0]}")
    for t in tensors:
        if t.map:
            known.parts[k.tensor_map(t.map)] = Part(t.name, "map")
    pointers: dict[str, Pointer] = {}
    for t in sorted(tensors, key=lambda t: t.written):
        if t.addressed:
            known.parts[t.name] = Part(t.name, "address")
            pointers[t.name] = k.pointer(t.name, t.element, const=not t.written,
                                         alignment=t.width * dtype(t.element).bytes)

    def integer(name: str, part: Part, lowest: int | None) -> IntLike:
        known.parts[name] = part
        extent = part.of.lower() if part.kind == "value" else ""
        return k.integer(name, lo=lowest, multiple=part.multiple, typical=usual.get(extent))

    def of_mode(name: str, mode: str, part: Part, lowest: int | None,
                first: int | None = None) -> Nested:
        """A parameter, or one for each of the modes nested in a mode; the first may be known."""
        if (count := counts.get(mode, 1)) == 1:
            return integer(name, part, lowest) if first is None else first
        rest = part.multiple if part.kind == "stride" else 1
        return tuple(first if leaf == 0 and first is not None
                     else integer(f"{name}{leaf}",
                                  replace(part, leaf=leaf,
                                          multiple=rest if leaf else part.multiple), lowest)
                     for leaf in range(count))

    for mode in modes:
        name = f"{mode.upper() if any(mode in t.modes for t in tensors) else mode}{suffix}"
        multiple = max([multiples.get(mode, 1), *(t.along(mode) for t in tensors)])
        known.extents[mode + suffix] = of_mode(name, mode, Part(name, multiple=multiple), 0)
    def extent_of(mode: str) -> str:
        return f"{mode.upper()}{suffix}" if mode + suffix in known.extents else ""

    def stride(t: TensorParam, at: int, mode: str) -> Nested:
        if isinstance(given := t.known_strides[at], str):
            return known.extents[given + suffix]
        return of_mode(f"d{t.name}_{mode}", mode,
                       Part(t.name, "stride", at, None, t.width, extent_of(mode)), t.lowest, given)

    strides = {t.name: tuple(stride(t, at, mode) for at, mode in enumerate(t.modes))
               if t.addressed else () for t in tensors}
    if suffix not in known.batch:
        known.batch[suffix] = tuple(integer(f"L{suffix}{i}", Part(f"L{suffix}", leaf=i), 0)
                                    for i in range(batch))
    found: list[GlobalTensor] = []
    for t in tensors:
        present = (t.batch,) * len(known.batch[suffix]) if isinstance(t.batch, bool) else t.batch
        known.tensors[t.name] = replace(t, extents=tuple(map(extent_of, t.modes)), batch=present)
        steps = tuple(integer(f"d{t.name}_l{i}", Part(t.name, "batch", 0, i, t.width, f"L{suffix}"),
                              t.lowest) if has else 0
                      for i, has in enumerate(present)) if t.addressed else ()
        found.append(GlobalTensor(t, pointers.get(t.name),
                                  tuple(known.extents.get(mode + suffix, 1) for mode in t.modes),
                                  strides[t.name], known.batch[suffix][:len(present)], steps))
    return tuple(found)


@dataclass(frozen=True)
class Signature:
    """The arguments of a kernel, in the order of its parameters.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    params : tuple of Param
        The parameters.
    parts : tuple of Part
        The part that each parameter takes.
    tensors : mapping
        The bound tensors, by name.

    Examples
    --------
    >>> from cuteblas.codegen.signature import TensorParam
    >>> from cuteblas.codegen.signature import View
    >>> from cuteblas.codegen.builder import KernelBuilder
    >>> k = KernelBuilder("example", threads=32)
    >>> A, = k.tensors(TensorParam("A", "mk", "float32", (None, 1)), modes="mk")
    >>> signature = k.build().signature
    >>> signature.bind({"A": View("a", (100, 1))}, M=64, K=100)
    ('a', 64, 100, 100)
    """

    kernel: str
    params: tuple[Param, ...]
    parts: tuple[Part, ...]
    tensors: Mapping[str, TensorParam]

    @cached_property
    def names(self) -> dict[str, tuple[int, ...]]:
        """What is bound: names, and the positions of the parameters of each."""
        found: dict[str, tuple[int, ...]] = {}
        for position, part in enumerate(self.parts):
            found[part.of] = (*found.get(part.of, ()), position)
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def bind(self, *groups: Mapping[str, Any], **named: Any) -> tuple[Any, ...]:
        """The arguments of a launch, in order.

        Parameters
        ----------
        *groups, **named
            By name: a :class:`View` for each tensor; for an extent the integer, or a tuple where
            modes are nested in it; the extents of the batch modes, innermost first, as ``L``; and
            the value of every other parameter.

        Raises
        ------
        TypeError
            If an argument is missing, unknown or passed twice, or a tensor has other modes; the
            message names it and the kernel.
        ValueError
            If a value contradicts what the kernel was generated for.
        """
        values: dict[str, Any] = {}
        for group in (*groups, named):
            if twice := values.keys() & group.keys():
                raise TypeError(f"{self.kernel} got {_listed(twice)} twice")
            values |= group
        missing, unknown = self.names.keys() - values.keys(), values.keys() - self.names.keys()
        if missing or unknown:
            wrong = [f"{said} {_listed(names)}"
                     for said, names in (("is missing", missing), ("takes no", unknown)) if names]
            raise TypeError(
                f"{self.kernel} {' and '.join(wrong)}; it takes {', '.join(self.names)}"
            )
        for name, value in values.items():
            self._check(name, value, values)
        return tuple(self._argument(param, part, values)
                     for param, part in zip(self.params, self.parts, strict=True))

    def _check(self, name: str, value: Any, values: Mapping[str, Any]) -> None:
        """Refuse what is of the wrong kind, and other strides than those that are known."""
        if (tensor := self.tensors.get(name)) is None:
            if isinstance(value, View):
                raise TypeError(f"{name} of {self.kernel} is not a tensor, got {value}")
            elements = sum(self.parts[at].leaf is not None for at in self.names[name])
            if elements and (not isinstance(value, tuple) or len(value) != elements):
                raise TypeError(
                    f"{name} of {self.kernel} takes a tuple of {elements} extents, got {value!r}"
                )
            return
        if not isinstance(value, View):
            raise TypeError(f"{name} of {self.kernel} is a tensor and takes a View, got {value!r}")
        if bool(tensor.map) != (value.map is not None) or (tensor.addressed
                                                           and value.memory is None):
            wanted = " and ".join(["its address"] * tensor.addressed + ["a tensor map"]
                                  * bool(tensor.map))
            raise TypeError(f"{name} of {self.kernel} takes {wanted}, got {value}")
        if not tensor.addressed:
            return
        present = tensor.batch if isinstance(tensor.batch, tuple) else ()
        if len(value.strides) != len(tensor.modes) or (any(present)
                                                       and len(value.batch) != len(present)):
            raise TypeError(
                f"{name} of {self.kernel} has the modes {', '.join(tensor.modes)} and {len(present)} batch modes, "
                f"got {value}"
            )
        for mode, known, stride, extent in zip(tensor.modes, tensor.known_strides, value.strides,
                                               tensor.extents, strict=True):
            first = stride[0] if isinstance(stride, tuple) else stride
            if isinstance(known, str):
                known = values.get(tensor.extents[tensor.modes.index(known)])
            if known not in (None, first) and not self._single(extent, 0, values):
                raise ValueError(
                    f"{name} of {self.kernel} must have stride {known} along {mode}, got {first}"
                )

    @staticmethod
    def _single(extent: str, leaf: int | None, values: Mapping[str, Any]) -> bool:
        """Whether there is but one element along a mode, so that any stride will do."""
        found = values.get(extent, 2)
        return (found[leaf or 0] if isinstance(found, tuple) else found) <= 1

    def _argument(self, param: Param, part: Part, values: Mapping[str, Any]) -> Any:
        value = values[part.of]
        match part.kind:
            case "address":
                return value.memory
            case "map":
                return value.map
            case "stride":
                value = value.strides[part.at]
            case "batch":
                value = value.batch
        found = value if part.leaf is None else value[part.leaf]
        if part.multiple > 1 and found % part.multiple and not self._single(part.extent, part.leaf, values):
            raise ValueError(
                f"{param.name} of {self.kernel} must be a multiple of {part.multiple}, got {found}"
            )
        return found

    def __str__(self) -> str:
        return "\n".join([f"{self.kernel} takes",
                          *(f"  {line}" for name in self.names for line in self._lines(name))])

    def _lines(self, name: str) -> Iterable[str]:
        params = [(self.params[at], self.parts[at]) for at in self.names[name]]
        if (tensor := self.tensors.get(name)) is not None:
            strides = [next((q.name for q, part in params if part.kind == "stride" and part.at == at
                             and not part.leaf), str(known))
                       for at, known in enumerate(tensor.known_strides)]
            vectors = f" in vectors of {tensor.width}" if tensor.width > 1 else ""
            by = " by a tensor map" if tensor.map else ""
            said = f", strides ({', '.join(strides)})" if tensor.addressed and strides else ""
            steps = [q.name for q, part in params if part.kind == "batch"]
            access = "written" if tensor.written else "read"
            yield (
                f"{name} ({', '.join(tensor.modes)}) {tensor.element}, {access}{vectors}{by}{said}"
                + (f", of batch modes ({', '.join(steps)})" if steps else "")
            )
            return
        if len(params) > 1 or params[0][1].leaf is not None:
            yield f"{name} ({', '.join(q.name for q, _part in params)}) {params[0][0].dtype.name}"
            return
        for q, part in params:
            what = f"address of {q.dtype.name}" if q.kind == "pointer" else "tensor map" if q.kind == "tensor_map" else q.dtype.name
            yield f"{q.name} {what}" + (f", a multiple of {part.multiple}" if part.multiple > 1
                                        else "")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))

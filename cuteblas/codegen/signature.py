"""What a kernel is given: every tensor is declared once, and a plan's values find their parameters by the names declared here.

Declaring a :class:`TensorParam` makes the parameters that its layout needs (address or tensor map, extents, strides) and the
:class:`GlobalTensor` that a kernel works on. The finished kernel's :class:`Signature` then takes a :class:`View` for each tensor,
the extents and the other numbers by name, and puts them into the order of the parameters; what is missing or unknown is an error
where the plan is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..layout import Layout, Tensor
from ..layout.symbolic import IntLike
from .dtypes import dtype
from .engine import CodegenError, Pointer

if TYPE_CHECKING:
    from .builder import KernelBuilder
    from .kernel import Param

__all__ = ["Declarations", "GlobalTensor", "Nested", "Part", "Signature", "TensorParam", "View", "declare"]

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
        Names of its modes: a letter each, or a word each. The extent of ``m`` is the parameter ``M``, the stride ``d<name>_m``.
    element : str
        NumPy's name of the element type.
    strides : tuple of (int or None), optional
        The strides that are known when the kernel is generated; ``None`` for those that are parameters. None are known by default.
    width : int
        Elements of a vector access along the mode with stride 1. They divide the address, the other strides and, unless it is known
        already, the extent of that mode.
    written : bool
        Whether the kernel writes it.
    map : str
        The name of its tensor map, if there is one.
    addressed : bool
        Whether the kernel has its address and its strides; else only the tensor map.
    batch : bool or tuple of bool
        Which of the batch modes, innermost first, it has a stride for; elsewhere it is 0.
    lowest : int, optional
        What strides are known not to be below.
    """

    name: str
    modes: str | tuple[str, ...]
    element: str
    strides: tuple[int | None, ...] | None = None
    width: int = 1
    written: bool = False
    map: str = ""
    addressed: bool = True
    batch: bool | tuple[bool, ...] = True
    lowest: int | None = None

    def __post_init__(self) -> None:
        if self.strides is not None and len(self.strides) != len(self.modes):
            raise CodegenError(f"{self.name} has the modes {', '.join(self.modes)} and {len(self.strides)} strides")
        if self.width != 1 and 1 not in self.known_strides:
            raise CodegenError(f"vectors of {self.width} elements of {self.name} need a mode with stride 1, got {self}")

    @property
    def known_strides(self) -> tuple[int | None, ...]:
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
            raise CodegenError(f"{self.param.name} is read by its tensor map alone")
        return self.pointer

    def at(self, index: IntLike | tuple[IntLike, ...] = 0, extents: tuple[Nested, ...] | None = None) -> Tensor:
        """The tensor at one index of the batch, which is flat or a coordinate; without batch modes there is only one.

        ``extents`` take the place of those that were declared.
        """
        shape = self.extents if extents is None else extents
        if not self.batch:
            return Tensor(self.address, Layout(shape, self.strides))
        whole = Tensor(self.address, Layout((*shape, self.batch), (*self.strides, self.batch_strides)))
        return whole[*(None for _ in shape), index]


@dataclass(frozen=True)
class View:
    """What a tensor of a kernel stands for in a launch.

    Attributes
    ----------
    memory : object
        What the address parameter takes.
    strides : tuple
        By mode, in elements; a tuple for a mode that nests several.
    batch : tuple of int
        Strides of the batch modes, innermost first.
    map : object, optional
        What the tensor map parameter takes.
    """

    memory: Any = None
    strides: tuple[int | tuple[int, ...], ...] = ()
    batch: tuple[int, ...] = ()
    map: Any = None


@dataclass(frozen=True)
class Part:
    """Which part of what is bound by name a parameter takes.

    Attributes
    ----------
    of : str
        The name.
    kind : str
        The value itself, an element of it, or of a tensor the address, the tensor map, a stride or one of the batch modes.
    at : int
        Which mode.
    leaf : int, optional
        Which of the modes that are nested in it.
    multiple : int
        What divides the value.
    extent : str
        Of a stride, the name of the mode's extent, if that is bound: where there is but one element, any stride will do.
    """

    of: str
    kind: Literal["value", "element", "address", "map", "stride", "batch"] = "value"
    at: int = 0
    leaf: int | None = None
    multiple: int = 1
    extent: str = ""


@dataclass
class Declarations:
    """What has been declared while a kernel is written.

    Attributes
    ----------
    parts : dict
        By the names of parameters; a parameter that is not there is bound by its own name.
    tensors : dict
        The tensors, by name.
    extents : dict
        Extents of modes, by the names of modes.
    batch : dict
        Extents of the batch modes, by suffix.
    """

    parts: dict[str, Part] = field(default_factory=dict)
    tensors: dict[str, TensorParam] = field(default_factory=dict)
    extents: dict[str, Nested] = field(default_factory=dict)
    batch: dict[str, tuple[IntLike, ...]] = field(default_factory=dict)


def declare(k: KernelBuilder, tensors: Sequence[TensorParam], *, modes: Iterable[str] = "", batch: int = 0,
            multiples: Mapping[str, int] | None = None, nested: Mapping[str, int] | None = None,
            suffix: str = "") -> tuple[GlobalTensor, ...]:
    """Declare tensors together: see :meth:`~cuteblas.codegen.builder.KernelBuilder.tensors`."""
    known, multiples, nested = k.declarations, multiples or {}, nested or {}
    pointers: dict[str, Pointer] = {}
    for t in tensors:
        if t.name in known.tensors:
            raise TypeError(f"{k.name} has two tensors with the name {t.name}")
        known.tensors[t.name] = t
    for t in tensors:
        if t.map:
            known.parts[k.tensor_map(t.map)] = Part(t.name, "map")
    for t in sorted(tensors, key=lambda t: t.written):
        if t.addressed:
            pointers[t.name] = k.pointer(t.name, t.element, const=not t.written, alignment=t.width * dtype(t.element).bytes)
            known.parts[t.name] = Part(t.name, "address")

    def integers(name: str, part: Part, leaves: int, first: int, rest: int, lowest: int | None) -> Nested:
        """A parameter of a mode, or one for each mode that is nested in it."""
        def one(own: str, leaf: int | None, multiple: int) -> IntLike:
            known.parts[own] = replace(part, leaf=leaf, multiple=multiple)
            return k.integer(own, lo=lowest, multiple=multiple)

        return one(name, None, first) if leaves == 1 else tuple(one(f"{name}{i}", i, rest if i else first) for i in range(leaves))

    for mode in modes:
        name = f"{mode.upper() if any(mode in t.modes for t in tensors) else mode}{suffix}"
        kind: Any = "value" if nested.get(mode, 1) == 1 else "element"
        multiple = max([multiples.get(mode, 1), *(t.along(mode) for t in tensors)])
        known.extents[mode + suffix] = integers(name, Part(name, kind), nested.get(mode, 1), multiple, 1, 0)

    def strides(t: TensorParam) -> tuple[Nested, ...]:
        found: list[Nested] = []
        for at, (mode, stride) in enumerate(zip(t.modes, t.known_strides, strict=True)):
            name, leaves = f"d{t.name}_{mode}", nested.get(mode, 1)
            part = Part(t.name, "stride", at, extent=f"{mode.upper()}{suffix}" if mode + suffix in known.extents else "")
            if stride is None:
                found.append(integers(name, part, leaves, t.width, t.width, t.lowest))
            elif leaves == 1:
                found.append(stride)
            else:
                rest = []
                for leaf in range(1, leaves):
                    known.parts[f"{name}{leaf}"] = replace(part, leaf=leaf, multiple=t.width)
                    rest.append(k.integer(f"{name}{leaf}", lo=t.lowest, multiple=t.width))
                found.append((stride, *rest))
        return tuple(found)

    by_mode = {t.name: strides(t) if t.addressed else () for t in tensors}
    if suffix not in known.batch:
        known.batch[suffix] = tuple(k.integer(f"L{suffix}{i}") for i in range(batch))
        known.parts |= {f"L{suffix}{i}": Part(f"L{suffix}", "element", leaf=i) for i in range(batch)}
    extents = known.batch[suffix]

    def steps(t: TensorParam) -> tuple[IntLike, ...]:
        present = (t.batch,) * len(extents) if isinstance(t.batch, bool) else t.batch
        known.tensors[t.name] = replace(t, batch=present)
        found: list[IntLike] = []
        for i, has in enumerate(present):
            if has:
                known.parts[f"d{t.name}_l{i}"] = Part(t.name, "batch", i, i, t.width, f"L{suffix}")
            found.append(k.integer(f"d{t.name}_l{i}", lo=t.lowest, multiple=t.width) if has else 0)
        return tuple(found)

    by_batch = {t.name: steps(t) if t.addressed else () for t in tensors}
    return tuple(GlobalTensor(t, pointers.get(t.name), tuple(known.extents.get(mode + suffix, 1) for mode in t.modes),
                              by_mode[t.name], extents[:len(by_batch[t.name])] if t.addressed else extents, by_batch[t.name])
                 for t in tensors)


@dataclass(frozen=True)
class Signature:
    """What a kernel takes, in the order of its parameters.

    Attributes
    ----------
    kernel : str
        The kernel's name.
    params : tuple of Param
        The parameters.
    parts : tuple of Part
        What each of them takes.
    tensors : mapping
        The tensors among what is bound, by name.
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
            By name: a :class:`View` for each tensor; for an extent the integer, or a sequence where modes are nested in it; the
            extents of the batch modes, innermost first, as ``L``; and the value of every other parameter.

        Raises
        ------
        TypeError
            If something is missing, unknown or given twice, or a tensor has other modes; names it and the kernel.
        ValueError
            If a value contradicts what the kernel was generated for.
        """
        values: dict[str, Any] = {}
        for group in (*groups, named):
            if twice := values.keys() & group.keys():
                raise TypeError(f"{self.kernel} is given {_listed(twice)} twice")
            values |= group
        missing, unknown = self.names.keys() - values.keys(), values.keys() - self.names.keys()
        if missing or unknown:
            wrong = [f"{said} {_listed(names)}" for said, names in (("is not given", missing), ("takes no", unknown)) if names]
            raise TypeError(f"{self.kernel} {' and '.join(wrong)}; it takes {', '.join(self.names)}")
        for name, value in values.items():
            self._check(name, value)
        return tuple(self._argument(param, part, values) for param, part in zip(self.params, self.parts, strict=True))

    def _check(self, name: str, value: Any) -> None:
        """Refuse what is of the wrong kind."""
        if (tensor := self.tensors.get(name)) is None:
            if isinstance(value, View):
                raise TypeError(f"{name} of {self.kernel} is no tensor, got {value}")
            elements = sum(self.parts[at].kind == "element" for at in self.names[name])
            if elements and (not isinstance(value, Sequence) or len(value) != elements):
                raise TypeError(f"{name} of {self.kernel} is {elements} extents, got {value!r}")
            return
        if not isinstance(value, View):
            raise TypeError(f"{name} of {self.kernel} is a tensor and takes a View, got {value!r}")
        if bool(tensor.map) != (value.map is not None) or (tensor.addressed and value.memory is None):
            wanted = " and ".join(["its address"] * tensor.addressed + ["a tensor map"] * bool(tensor.map))
            raise TypeError(f"{name} of {self.kernel} takes {wanted}, got {value}")
        if not tensor.addressed:
            return
        present = tensor.batch if isinstance(tensor.batch, tuple) else ()
        if len(value.strides) != len(tensor.modes) or (any(present) and len(value.batch) != len(present)):
            raise TypeError(f"{name} of {self.kernel} has the modes {', '.join(tensor.modes)} and {len(present)} batch modes, "
                            f"got {value}")

    @staticmethod
    def _single(part: Part, values: Mapping[str, Any]) -> bool:
        """Whether there is but one element along the mode of a stride, so that any will do."""
        extent = values.get(part.extent, 2)
        return (extent if part.leaf is None or not isinstance(extent, Sequence) else extent[part.leaf]) <= 1

    def _argument(self, param: Param, part: Part, values: Mapping[str, Any]) -> Any:
        """What one parameter takes of the value of its name."""
        value = values[part.of]
        match part.kind:
            case "value":
                found = value
            case "address":
                return value.memory
            case "map":
                return value.map
            case "element":
                found = value[part.leaf]
            case "stride":
                found = value.strides[part.at] if part.leaf is None else value.strides[part.at][part.leaf]
            case "batch":
                found = value.batch[part.at]
        if part.multiple > 1 and found % part.multiple and not self._single(part, values):
            raise ValueError(f"{param.name} of {self.kernel} is a multiple of {part.multiple}, got {found}")
        return found

    def __str__(self) -> str:
        return "\n".join([f"{self.kernel} takes", *(f"  {line}" for name in self.names for line in self._lines(name))])

    def _lines(self, name: str) -> Iterable[str]:
        """What is said of one name."""
        params = [(self.params[at], self.parts[at]) for at in self.names[name]]
        if (tensor := self.tensors.get(name)) is not None:
            strides = [next((q.name for q, part in params if part.kind == "stride" and part.at == at and not part.leaf), str(known))
                       for at, known in enumerate(tensor.known_strides)]
            vectors = f" in vectors of {tensor.width}" if tensor.width > 1 else ""
            by = " by a tensor map" if tensor.map else ""
            said = f", strides ({', '.join(strides)})" if tensor.addressed and strides else ""
            steps = [q.name for q, part in params if part.kind == "batch"]
            access = "written" if tensor.written else "read"
            yield (f"{name} ({', '.join(tensor.modes)}) {tensor.element}, {access}{vectors}{by}{said}"
                   + (f", of batch modes ({', '.join(steps)})" if steps else ""))
            return
        for q, part in params:
            what = f"address of {q.dtype.name}" if q.kind == "pointer" else "tensor map" if q.kind == "tensor_map" else q.dtype.name
            yield f"{q.name} {what}" + (f", a multiple of {part.multiple}" if part.multiple > 1 else "")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))

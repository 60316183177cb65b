"""A plan: which kernels run, with which arguments, and why. Pure data, made without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .problem import ChainProblem, DeviceInfo, Problem

if TYPE_CHECKING:
    from ..codegen.kernel import GeneratedKernel, TensorMapSpec
    from .cost.work import Counted, Work

_ALIGNMENT = 256                     # bytes: every part of the workspace begins at a multiple of it

Grid = tuple[int, int, int]
Role = str
"""What a call supplies: an address for ``a``, ``b``, ``c``, ``src``, ``dst``, ``workspace`` and an
epilogue's matrices (``epi_<name>``); a number, or a number's address, for ``alpha`` and ``beta``;
a number for an epilogue's."""


@dataclass(frozen=True)
class Argument:
    """The value of one kernel parameter: a constant of the plan, or something that each call
    supplies.

    ``role`` names what the call supplies; ``value`` is the constant when ``role`` is ``None``. With
    ``tensor_map`` the argument is the tensor map of that specification over the memory of ``role``.
    ``offset`` is added to the address, in bytes.

    Attributes
    ----------
    role : str, optional
        The name of the address or number that the call supplies.
    value : number, optional
        The constant, if there is no role.
    tensor_map : TensorMapSpec, optional
        How TMA sees the memory of the role.
    offset : int
        Bytes that are added to the address.

    Examples
    --------
    >>> Argument(value=3), Argument(role="a").role
    (Argument(role=None, value=3, tensor_map=None, offset=0), 'a')
    """

    role: Role | None = None
    value: int | float | complex | None = None
    tensor_map: TensorMapSpec | None = None
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """One kernel launch: the kernel, the grid (blocks along x, y, z) and an argument for each of
    the kernel's parameters.

    Attributes
    ----------
    kernel : GeneratedKernel
        The kernel.
    grid : tuple of int
        Blocks along x, y and z.
    arguments : tuple of Argument
        One for each of the kernel's parameters.

    Examples
    --------
    >>> half = Operand("float16", (4096, 1))
    >>> problem = GemmProblem(4096, 4096, 4096, a=half, b=half, c=half)
    >>> launch = plan_gemm(problem, H200).launches[0]
    >>> len(launch.grid), len(launch.arguments) == len(launch.kernel.params)
    (3, True)
    """

    kernel: GeneratedKernel
    grid: Grid
    arguments: tuple[Argument, ...]

    @classmethod
    def later(cls, make: Callable[[], Launch], grid: Grid | None = None) -> Launch:
        """A launch that is made, and its kernel generated, when it is asked for more than its grid,
        if that is known."""
        launch = object.__new__(cls)
        vars(launch).update({"grid": grid} if grid else {}, _make=make)
        return launch

    def __getattr__(self, name: str) -> Any:
        if name not in Launch.__match_args__ or "_make" not in (own := vars(self)):
            raise AttributeError(name)
        made = own["_make"]()
        own.update({each: getattr(made, each) for each in Launch.__match_args__})
        return own[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return Launch, (self.kernel, self.grid, self.arguments)


def place(role: Role | Argument, offset: int = 0) -> Argument:
    """The memory of a role, or an argument as it is, from some bytes on."""
    argument = role if isinstance(role, Argument) else Argument(role)
    return replace(argument, offset=argument.offset + offset) if offset else argument


def placed(launches: Iterable[Launch], places: Mapping[Role, Argument]) -> tuple[Launch, ...]:
    """Launches in which other memory, or a constant, stands for some roles."""
    def moved(argument: Argument) -> Argument:
        if argument.role is None or (there := places.get(argument.role)) is None:
            return argument
        return replace(there, offset=there.offset + argument.offset, tensor_map=argument.tensor_map)

    def elsewhere(launch: Launch) -> Launch:
        return replace(launch, arguments=tuple(map(moved, launch.arguments)))

    return tuple(Launch.later(partial(elsewhere, launch), vars(launch).get("grid"))
                 for launch in launches)


def aligned(nbytes: int) -> int:
    """The first offset from ``nbytes`` on at which a part of the workspace may begin."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class Workspace:
    """The scratch memory of a plan, taken from the front; ``nbytes`` is the most at a time."""

    def __init__(self) -> None:
        self.nbytes = self._taken = 0

    def take(self, nbytes: int) -> Argument:
        """A part that stays until the ``with`` block of :meth:`lent` around it ends."""
        begin = aligned(self._taken)
        self._taken = begin + nbytes
        self.nbytes = max(self.nbytes, self._taken)
        return Argument("workspace", offset=begin)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let later launches use again what is taken inside a ``with`` block."""
        taken = self._taken
        yield
        self._taken = taken


@dataclass(frozen=True)
class Plan:
    """The launches that compute a problem on a device, and the reason for each choice.

    Attributes
    ----------
    problem : Problem
        The problem that the launches compute.
    device : DeviceInfo
        The device that the plan is for.
    family : str
        The kernel family: ``"gemm_simt"``, ``"gemm_mma"``, ``"gemm_wgmma"``, ``"transpose"``,
        ``"copy"``, ..., or ``"nothing"`` when there is nothing to do.
    config : object
        The family's frozen configuration (tile, stages, ...).
    launches : tuple of Launch
        In order, on one stream.
    workspace_bytes : int
        Scratch memory that the launches share.
    reason : str
        Why this kernel and this configuration.
    seconds : float or None
        The expected time of all launches, from the model that the family chooses with; ``None`` if
        a caller overruled the choice or there is no model.
        :func:`~cuteblas.planning.floors.estimate` weighs it against the floor.
    copied : tuple of str
        Operands that the launches copy first, and why.
    fallback : str
        The slower kernel that computes this, or part of it, and why: a faster family refused it, or
        the elements decide it.
    works : tuple of Counted
        The counted resources that ``seconds`` is the time of, one after the other.
    measured : str
        What the best plans took where they were timed, this one first: see :func:`cuteblas.tune`.
    notes : mapping
        Facts for readers beside those of kernels.

    Examples
    --------
    >>> half = Operand("float16", (4096, 1))
    >>> problem = GemmProblem(4096, 4096, 4096, a=half, b=half, c=half)
    >>> plan = plan_gemm(problem, H200)
    >>> plan.family, plan.copied
    ('gemm_wgmma', ())
    >>> "__global__" in plan.launches[0].kernel.body
    True
    """

    problem: Problem
    device: DeviceInfo
    family: str
    config: object
    launches: tuple[Launch, ...]
    workspace_bytes: int = 0
    reason: str = ""
    seconds: float | None = None
    copied: tuple[str, ...] = ()
    fallback: str = ""
    works: tuple[Counted, ...] = field(default=(), compare=False)
    measured: str = field(default="", compare=False)
    notes: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def main_kernel(self) -> GeneratedKernel | None:
        """The kernel that does the work: the one that has the family's name, or the first."""
        kernels = [launch.kernel for launch in self.launches]
        return next((x for x in kernels if x.name.startswith(self.family)),
                    kernels[0] if kernels else None)

    @property
    def facts(self) -> Mapping[str, str]:
        """Facts about the main kernel for readers: layouts, bank conflicts, vector widths."""
        return {**(self.main_kernel.facts if self.main_kernel else {}), **self.notes}

    def within(self, workspace: Workspace, **places: Role | Argument) -> Plan:
        """This plan as a part of another one.

        Parameters
        ----------
        workspace : Workspace
            Of the whole plan. The part uses it after what has been taken.
        **places : str or Argument
            The memory of the part's roles: of a role of the whole, or in the workspace.
        """
        with workspace.lent():
            own = workspace.take(self.workspace_bytes)
        launches = placed(self.launches, {"workspace": own,
                                          **{role: place(there) for role, there in places.items()}})
        return replace(self, launches=launches, workspace_bytes=workspace.nbytes)

    def then(self, other: Plan) -> Plan:
        """This plan and another one, both :meth:`within` one workspace, as one.

        Parameters
        ----------
        other : Plan
            The plan whose launches follow.

        Returns
        -------
        Plan
            Of a :class:`~cuteblas.planning.problem.ChainProblem`.
        """
        launches = *self.launches, *other.launches
        roles = {argument.role for each in launches
                 for param, argument in zip(each.kernel.params, each.arguments, strict=True)
                 if param.kind != "scalar" and argument.role is not None}
        chain = ChainProblem((self.problem, other.problem), tuple(sorted(roles - {"workspace"})))
        seconds = None if self.seconds is None or other.seconds is None else self.seconds + other.seconds
        return replace(other, problem=chain, launches=launches,
                       workspace_bytes=max(self.workspace_bytes, other.workspace_bytes),
                       seconds=seconds, reason=f"{self.reason}; then {other.reason}",
                       copied=(*self.copied, *other.copied),
                       fallback="; ".join(filter(None, (self.fallback, other.fallback))),
                       works=(*self.works, *other.works))

    @classmethod
    def nothing(cls, problem: Problem, device: DeviceInfo, config: object = None,
                reason: str = "the result has no elements") -> Plan:
        """That of a problem without elements."""
        return cls(problem, device, "nothing", config, (), reason=reason, seconds=0.0)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles whose addresses a call supplies, in order."""
        return self.problem.roles

    @property
    def arch(self) -> str:
        """The architecture of the device."""
        return self.device.arch

    @property
    def source(self) -> str:
        """The CUDA C++ of the kernels, without the device functions that they call."""
        return "\n".join(launch.kernel.body for launch in self.launches)

    @property
    def full_source(self) -> str:
        """The text that the compiler gets: each kernel after a prelude with the device functions
        that it calls."""
        return "\n".join(launch.kernel.cuda_source for launch in self.launches)


@dataclass(frozen=True)
class Alternative:
    """One of the plans among which planning chooses: ``works`` are those of its parts, ``floor``
    the least clocks of the family's multiply-adds."""

    family: str
    name: str
    works: tuple[Counted, ...]
    plan: Callable[[], Plan]
    floor: float = 0.0

    def seconds(self, device: DeviceInfo) -> float:
        return max(device.seconds(self.floor), sum(work.seconds(device) for work in self.works))

    def __str__(self) -> str:
        return f"{self.family} {self.name}"


class Worked(Protocol):
    """A choice of a family, which says what it does."""

    @property
    def work(self) -> Work:
        """The counted resources."""


_Worked = TypeVar("_Worked", bound=Worked)


def least(choices: Iterable[_Worked], device: DeviceInfo) -> _Worked:
    """The first of some choices with the least expected time."""
    return min(choices, key=lambda choice: choice.work.seconds(device))

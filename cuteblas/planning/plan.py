"""A plan: which kernels run, with which arguments, and why. Pure data; it is made and read without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .problem import DeviceInfo, Problem

if TYPE_CHECKING:
    from ..codegen.kernel import GeneratedKernel, TensorMapSpec

__all__ = ["Argument", "Launch", "Plan", "Role", "with_roles"]

Role = str
"""What a call supplies: an address for ``a``, ``b``, ``c``, ``src``, ``dst``, ``workspace`` and the matrices of an epilogue
(``epi_<name>``); a number, or an address where the problem says so, for ``alpha`` and ``beta``; a number for those of an
epilogue."""


@dataclass(frozen=True)
class Argument:
    """The value of one kernel parameter: a constant of the plan, or something that each call supplies.

    ``role`` names what the call supplies; ``value`` is the constant when ``role`` is ``None``. With ``tensor_map`` the argument is
    the tensor map of that specification over the memory of ``role``. ``offset`` is added to the address, in bytes.

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
    """One kernel launch: the kernel, the grid (blocks along x, y, z) and an argument for each of the kernel's parameters.

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
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]


def with_roles(launch: Launch, places: Mapping[Role, tuple[Role, int]]) -> Launch:
    """A launch in which other memory has some roles: that of a role, from some bytes on."""
    def moved(argument: Argument) -> Argument:
        if argument.role is None or argument.role not in places:
            return argument
        role, offset = places[argument.role]
        return replace(argument, role=role, offset=argument.offset + offset)

    return replace(launch, arguments=tuple(map(moved, launch.arguments)))


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
        The kernel family: ``"gemm_simt"``, ``"gemm_mma"``, ``"gemm_wgmma"``, ``"transpose"``, ``"copy"``, ..., or ``"nothing"``
        when there is nothing to do.
    config : object
        The family's frozen configuration (tile, stages, ...).
    launches : tuple of Launch
        In order, on one stream.
    workspace_bytes : int
        Scratch memory that the launches share.
    reason : str
        Why this kernel and this configuration.
    facts : mapping
        Facts about the kernel for readers: layouts, bank conflicts, vector widths.
    seconds : float or None
        The expected time of all launches, from the model that the family chooses with; ``None`` if a caller overruled the choice or
        there is no model. :func:`~cuteblas.planning.estimates.estimate` weighs it against the floor.
    copied : tuple of str
        Operands that the launches copy first, and why.
    fallback : str
        The slower kernel that computes this, or part of it, and why: a faster family refused it, or the elements decide it.

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
    facts: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)
    seconds: float | None = None
    copied: tuple[str, ...] = ()
    fallback: str = ""

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
        """The text that the compiler gets: each kernel after a prelude with the device functions that it calls."""
        return "\n".join(launch.kernel.cuda_source for launch in self.launches)

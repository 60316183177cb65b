"""Plans made ready to launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..codegen.architectures import capabilities
from .arguments import ArgumentBlock, tensor_map_encoder
from .devices import device_info, is_captured
from .driver import OverlappingLaunch
from .errors import DriverError, require
from .graphs import Call, LaunchGraph, graph_of
from .loading import load_all

if TYPE_CHECKING:
    from ..codegen.kernel import GeneratedKernel
    from ..planning.plan import Launch, Plan
    from ..planning.problem import DeviceInfo

_INVALID_CONTEXT = 201
_MAX_THREADS = 1024
_PLAIN_CALLS = 2                   # of several launches on a stream, before a graph of them is made
_MOST_STREAMS = 8                  # that have one


def check_launch(launch: Launch, device: DeviceInfo) -> None:
    kernel, (x, y, z) = launch.kernel, launch.grid
    if not (1 <= x < 2**31 and 1 <= y < 2**16 and 1 <= z < 2**16):
        raise ValueError(
            f"kernel {kernel.name} needs a grid of {x} x {y} x {z} blocks, but the limits are "
            f"{2**31 - 1} x {2**16 - 1} x {2**16 - 1}"
        )
    if not 1 <= kernel.threads <= _MAX_THREADS:
        raise ValueError(
            f"kernel {kernel.name} needs {kernel.threads} threads per block, but the limit is {_MAX_THREADS}"
        )
    if kernel.shared_bytes > device.shared_bytes_per_block:
        raise ValueError(
            f"kernel {kernel.name} needs {kernel.shared_bytes} bytes of shared memory per block, but {device.name} "
            f"has {device.shared_bytes_per_block}"
        )
    if any(blocks % width for blocks, width in zip(launch.grid, kernel.cluster, strict=True)):
        raise ValueError(
            f"kernel {kernel.name} needs a grid of {x} x {y} x {z} blocks, but its clusters of "
            f"{' x '.join(map(str, kernel.cluster))} do not divide it"
        )
    if kernel.cluster != (1, 1, 1) and "__cluster_dims__" not in kernel.body:
        raise ValueError(
            f"kernel {kernel.name} runs in clusters, but its source does not declare them with __cluster_dims__"
        )


class PlanRecord(NamedTuple):
    """What an executor needs of a :class:`~cuteblas.planning.plan.Plan` of another process."""

    roles: tuple[str, ...]
    arch: str
    workspace_bytes: int
    launches: tuple[Launch, ...]


class _OnStream:
    """Several launches on one stream, as a graph from some call on."""

    __slots__ = ("arguments", "calls", "graph", "times", "updates")

    def __init__(self, arguments: ArgumentBlock, calls: tuple[Call, ...]):
        self.arguments, self.calls = arguments, calls
        self.graph: LaunchGraph | None = None
        self.times = 0                  # calls without a graph; negative if there will be none
        self.updates: tuple[tuple[int, int], ...] = ()


def _launched_on(call: Call, stream: int) -> None:
    call.launch_kernel(call.function, call.x, call.y, call.z, call.threads, 1, 1, call.shared_bytes,
                       stream, call.parameters, 0)


class Executor:
    """A plan on one device, ready to launch; it may be shared between threads.

    Parameters
    ----------
    plan : Plan or PlanRecord
        The plan, or the record of one that another process made.
    ordinal : int
        The device, which must be current when :meth:`launch` is called.
    functions : sequence of int
        The loaded ``CUfunction`` of each launch.
    launch_kernel : callable
        ``cuLaunchKernel`` with its parameters as integers; it raises a :class:`RuntimeError` with
        an attribute ``status``.
    overlapping : callable, optional
        Makes a ``launch_kernel`` whose launches may overlap with the one before.
    graph_of : callable, optional
        :func:`~cuteblas.runtime.graphs.graph_of`.

    Notes
    -----
    The driver copies arguments during its call, but a second thread could overwrite them just
    before. Therefore every call takes an argument block from a list and puts it back; if the list
    is empty, it makes a block. A plan with several launches has one block per stream, for a few
    streams. There its launches become a CUDA graph, which the host starts faster than one kernel.
    In a stream that is being captured they are launched one by one.

    Examples
    --------
    >>> ready = executor(cuteblas.explain(a, b).plan)  # doctest: +SKIP
    >>> ready.plan.family  # doctest: +SKIP
    """

    def __init__(self, plan: Plan | PlanRecord, ordinal: int, functions: Sequence[int],
                 launch_kernel: Callable[..., Any],
                 overlapping: Callable[[], Callable[..., Any]] = OverlappingLaunch,
                 graph_of: Callable[..., LaunchGraph | None] = graph_of):
        self.plan = plan
        self.ordinal = ordinal
        self._functions = tuple(functions)
        self._launch_kernel, self._overlapping = launch_kernel, overlapping
        self._workspace_bytes = plan.workspace_bytes if plan.launches else 0
        self._roles = (*plan.roles, "workspace") if self._workspace_bytes else plan.roles
        self._captured: list[object] = []     # workspaces that CUDA graphs will use again
        self._graph_of = graph_of
        self._several = len(plan.launches) > 1
        self._streams: dict[int, _OnStream] = {}
        self._known_streams: set[int] = set()
        self._blocks = [self._new_block()]

    def launch(self, addresses: Sequence[int], stream: int, alpha: complex = 1.0,
               beta: complex = 0.0, numbers: Mapping[str, complex] | None = None) -> None:
        """Put the plan's kernels on a stream; returns without waiting for them.

        Parameters
        ----------
        addresses : sequence of int
            Device addresses in the order of ``plan.problem.roles``.
        stream : int
            The ``cudaStream_t`` of CuPy's current stream.
        alpha, beta : number
            The scalars, if the plan takes them as numbers.
        numbers : mapping of str to number, optional
            Those of an epilogue, by role.

        Raises
        ------
        DriverError
            If the driver refuses a launch.
        """
        if self._several or self._workspace_bytes:
            cuda = self._cuda
            captured = is_captured(cuda.runtime, stream)
            if self._workspace_bytes:
                workspace = cuda.alloc(self._workspace_bytes)
                addresses = (*addresses, workspace.ptr)
                if captured:
                    self._captured.append(workspace)
            if self._several and not captured and self._on_stream(addresses, stream, alpha, beta,
                                                                  numbers):
                return
        try:
            block = self._blocks.pop()
        except IndexError:
            block = self._new_block()
        try:
            arguments, calls = block
            arguments.write(addresses, alpha, beta, numbers)
            for call in calls:
                launch_kernel, function, x, y, z, threads, shared_bytes, parameters, _ = call
                try:
                    launch_kernel(function, x, y, z, threads, 1, 1, shared_bytes, stream,
                                  parameters, 0)
                except RuntimeError as error:
                    self._again(error, call, stream)
        finally:
            self._blocks.append(block)

    def _on_stream(self, addresses: Sequence[int], stream: int, alpha: complex, beta: complex,
                   numbers: Mapping[str, complex] | None) -> bool:
        """Put several launches on a stream as a graph, and say whether that was done."""
        here = self._streams.pop(stream, None)          # no other thread has it now
        if here is None:
            if stream in self._known_streams or len(self._known_streams) >= _MOST_STREAMS:
                return False
            self._known_streams.add(stream)
            here = _OnStream(*self._new_block())
        try:
            graph = here.graph
            if graph is None:
                if here.times < 0:
                    return False
                here.times += 1
                if here.times <= _PLAIN_CALLS:
                    return False
                here.arguments.write(addresses, alpha, beta, numbers)
                graph = here.graph = self._graph_of(here.calls)
                here.times = -1
                here.updates = tuple(enumerate(here.arguments.reads))
                if graph is None:
                    return False
            elif changed := here.arguments.write(addresses, alpha, beta, numbers):
                for number, reads in here.updates:
                    if reads & changed:
                        graph.update(number)
            graph.launch(stream)
        except RuntimeError as error:
            here.arguments.forget()                     # a node may have those of another call
            if getattr(error, "status", None) != _INVALID_CONTEXT:
                here.graph, here.times = None, -1
            return False
        finally:
            self._streams[stream] = here
        return True

    def _new_block(self) -> tuple[ArgumentBlock, tuple[Call, ...]]:
        arguments = ArgumentBlock(self.plan.launches, self._roles, tensor_map_encoder)
        launches = zip(self._functions, self.plan.launches, arguments.parameters, strict=True)

        def call(function: int, launch: Launch, parameters: int) -> Call:
            kernel = launch.kernel
            overlaps = kernel.waits and capabilities(self.plan.arch).overlapping_launches
            launch_kernel = self._overlapping() if overlaps else self._launch_kernel
            return Call(launch_kernel, function, *launch.grid, kernel.threads, kernel.shared_bytes,
                        parameters, overlaps)

        return arguments, tuple(call(*each) for each in launches)

    @cached_property
    def _cuda(self) -> Any:
        return require("cupy").cuda

    def _again(self, error: RuntimeError, call: Call, stream: int) -> None:
        """Launch once more if the thread had no context yet, else say what went wrong."""
        cuda = self._cuda
        current = cuda.Device().id
        if current == self.ordinal and getattr(error, "status", None) == _INVALID_CONTEXT:
            cuda.runtime.free(0)     # makes the context that CuPy uses current
            try:
                _launched_on(call, stream)
                return
            except RuntimeError as second:
                error = second
        name = self.plan.launches[self._functions.index(call.function)].kernel.name
        elsewhere = f" while device {current} is current" if current != self.ordinal else ""
        raise DriverError(
            f"launching kernel {name} on device {self.ordinal}{elsewhere}: {error}"
        ) from error


def executor(plan: Plan) -> Executor:
    """Compile and load a plan's kernels on the current device.

    Parameters
    ----------
    plan : Plan
        The plan. Without launches it does not need a device.

    Returns
    -------
    Executor
        The plan on that device, ready to launch.

    Raises
    ------
    ValueError
        If the device cannot run the plan.
    RuntimeError
        If a kernel has to be loaded while CuPy's current stream is being captured.
    CompileError, DriverError, MissingDependency
        If the compiler or the driver refuses a kernel, or is missing.

    Examples
    --------
    >>> executor(cuteblas.explain(a, b).plan).launch(addresses, stream)  # doctest: +SKIP
    """
    if not plan.launches:
        return Executor(plan, 0, (), lambda *_: None)
    cuda = require("cupy").cuda
    ordinal = cuda.Device().id

    def kernels() -> Iterator[GeneratedKernel]:
        for launch in plan.launches:
            check_launch(launch, device_info(ordinal))
            yield launch.kernel

    functions = [loaded.function for loaded in load_all(kernels(), ordinal)]
    # CuPy's binding takes plain integers and costs a quarter of cuda.bindings' (70 and 280 ns
    # beside what the driver takes).
    return Executor(plan, ordinal, functions, cuda.driver.launchKernel)


def warmup(plan: Plan) -> None:
    """Compile and load a plan's kernels on the current device, so that its first launch may be
    captured.

    Parameters
    ----------
    plan : Plan
        The plan to launch later.

    Returns
    -------
    None
        The kernels are loaded.

    Examples
    --------
    >>> warmup(cuteblas.explain(a, b).plan)  # doctest: +SKIP
    """
    executor(plan)

"""Many products in one call, of one shape or of different ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engines.dispatch import Replayable, own_call
from ..engines.execution import Execution
from ..engines.memory import Memory, overlap
from ..functions.gemm import prepare as prepare_product
from ..functions.gemm import run_group
from ..functions.signatures import Array, EpilogueLike, Flag, Precision, Promoted, Transposed
from .arguments import Call, Request, prepare
from .calls import answered, execute, recordable, replayable, run, where
from .libraries import LISTS, Place


def gemm_batched(alpha: Any, a: Any, b: Any, beta: Any = 0, c: Any = None, trans_a: Transposed = 0,
                 trans_b: Transposed = 0, overwrite_c: Flag = 0, *, dtype: Any = None,
                 compute_dtype: Any = None, epilogue: EpilogueLike = None,
                 precision: Precision | None = None, out: Any = None, stream: Any = None,
                 variant: str | None = None) -> Any:
    """Products of matrices of one shape: :func:`gemm` of arrays with batch dimensions, or of lists
    of arrays, one for each product.

    Parameters
    ----------
    alpha, beta, trans_a, trans_b, overwrite_c, dtype, compute_dtype, epilogue, precision, stream, variant
        As in :func:`gemm`, for all products.
    a, b, c, out : array, or list of arrays
        Either all are arrays, or all are lists; the arrays of a list have one shape.

    Returns
    -------
    array or list
        What :func:`gemm` returns for arrays; for lists, a list of such results.

    Raises
    ------
    TypeError, ValueError
        As in :func:`gemm`; also for lists of different lengths, and for lists of arrays of
        different shapes.

    Examples
    --------
    >>> import numpy as np
    >>> from cuteblas.blas import gemm_batched
    >>> gemm_batched(1, np.ones((3, 2, 4)), np.ones((4, 5))).shape
    (3, 2, 5)
    """
    request = Request(**locals())
    if not _is_list_of_arrays(a) and not _is_list_of_arrays(b):
        return run("gemm", None, request)
    for name, operand in (("a", a), ("b", b), ("c", c), ("out", out)):
        if operand is None:
            continue
        if not _is_list_of_arrays(operand):
            raise TypeError(
                f"gemm_batched takes arrays, or a list of arrays for each operand, but {name} is not a list of arrays"
            )
        shapes = {tuple(x.shape) for x in operand}
        if len(shapes) > 1:
            raise ValueError(
                f"gemm_batched takes arrays of one shape, but those of {name} are "
                f"{', '.join(map(str, sorted(shapes)))}; gemm_grouped takes arrays of different shapes"
            )
    return _grouped("gemm_batched", request, frozenset())


def gemm_grouped(alpha: Any, a: Sequence[Promoted[Array]], b: Sequence[Promoted[Array]],
                 beta: Any = 0, c: Sequence[Any] | None = None,
                 trans_a: Transposed | Sequence[Transposed] = 0,
                 trans_b: Transposed | Sequence[Transposed] = 0, overwrite_c: Flag = 0, *,
                 dtype: Any = None, compute_dtype: Any = None,
                 epilogue: EpilogueLike | Sequence[EpilogueLike] = None,
                 precision: Precision | None = None, out: Sequence[Any] | None = None,
                 stream: Any = None, variant: str | None = None) -> list[Array]:
    """Products of matrices of different sizes; those of the same types share a launch. All are
    checked before the first runs.

    Parameters
    ----------
    alpha, beta, trans_a, trans_b, epilogue
        As in :func:`gemm`: one value for all problems, or a list with one for each.
    a, b : list of array
        The operands of each problem.
    c, out : list of (array or None), optional
        As in :func:`gemm`.
    overwrite_c, dtype, compute_dtype, precision, stream, variant
        As in :func:`gemm`, for all problems.

    Returns
    -------
    list
        What :func:`gemm` returns, for each problem.

    Raises
    ------
    TypeError, ValueError
        As in :func:`gemm`, with the number of the problem; also for lists of different lengths, and
        if a problem writes memory that another one reads or writes, because problems run in any
        order.

    Examples
    --------
    >>> import numpy as np
    >>> from cuteblas.blas import gemm_grouped
    >>> sizes = [(2, 3, 4), (5, 6, 7)]
    >>> results = gemm_grouped(1, [np.ones((m, k)) for m, n, k in sizes], [np.ones((k, n)) for m, n, k in sizes])
    >>> [result.shape for result in results]
    [(2, 3), (5, 6)]
    """
    return _grouped("gemm_grouped", Request(**locals()),
                    frozenset({"alpha", "beta", "trans_a", "trans_b", "epilogue"}))


def _is_list_of_arrays(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and bool(x) and all(hasattr(element, "shape")
                                                            for element in x)


def _grouped(function: str, request: Request, listed: frozenset[str]) -> list[Any]:
    """Run a request of lists; arguments in ``listed`` may have a value for each problem."""
    lists = {name: value for name, value in request._asdict().items() if name in ("a", "b")
             or (name in ("c", "out") and value is not None)
             or (name in listed and isinstance(value, LISTS))}
    for name, value in lists.items():
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{function} takes a list as {name}, got {type(value).__name__}")
        if len(value) != len(lists["a"]):
            raise ValueError(
                f"{function} takes lists of one length, but a has {len(lists['a'])} and {name} {len(value)}"
            )
    requests = [request._replace(**dict(zip(lists, values, strict=True)))
                for values in zip(*lists.values(), strict=True)]
    candidates = [
        call
        for each in requests  # on the host they are not a group
        if type(each.a) is not np.ndarray and (call := replayable(function, each)) is not None
    ]
    if candidates and len(candidates) == len(requests):
        from ..engines.replay.groups import replay_group

        if (results := replay_group(function, candidates)) is not None:
            return results
    if (own := own_call(*(x for each in requests for x in each))) is not None:
        return own(_grouped, (function, request, listed), {})
    calls = [prepare(f"{function}, problem {i}:", None, each) for i, each in enumerate(requests)]
    _check_independence(function, calls)
    return _execute_all([call._replace(function=function) for call in calls], candidates)


def _execute_all(calls: Sequence[Call], candidates: Sequence[Replayable]) -> list[Any]:
    """Run independent products, those of a device together, and record them as a group."""
    places: dict[Place, list[int]] = {}
    for i, call in enumerate(calls):
        places.setdefault(call.place, []).append(i)
    results: list[Any] = [None] * len(calls)
    for indices in places.values():
        chosen = [calls[i] for i in indices]
        if not chosen[0].engine.kernels:
            done = [execute(call) for call in chosen]
        else:
            with where(chosen[0]):
                execution = Execution(chosen[0].function, chosen[0].engine)
                prepared = [prepare_product(execution, call.given) for call in chosen]
                answers = run_group(execution, prepared)
                if len(candidates) == len(chosen) == len(calls):
                    known = [recordable(each, call.given.alpha, call.given.beta)
                             for each, call in zip(candidates, calls, strict=True)]
                    if None not in known:
                        execution.record_group(known, [result for result, _further in answers])  # type: ignore[arg-type]
            done = [answered(call, *answer) for call, answer in zip(chosen, answers, strict=True)]
        for i, result in zip(indices, done, strict=True):
            results[i] = result
    return results


def _check_independence(function: str, calls: Sequence[Call]) -> None:
    """Refuse problems that write what another one reads or writes."""
    # Address ranges are compared in ascending order: the many that are disjoint cost nothing.
    ranges: list[tuple[int, int, int, bool, Memory]] = []
    for i, call in enumerate(calls):
        given = call.given
        for array in (given.a, given.b, given.c, given.out):
            if array is not None and array.size:
                memory = call.engine.memory(array)
                low, high = memory.span
                ranges.append((memory.address + low, memory.address + high, i, array is given.out,
                               memory))
    ranges.sort(key=lambda entry: entry[:2])
    open_ranges: list[tuple[int, int, int, bool, Memory]] = []
    for entry in ranges:
        low, _high, i, written, memory = entry
        open_ranges = [other for other in open_ranges if other[1] > low]
        for _low, _end, j, also_written, other_memory in open_ranges:
            if i != j and (written or also_written) and overlap(memory, other_memory):
                writer, reader = (i, j) if written else (j, i)
                raise ValueError(
                    f"{function} runs its problems in any order, but problem {writer} writes memory of problem "
                    f"{reader}"
                )
        open_ranges.append(entry)

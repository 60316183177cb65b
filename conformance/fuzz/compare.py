"""Comparing two outcomes of one call: NumPy's and ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from .bounds import bound_of, bound_of_routine, bounds_of_epilogue, power_of, why_outside
from .calls import Call, Code, Operand, View, operands_in
from .draw import reach
from .functions import routines
from .functions.products import PRECISIONS
from .registry import FUNCTIONS, out_position, out_views
from .run import Outcome, Seen, perform, separated
from .sides import GUARD, Reference, Side

__all__ = ["Fault", "compare"]

_REFERENCE = Reference()


@dataclass(frozen=True)
class Fault:
    """A difference that is not allowed.

    Attributes
    ----------
    what : str
        Its kind in a word: ``"refusal"``, ``"type"``, ``"dtype"``, ``"shape"``, ``"strides"``,
        ``"memory"``, ``"values"`` ...
    detail : str
    """

    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


def compare(call: Call, side: Side) -> Fault | None:
    """Make a call on both sides; the first difference that is not allowed."""
    if any(_overlaps_itself(call.views[i]) for i in out_views(call)):
        return None            # what two elements in one place are is up to the order of the writes
    if call.function.startswith(("method.", "attribute.", "operator.getitem",
                                 "operator.setitem")) and not _is_ours(call):
        return None
    if call.function.startswith("np.") and not any(call.views[i].holder == "ours"
                                                   for i in call.used()):
        return None                                 # a call of NumPy's or CuPy's own
    if call.function.startswith("np.") and isinstance(next(iter(call.arguments), None),
                                                      Code) and call.base not in FUNCTIONS:
        return None                        # NumPy looks at some arguments only, and never asks ours
    if side.on_gpu:                        # where no array is read-only
        call = replace(call, views=tuple(replace(view, writeable=True) for view in call.views))
    try:
        expected = perform(call, _REFERENCE)
    except Exception as error:                      # an argument that is not a value
        return Fault("generator", repr(error))
    got = perform(call, side)
    if expected.error is not None or got.error is not None:
        return _refusals(call, side, expected, got)
    assert expected.seen is not None and got.seen is not None
    fault = _memories(call, side, expected, got) or _described(call, side, expected.seen, got.seen)
    if fault is None and side.name != "numpy" and expected.warned - got.warned:
        fault = Fault("warnings", f"NumPy warns of {sorted(expected.warned - got.warned)}")
    return fault or _values(call, side, expected.seen, got.seen)


def _is_ours(call: Call) -> bool:
    """Whether the first argument is an array of ours."""
    first = next(iter(call.arguments), None)
    return isinstance(first, Operand) and call.views[first.view].holder == "ours"


def _refusals(call: Call, side: Side, expected: Outcome, got: Outcome) -> Fault | None:
    if expected.error is None:
        if _may_refuse(call, side, got.error):
            return None
        return Fault("refusal", f"NumPy answers, here: {_shown(got.error)}")
    if got.error is None:
        if _may_answer(call, side, expected.error):
            return None
        return Fault("acceptance",
                     f"NumPy refuses with {_shown(expected.error)}, here: {_brief(got.seen)}")
    alike = _public(got.error) is _public(expected.error)
    if not alike and not _two_mistakes(call, expected.error) and not _may_refuse(call, side, got.error):
        return Fault("exception",
                     f"NumPy raises {_shown(expected.error)}, here: {_shown(got.error)}")
    computed = isinstance(expected.error, SystemError) or "invalid data type" in str(expected.error)
    if computed or FUNCTIONS[call.function].comparison == "exact":
        # NumPy computes with datetimes before it refuses them; ufuncs raise where they are
        return None
    for i, (before, after, other) in enumerate(zip(got.before, got.memories, expected.memories,
                                                   strict=True)):
        if not np.array_equal(before, after) and not np.array_equal(after, other):
            return Fault("memory",
                         f"memory {i} was changed by a call that raised {_shown(got.error)}")
    return None


def _public(error: BaseException) -> type:
    """The nearest type that a program can name; NumPy's own private subclasses are refinements."""
    return next(kind for kind in type(error).__mro__ if not kind.__module__.startswith("numpy._"))


def _two_mistakes(call: Call, error: BaseException) -> bool:
    """Whether there may be more than one reason to refuse a call: which comes first is not promised
    then."""
    if isinstance(error, IndexError):               # NumPy stumbles
        return True
    if FUNCTIONS[call.function].comparison in ("routine", "epilogue"):    # TypeError and ValueError
        return True
    if call.base == "einsum" and isinstance(call.keyword("out"), Code):
        return True
    accidents = ("dtype from an array", "not within the valid range [0, 52)", "cannot specify both",
                 "return arrays must be of ArrayType", "only allowed as a keyword argument")
    if any(words in str(error) for words in accidents):
        return True
    valid = (None, *(Code(repr(good)) for good in PRECISIONS))
    return any(call.keyword(key) not in valid for key in ("precision", "variant"))


def _may_refuse(call: Call, side: Side, error: BaseException | None) -> bool:
    """Refusals that the documentation announces."""
    if isinstance(error, ValueError) and call.keyword("precision") not in (
        None,
        *(Code(repr(x)) for x in ("auto", "ieee"))
    ):
        return True                             # an algorithm that this product has not
    if FUNCTIONS[call.function].comparison == "routine" and "aligned to their size" in str(error) and side.name != "numpy":
        return True                             # elements that kernels cannot address
    of_epilogues = ("complex value", "no kernels for", "kernels do not", "out is not an array")
    if call.function.startswith("epilogues.") and any(words in str(error)
                                                      for words in of_epilogues):
        return True
    if not side.on_gpu or error is None:
        return False
    on_devices = ("on one device", "expected cupy", "no kernel", "interpreted as an integer",
                  "cudaErrorInsufficientDriver", "unhashable type")
    return any(words in str(error) for words in on_devices)


def _may_answer(call: Call, side: Side, error: BaseException) -> bool:
    """Calls that are answered here and not by NumPy, as the documentation says."""
    words = str(error)
    if call.function.startswith("epilogues.") and (words == "vectors"
                                                   or (words == "cast"
                                                       and call.keyword("out") is not None)):
        return True                             # the type of out is what counts
    if "return arrays must be of ArrayType" in words or "only allowed as a keyword argument" in words:
        return len(call.arguments) > 2  # what NumPy takes as ``out=`` only, here in third place too
    if "dtype from an array" in words:             # what has a dtype is one, but for NumPy's arrays
        return True
    if not side.on_gpu:
        return False
    if words == "Singular matrix" and call.base == "linalg.matrix_power":
        # whether a pivot is exactly zero is a matter of rounding: cuSOLVER's is another
        return True
    # where nothing is written
    return "output array" in words and all(0 in call.views[i].shape for i in out_views(call))


def _memories(call: Call, side: Side, expected: Outcome, got: Outcome) -> Fault | None:
    """Check that only the arrays that should be written were written."""
    written = [np.zeros(len(before), bool) for before in got.before]
    for i in out_views(call):
        view = call.views[i]
        written[view.memory] |= _footprint(view.shape, view.strides, np.dtype(view.dtype).itemsize,
                                           GUARD + view.offset, len(written[view.memory]))
    for i, (before, after, mine, theirs) in enumerate(zip(got.before, got.memories, written,
                                                          expected.memories, strict=True)):
        wrong = (before != after) & ~mine
        if side.name == "numpy":                # a fault of NumPy's own is not ours
            wrong &= after != theirs
        if wrong.any():
            first = int(np.argmax(wrong)) - GUARD
            return Fault(
                "memory",
                f"{int(wrong.sum())} bytes of memory {i} outside of the result were overwritten, "
                f"the first at {first} of {len(before) - 2 * GUARD}"
            )
    return None


def _footprint(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, offset: int,
               nbytes: int) -> np.ndarray:
    inside = np.zeros(nbytes, bool)
    offsets = np.array(offset)
    for extent, stride in zip(shape, strides, strict=True):
        offsets = offsets[..., None] + np.arange(extent) * stride
    for byte in range(itemsize):
        inside[offsets.ravel() + byte] = True
    return inside


def _overlaps_itself(view: View) -> bool:
    itemsize = np.dtype(view.dtype).itemsize
    below, above = reach(view.shape, view.strides, itemsize)
    return int(_footprint(view.shape, view.strides, itemsize, below,
                          below + above).sum()) < prod(view.shape) * itemsize


def _described(call: Call, side: Side, expected: Seen, got: Seen) -> Fault | None:
    """Everything but values."""
    label = _label(call, side, expected)
    position = out_position(call)
    if position is not None and any(isinstance(x, Code) and x.text != "None"
                                    for x in call.arguments[position:position + 1]):
        label = got.label                       # an array of the namespace, as it was given
    if got.label != label and not (got.label == expected.label and _keeps_scalars(call)):
        return Fault("type", f"{got.label} in place of {label}")
    if expected.label == "sequence":
        if (expected.values, len(expected.items)) != (got.values, len(got.items)):
            return Fault(
                "type",
                f"{got.values} of {len(got.items)} in place of {expected.values} of {len(expected.items)}"
            )
        pairs = list(zip(expected.items, got.items, strict=True))
        if call.function.startswith("epilogues."):      # further results are in any order in memory
            pairs[1:] = [(e, replace(g, strides=e.strides)) for e, g in pairs[1:]]
            if _has_out_of_another_kind(call, pairs[0][0]):
                pairs = pairs[:1]               # they follow the product, or out
        return next(filter(None, (_described(call, side, e, g) for e, g in pairs)), None)
    if not isinstance(expected.values, np.ndarray):
        return None
    if got.values.dtype != expected.values.dtype:
        return Fault("dtype", f"{got.values.dtype} in place of {expected.values.dtype}")
    if got.values.shape != expected.values.shape:
        return Fault("shape", f"{got.values.shape} in place of {expected.values.shape}")
    if expected.label == "scalar":
        return None
    if got.argument != expected.argument and call.function not in ("np.broadcast_arrays",
                                                                   "attribute.T"):
        return Fault("identity", f"the result is {_argument(got)}, in NumPy {_argument(expected)}")
    if got.place != expected.place and expected.values.size:
        return Fault("view", f"the result lies {_placed(got)}, in NumPy {_placed(expected)}")
    if not _any_order(call, side):
        wrong = [s for s, e, n in zip(got.strides, expected.strides, expected.values.shape,
                                      strict=True) if s != e and n > 1]
        if wrong and expected.values.size:
            return Fault(
                "strides",
                f"{got.strides} in place of {expected.strides} for {expected.values.shape}"
            )
    if not side.on_gpu and got.writeable != expected.writeable:
        return Fault("writeable", f"{got.writeable} in place of {expected.writeable}")
    return None


def _keeps_scalars(call: Call) -> bool:
    """Whether scalars stay what they are: ``tolist`` leaves what Python has no number for."""
    return call.function in ("method.tolist", "method.item", "list")


def _has_out_of_another_kind(call: Call, result: Seen) -> bool:
    """Whether the product by itself has another type than ``out``, or axes of extent 1 that this
    lacks."""
    alone = perform(Call("matmul", call.arguments[:2], (), call.views, call.memories),
                    _REFERENCE).seen
    return bool(out_views(call)) and alone is not None and (
        alone.values.dtype != result.values.dtype or alone.values.ndim != result.values.ndim)


def _any_order(call: Call, side: Side) -> bool:
    """Whether the order of a new result in memory follows from steps of a library's own."""
    name = call.base
    scaled = name in ("dot", "inner", "method.dot") and any(
        not isinstance(x, Operand) or not call.views[x.view].shape for x in call.arguments[:2])
    inverted = side.on_gpu and power_of(call) < 0       # in the order that cuSOLVER leaves
    return scaled or inverted or name == "kron" or (name == "einsum"
                                                    and (side.on_gpu
                                                         or call.keyword("optimize") is not None))


def _label(call: Call, side: Side, expected: Seen) -> str:
    label = expected.label
    if label not in ("array", "scalar"):
        return label
    if expected.argument in out_views(call) and call.views[expected.argument].holder == "plain":
        return "cupy" if side.on_gpu else label         # an array that was given
    if label == "scalar" and side.on_gpu and any(call.views[i].holder == "plain"
                                                 for i in out_views(call)):
        return "cupy"                        # where NumPy makes a scalar of out, it comes back here
    if any(call.views[i].holder == "ours" for i in call.used()):
        return "ours"
    return "cupy" if side.on_gpu and call.used() else label


def _values(call: Call, side: Side, expected: Seen, got: Seen) -> Fault | None:
    if FUNCTIONS[call.function].comparison == "epilogue":
        return _values_of_epilogue(call, expected, got)
    if expected.label == "sequence" and FUNCTIONS[call.function].comparison == "routine":
        pairs = enumerate(zip(expected.items, got.items, strict=True))
        return next(filter(None, (_values(routines.problem_of(call, i), side, e, g)
                                  for i, (e, g) in pairs)), None)
    if expected.label == "sequence":
        return next(filter(None, (_values(call, side, e, g)
                                  for e, g in zip(expected.items, got.items, strict=True))), None)
    if not isinstance(expected.values, np.ndarray):
        if expected.values == got.values or repr(expected.values) == repr(got.values):
            return None
        return Fault("values", f"{got.values!r} in place of {expected.values!r}")
    if _equal(got.values, expected.values):
        return None
    if got.values.dtype.kind in "SU" and FUNCTIONS[call.function].comparison == "product":
        return None                        # numbers in letters: as many digits as there is room for
    # NumPy's steps wrap and round each for itself
    if call.base == "einsum" and call.keyword("optimize"):
        plain = perform(call.without("optimize"), _REFERENCE)
        if plain.seen is not None and _equal(got.values, plain.seen.values):
            return None
    outs = out_views(call)
    # as if computed elsewhere: NumPy's own functions are not all so careful
    if outs and _overlap(call, outs):
        apart = perform(separated(call), _REFERENCE)
        if apart.seen is not None:
            expected = apart.seen
            if _equal(got.values, expected.values):
                return None
    if FUNCTIONS[call.function].comparison == "routine" and got.values.dtype.kind in "fc":
        why = why_outside(bound_of_routine(call), got.values, expected.values)
        return Fault("values", why) if why else None
    if FUNCTIONS[call.function].comparison == "product":
        dtype = _type_of_sums(call, expected.values.dtype)
        if dtype.kind in "fc":
            why = why_outside(bound_of(call, dtype, expected.values, side.name == "numpy"),
                              got.values, expected.values)
            return Fault("values", why) if why else None
    if side.on_gpu and FUNCTIONS[call.function].comparison == "exact" and got.values.dtype.kind in "biu" and any(
            np.dtype(view.dtype).kind in "fc" for view in call.views):
        return None            # an integer that does not hold a number is any, on a GPU another one
    differ = np.asarray((got.values != expected.values)
                        & ~((got.values != got.values) & (expected.values != expected.values)))
    if not differ.any() and got.values.dtype.kind == "O":
        return None
    at = tuple(int(i) for i in np.argwhere(differ)[0]) if differ.any() else ()
    return Fault(
        "values",
        f"element {at} is {got.values[at]!r} in place of {expected.values[at]!r}, "
        f"{int(differ.sum())} of {differ.size} differ"
    )


def _values_of_epilogue(call: Call, expected: Seen, got: Seen) -> Fault | None:
    pairs = list(zip(expected.items or (expected,), got.items or (got,), strict=True))
    if _has_out_of_another_kind(call, pairs[0][0]):
        pairs = pairs[:1]
    if all(_equal(g.values, e.values) for e, g in pairs):
        return None
    if _overlap(call, out_views(call)):
        apart = perform(separated(call), _REFERENCE).seen
        assert apart is not None
        pairs = list(zip(apart.items or (apart,), got.items or (got,), strict=True))[:len(pairs)]
    product = Call("matmul", call.arguments[:2], (), call.views, call.memories)
    outcome = perform(product, _REFERENCE).seen
    assert outcome is not None
    dtype = outcome.values.dtype
    if dtype.kind not in "fc":
        for e, g in pairs:
            if not _equal(g.values, e.values):
                return Fault("values", f"{g.values!r} in place of {e.values!r}")
        return None
    bounds = bounds_of_epilogue(product, call, dtype, outcome.values)
    for (e, g), bound in zip(pairs, bounds, strict=False):
        if not _equal(g.values, e.values) and (why := why_outside(bound, g.values, e.values)):
            return Fault("values", why)
    return None


def _equal(x: np.ndarray, y: np.ndarray) -> bool:
    if x.dtype.kind == "V":
        return x.tobytes() == y.tobytes()
    if x.dtype.kind in "fcmM":
        return bool(np.array_equal(x, y, equal_nan=True))
    return bool(np.array_equal(x, y))


def _overlap(call: Call, outs: list[int]) -> bool:
    position = out_position(call)
    inputs = [x for i, x in enumerate(call.arguments)
              if i != position] + [x for key, x in call.keywords if key != "out"]
    others = {call.views[operand.view].memory for x in inputs for operand in operands_in(x)}
    return any(call.views[i].memory in others for i in outs)


def _type_of_sums(call: Call, result: np.dtype) -> np.dtype:
    """The type in which NumPy computes a product."""
    if not out_views(call):
        return result
    alone = Call(call.function, call.arguments[:2]
                 if call.base in ("dot", "outer", "matmul", "vecdot", "matvec", "vecmat")
                 else call.arguments, call.without("out").keywords, call.views, call.memories)
    outcome = perform(alone, _REFERENCE)
    dtype = outcome.seen.values.dtype if outcome.seen is not None else result
    summed_in_out = call.base == "einsum" and dtype.kind in "biu"
    return np.result_type(dtype, result) if summed_in_out else dtype


def _argument(seen: Seen) -> str:
    return "a new array" if seen.argument is None else f"argument {seen.argument}"


def _placed(seen: Seen) -> str:
    return "in memory of its own" if seen.place is None else "at byte {1} of memory {0}".format(*seen.place)


def _shown(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _brief(seen: Seen | None) -> str:
    return "nothing" if seen is None else f"{seen.label} {str(seen.values)[:200]}"

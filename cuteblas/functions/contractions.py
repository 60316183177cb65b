"""Contractions of tensors pair by pair, as nested modes of GEMMs and without reshaping."""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from .._dtypes import dtype
from ..engines.execution import Execution
from ..engines.memory import Ints, Memory, contiguous_strides
from ..engines.problems import Staged, readable, writable
from ..planning.problem import (
    ContractionProblem,
    Operand,
    ReductionProblem,
    Storage,
    merged,
)
from .algorithms import AS_PLANNED, Algorithm, refuse_variant
from .expressions import Expression, Term

# A sum over an index that one operand has alone is part of the product, as in NumPy, unless there
# are more products than this and than so many times the elements: then it comes first.
_MOST_AT_ONCE = 1 << 22
_MOST_OF_ELEMENTS = 8
_TILE = 64
_MOST_TERMS = 1 << 26                   # products that are written before they are summed
_WIDER = {np.dtype(np.float32): np.dtype(np.float64),
          np.dtype(np.complex64): np.dtype(np.complex128)}
"""Types of sums that do not overflow, whose kernels only have to read what they sum."""


@dataclass(frozen=True)
class _Factor:
    """A tensor with a stride in bytes for each index whose extent is not 1."""

    array: Any
    memory: Memory
    strides: Mapping[str, int]
    conj: bool = False

    @property
    def indices(self) -> KeysView[str]:
        return self.strides.keys()


def evaluate(expression: Expression, algorithm: Algorithm, run: Execution, arrays: Sequence[Any],
             out: Any) -> Any:
    """Compute an expression from an operand for each term; return ``out`` if there is one."""
    if len(arrays) < 2:
        refuse_variant(algorithm.variant, "nothing is multiplied")
    evaluation = _Evaluation(run, expression.extents, expression.dtype, algorithm, len(arrays) == 2)
    factors = [evaluation.factor(x, term) for x, term in zip(arrays, expression.terms, strict=True)]
    if empty := [c for c, extent in expression.extents.items()
                 if not extent and c not in "".join(expression.axes)]:
        # whatever it is multiplied by
        return evaluation.written(expression, evaluation.empty(empty[0]), out)
    for positions, _indices, kept in expression.steps():
        chosen = [factors[i] for i in positions]
        factors = [factor for i, factor in enumerate(factors) if i not in positions]
        while len(chosen) > 2:
            first, second, *rest = chosen
            later = kept.union(*(x.strides for x in rest))
            chosen = [*rest, evaluation.intermediate((first, second), later)]
        factors = [*factors, evaluation.intermediate(chosen, kept)] if factors else chosen
    return evaluation.written(expression, factors, out)


@dataclass(frozen=True)
class _Evaluation:
    run: Execution
    extents: Mapping[str, int]
    dtype: np.dtype
    algorithm: Algorithm
    # operands: calls like this one are known by whether they begin at one address
    of_two: bool = False

    def size(self, indices: Iterable[str]) -> int:
        return prod(self.extents[c] for c in indices)

    # -- tensors -----------------------------------------------------------------------------------
    def factor(self, x: Any, term: Term) -> _Factor:
        x = self.run.staged(x, readable(self.run.memory(x), self.dtype), "operand")
        return self.tensor(x, term.axes, term.conj and self.dtype.kind == "c")

    def tensor(self, x: Any, axes: Sequence[str], conj: bool = False) -> _Factor:
        memory = self.run.memory(x)
        return _Factor(x, memory, self.strides(memory, axes), conj)

    def strides(self, memory: Memory, axes: Sequence[str]) -> dict[str, int]:
        """The stride of every index; an index on several axes moves along all of them."""
        result: dict[str, int] = {}
        for extent, stride, indices in zip(memory.shape, memory.strides, axes, strict=True):
            if extent == 1:
                continue
            for c in reversed(indices):
                if self.extents[c] != 1:
                    result[c] = result.get(c, 0) + stride
                    stride *= self.extents[c]
        return result

    def view(self, x: _Factor, indices: Collection[str]) -> Any:
        return self.run.view(x.array, tuple(self.extents[c] for c in indices),
                             tuple(x.strides.get(c, 0) for c in indices))

    # -- products of two tensors -------------------------------------------------------------------
    def intermediate(self, factors: Sequence[_Factor], later: Collection[str]) -> _Factor:
        """The product of one or two tensors, summed over the indices that are not needed later."""
        shared = [c for c in factors[0].strides if all(c in factor.strides for factor in factors)]
        indices = dict.fromkeys(c for group in (shared, *(factor.strides for factor in factors))
                                for c in group if c in later)
        # rounded once, at the end
        of = dtype(self.dtype.name).computed if len(factors) > 1 else factors[0].memory.dtype
        target = self.new(list(indices), np.dtype(of))
        self.multiply(factors, target)
        return target

    def empty(self, index: str) -> list[_Factor]:
        """Two numbers that are multiplied along an index without elements."""
        number = self.run.engine.number(np.zeros((), self.dtype))
        return [_Factor(number, self.run.memory(number), {index: 0})] * 2

    def new(self, indices: Sequence[str], dtype: np.dtype) -> _Factor:
        shape = tuple(self.extents[c] for c in indices)
        strides = contiguous_strides(shape, dtype.itemsize)
        return self.tensor(self.run.empty(Memory(shape, strides, dtype)), indices)

    def written(self, expression: Expression, factors: Sequence[_Factor], out: Any) -> Any:
        shape, strides = expression.shape, expression.strides
        if out is None and expression.any_order:
            strides = self.strides_as_written(expression, factors)
        reason = None
        if out is not None:
            memory = self.run.memory(out)
            reason = "has more elements than the result" if memory.shape != shape else writable(
                memory, [Staged(x.memory) for x in factors], self.dtype).reason
        if reason is not None:
            self.run.count("copies", f"out: {reason}")
            strides = contiguous_strides(shape, self.dtype.itemsize)
        new = self.run.empty(Memory(shape, strides, self.dtype)) if out is None or reason else out
        self.multiply(factors, self.tensor(new, expression.axes))
        if reason is not None:
            self.run.assign(out, new)
        return new if out is None else out

    def strides_as_written(self, expression: Expression,
                           factors: Sequence[_Factor]) -> Ints:
        """Strides of a new result: axes of a stack outermost, then each tensor's own axes in its
        order, so that as many merge as can."""
        if len(factors) != 2:
            return expression.strides
        first, second = factors
        if self.is_elementwise(first, second, frozenset("".join(expression.axes))):
            return expression.strides
        alone = first.indices ^ second.indices
        last = next((c for c in reversed(expression.axes) if c in alone), "")
        inner, outer = (first, second) if last in first.strides else (second, first)

        def place(axis: int) -> tuple[int, int, int]:
            c = expression.axes[axis]
            if (c in inner.strides) == (c in outer.strides):
                return 0, 0, axis
            return (2, -abs(inner.strides[c]),
                    axis) if c in inner.strides else (1, -abs(outer.strides[c]), axis)

        return contiguous_strides(expression.shape, self.dtype.itemsize,
                                  sorted(range(len(expression.shape)), key=place))

    def multiply(self, factors: Sequence[_Factor], target: _Factor) -> None:
        """``target`` = the product of one or two factors, summed over indices that it lacks."""
        kept = target.indices
        if not target.memory.size:
            self.run.count("calls", "nothing")
        elif len(factors) == 1:
            x, = factors
            # copies keep bytes that are not 0 or 1
            if self.dtype.kind != "b" and x.indices <= kept:
                self.run.move(self.view(x, kept), self.view(target, kept))
            else:
                self.reduce(x, target)
        else:
            first, second = factors
            first, second = _moving(first, second), _moving(second, first)
            halvings = 0
            if self.sums_first(first, second, kept):
                (first, once), (second, twice) = self.summed(first, second,
                                                             kept), self.summed(second, first, kept)
                halvings = once + twice
            if self.algorithm.variant is None and self.is_elementwise(first, second, kept):
                self.run.multiply(self.view(first, kept), self.view(second, kept),
                                  self.view(target, kept))
                self.run.count("calls", "element by element")
            elif self.are_written(first, second, kept):
                terms = self.new(list({**first.strides, **second.strides}), first.memory.dtype)
                self.run.multiply(*(self.view(x, terms.strides) for x in (first, second, terms)))
                self.run.count("calls", "element by element")
                self.reduce(terms, target)
            else:
                # a sum of float16 is one of float32
                wide = np.promote_types(first.memory.dtype, second.memory.dtype)
                self.contract(self.cast(first, wide), self.cast(second, wide), target)
            if halvings:
                self.run.scale(self.parts(target), halvings, self.parts(target))

    def sums_first(self, first: _Factor, second: _Factor, kept: Set[str]) -> bool:
        """Whether sums over indices that one tensor has alone come before the product."""
        # Integers wrap, so the order is free. A floating-point sum may overflow where products
        # with small numbers do not, and has NaN where infinities of both signs meet: it stays part
        # of the product, as in NumPy, unless that is far more work or a matrix algorithm was
        # named. einsum leaves open which infinity or NaN a sum is: the sum comes first if the
        # product is less work than the sum, and a wider type holds it.
        if self.dtype.kind in "biu" or self.algorithm.precision not in ("auto", "ieee"):
            return True
        elements = self.size(first.indices) + self.size(second.indices)
        every, both = first.indices | second.indices, first.indices & second.indices
        if self.run.function == "einsum" and self.dtype not in _WIDER.values() \
                and self.size(every & kept | both) <= elements:
            return True
        common = self.size(both & kept)
        alone = common > 1 and common == self.size(kept)     # one element of each matrix of a stack
        work = self.size(every) * (_TILE if alone else 1)
        return work > max(_MOST_AT_ONCE, _MOST_OF_ELEMENTS
                          * elements) and not self.are_written(first, second, kept)

    def are_written(self, first: _Factor, second: _Factor, kept: Set[str]) -> bool:
        """Whether all products are written and then summed, as in NumPy, because a kernel for
        matrices would have one element in each tile."""
        alone = self.size((first.indices ^ second.indices) - kept) > 1
        in_both = self.size(first.indices & second.indices & kept) == self.size(kept)
        few = self.size(first.indices | second.indices) == max(
            self.size(first.indices), self.size(second.indices)) <= _MOST_TERMS
        plain = self.algorithm == AS_PLANNED and first.memory.dtype == second.memory.dtype == self.dtype and self.dtype.kind in "fc"
        return alone and in_both and few and plain and not dtype(self.dtype.name).is_stored and not (first.conj or second.conj)

    def summed(self, x: _Factor, other: _Factor, kept: Set[str]) -> tuple[_Factor, int]:
        """A tensor summed over the indices that nothing else has, and how often it was halved so
        that the sum does not overflow."""
        if not (alone := x.indices - kept - other.indices):
            return x, 0
        later = sorted((c for c in x.strides if c not in alone), key=lambda c: -abs(x.strides[c]))
        wide = _WIDER.get(x.memory.dtype, np.dtype(dtype(x.memory.dtype.name).accumulator))
        target, halvings = self.new(later, wide), 0
        if not target.memory.size:
            return replace(target, conj=x.conj), 0
        if wide == x.memory.dtype and wide.kind in "fc":
            halvings = self.size(alone).bit_length()
            halved = self.new(list(x.strides), wide)
            self.run.scale(self.parts(x), -halvings, self.parts(halved))
            x = replace(halved, conj=x.conj)
        self.reduce(x, target)
        return replace(target, conj=x.conj), halvings

    def parts(self, x: _Factor) -> Any:
        """A tensor with an axis for each index; a complex one has another axis for both parts."""
        if x.memory.dtype.kind != "c":
            return self.view(x, x.strides)
        shape, strides = tuple(self.extents[c] for c in x.strides), tuple(x.strides.values())
        return self.run.view(self.run.derived(x.array.real, x.array), (*shape, 2),
                             (*strides, x.memory.dtype.itemsize // 2))

    def cast(self, x: _Factor, wide: np.dtype) -> _Factor:
        if x.memory.dtype == wide:
            return x
        self.run.count("copies", f"operand: is {x.memory.dtype}, multiplied by sums in {wide}")
        copy = self.new(list(x.strides), wide)
        self.run.assign(copy.array, self.view(x, x.strides))
        return replace(copy, conj=x.conj)

    def reduce(self, x: _Factor, target: _Factor) -> None:
        """Sum a tensor over the indices that ``target`` lacks, longest modes first."""
        kept = [(self.extents[c], x.strides.get(c, 0), stride)
                for c, stride in target.strides.items()]
        lost = [(self.extents[c], stride) for c, stride in x.strides.items()
                if c not in target.strides]
        if not lost or 0 in (extent for extent, _stride in lost):
            lost = [(0 if lost else 1, 0)]
        array, result = x.array, target.array
        # both parts, each by itself
        if x.memory.dtype.kind == "c" and x.memory.dtype != target.memory.dtype:
            kept.append((2, x.memory.dtype.itemsize // 2, target.memory.dtype.itemsize // 2))
            array, result = self.parts(x), self.parts(target)
        steps: Sequence[Ints] = sorted(merged(tuple(lost)),
                                       key=lambda mode: (-mode[0], abs(mode[1])))
        while len(steps) > 1:
            between = np.dtype(self.type_of_sums(array, result))
            shape, strides = zip(*(mode[:2] for mode in kept), *steps[1:], strict=True)
            order = sorted(range(len(shape)), key=lambda q: -abs(strides[q]))
            new = self.run.empty(Memory(shape, contiguous_strides(shape, between.itemsize, order),
                                        between))
            self.sum(array, steps[0], [*zip(shape, strides, new.strides, strict=True)], new)
            array, steps = new, [*zip(shape, new.strides, strict=True)][len(kept):]
            kept = [(n, stride, into)
                    for (n, _before, into), stride in zip(kept, new.strides, strict=False)]
        self.sum(array, steps[0], kept, result)

    def type_of_sums(self, source: Any, result: Any) -> str:
        return "float64" if self.run.memory(result).dtype == np.float64 \
            else dtype(self.run.memory(source).dtype.name).accumulator

    def sum(self, array: Any, summed: Ints, kept: Sequence[tuple[int, int, int]],
            new: Any) -> None:
        """One sum along a mode; modes are (extent, stride, new stride), strides in bytes."""
        (i, *_strides), *batch = modes = kept or [(1, 0, 0)]

        def operand(of: Memory, column: int, along: int) -> Operand:
            item = of.dtype.itemsize
            own, *others = (mode[column] // item for mode in modes)
            return Operand(of.dtype.name, (own, along // item), tuple(others),
                           alignment=of.alignment)

        problem = ReductionProblem(i, summed[0], operand(self.run.memory(array), 1, summed[1]),
                                   operand(self.run.memory(new), 2, 0),
                                   tuple(mode[0] for mode in batch),
                                   compute=self.type_of_sums(array, new))
        self.run.run(problem, {"src": array, "dst": new})

    def is_elementwise(self, first: _Factor, second: _Factor, kept: Set[str]) -> bool:
        """Whether nothing is summed and one tensor has all indices of the other."""
        return self.size((first.indices | second.indices) - kept) == 1 == min(
            self.size(first.indices - second.indices), self.size(second.indices - first.indices)) \
            and not (first.conj or second.conj)

    def contract(self, first: _Factor, second: _Factor, target: _Factor) -> None:
        # kernels round no complex sums
        if first.memory.dtype.kind == "c" and first.memory.dtype != target.memory.dtype:
            wide = self.new(list(target.strides), first.memory.dtype)
            self.contract(first, second, wide)
            self.run.assign(self.view(target, target.strides), wide.array)
            return
        tensors, size = (first, second, target), self.extents
        a, b, c = ({i: stride // x.memory.dtype.itemsize for i, stride in x.strides.items()}
                   for x in tensors)
        a.update((i, 0) for i in c if i not in a and i not in b)        # the same for all of them
        stored: dict[str, Any] = {role: Storage(x.memory.dtype.name, x.conj, x.memory.alignment)
                                  for role, x in zip("abc", tensors, strict=True)}
        problem = ContractionProblem(
            tuple((size[i], a[i], c[i]) for i in c if i not in b),
            tuple((size[i], b[i], c[i]) for i in c if i not in a),
            tuple((size[i], a.get(i, 0), b.get(i, 0)) for i in {**a, **b} if i not in c),
            **stored,
            batch=tuple((size[i], a[i], b[i], c[i]) for i in c if i in a and i in b),
            same=self.of_two and first.memory.address == second.memory.address != 0,
            **self.algorithm._asdict())
        self.run.run(problem, {"a": first.array, "b": second.array, "c": target.array})


def _moving(x: _Factor, other: _Factor) -> _Factor:
    """A tensor without the indices along which it alone does not move; an empty one keeps them,
    since it has no element to read."""
    still = {c for c, stride in x.strides.items() if stride == 0
             and other.strides.get(c)} if x.memory.size else set()
    return replace(x, strides={c: s for c, s in x.strides.items()
                               if c not in still}) if still else x

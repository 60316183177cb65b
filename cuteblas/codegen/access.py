"""Wavefronts of shared memory and sectors of global memory that a warp's accesses cost.

Addresses are the generator's own expressions, for warp 0 with every other variable at zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..layout.banks import wavefronts
from ..layout.symbolic import Expr, IntLike, combined, operands
from .engine import Element

_SECTOR_BYTES = 32
# stand for extents and strides that are known only at run time
_SAMPLE_EXTENT, _SAMPLE_STRIDE = 1 << 12, 1 << 20


def sectors(addresses: list[int], nbytes: int) -> tuple[int, int]:
    """Global-memory sectors (32 bytes) that one warp's access touches, and the fewest that its
    bytes allow."""
    touched = {s for a in addresses for s in range(a // _SECTOR_BYTES,
                                                   (a + nbytes - 1) // _SECTOR_BYTES + 1)}
    return len(touched), -(-len(set(addresses)) * nbytes // _SECTOR_BYTES)


@dataclass
class AccessCounter:
    """Collects the accesses that a builder writes."""

    threads: int
    thread: Expr | None = None
    definitions: dict[str, IntLike] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)    # other variables are zero
    _seen: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _known: dict[Expr, int | list[int]] = field(default_factory=dict)

    @property
    def _lanes(self) -> int:
        return min(32, self.threads)

    def parameter(self, name: str, *, extent: bool, value: int | None = None) -> None:
        """Remember an integer parameter: an extent or a stride, for which this or a usual value
        stands."""
        self.parameters[name] = value or (_SAMPLE_EXTENT if extent else _SAMPLE_STRIDE)

    def define(self, name: str, value: IntLike) -> None:
        """Remember what a named integer stands for; another one may have had the name."""
        self.definitions[name] = value
        self._known.clear()

    def count(self, element: Element, width: int, call: str) -> None:
        """Count one access: ``width`` elements at ``element``."""
        pointer = element.pointer
        if pointer.space == "rmem":
            return
        nbytes, index = width * pointer.dtype.bytes, pointer.origin + element.index
        values = self._values(index)
        addresses = [value * pointer.dtype.bytes
                     for value in (values if isinstance(values, list) else [values] * self._lanes)]
        kind, measure = ("shared", wavefronts) if pointer.space == "smem" else ("global", sectors)
        write = call.startswith("store") or (call == "cp_async" and kind == "shared")
        key = (f"{kind} {'store' if write else 'load'} {pointer.root}", f"{nbytes} bytes a lane")
        worst = max(self._seen.get(key, (0, 1)), measure(addresses, nbytes))
        self._seen[key] = worst

    def report(self) -> Mapping[str, str]:
        """What was counted, a line for each kind of access: of several widths one after the other,
        without conflicts if all are."""
        unit = {"shared": "wavefronts", "global": "sectors"}
        texts: dict[str, list[str]] = {}
        conflicts = set()
        for (what, how), (actual, ideal) in self._seen.items():
            texts.setdefault(what, []).append(
                f"{how}: {actual} {unit[what.split()[0]]} of at least {ideal}"
            )
            if actual > ideal:
                conflicts.add(what)
        return {what: "; ".join(widths) + (" (no bank conflict)" if what.startswith("shared")
                                           and what not in conflicts else "")
                for what, widths in texts.items()}

    def _values(self, x: IntLike) -> int | list[int]:
        if isinstance(x, int):
            return x
        found = self._known.get(x)
        if found is None:
            name = x.args[0]
            if x.op != "var":
                found = combined(x, [self._values(part) for part in operands(x)])
            elif x == self.thread:
                found = list(range(self._lanes))
            else:
                found = self._values(self.definitions[name]) if name in self.definitions else self.parameters.get(name, 0)
            self._known[x] = found
        return found

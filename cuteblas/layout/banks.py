"""Banks of shared memory: conflicts of a warp's access, and what a layout costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from .checks import Domain, Whole, checked
from .errors import LayoutError, described
from .inttuple import size

BANKS, BANK_BYTES, LANES = 32, 4, 32
_MOST = 1 << 20                                          # elements that a report looks at


def _addresses(x: Any, op: str) -> Any:
    if not isinstance(x, Sequence) or not {int, bool}.issuperset(map(type, x)) or min(x, default=0) < 0:
        raise LayoutError(op, f"expected addresses, which are integers from 0, got {described(x)}")
    return x


_Addresses = Annotated[Sequence[int], _addresses]


@checked
def wavefronts(addresses: _Addresses, nbytes: Whole) -> tuple[int, int]:
    """Shared-memory wavefronts of one warp's access, and the fewest that its bytes allow.

    Parameters
    ----------
    addresses : sequence of int
        Byte address of each lane.
    nbytes : int
        Bytes that each lane accesses, at most 16.

    Returns
    -------
    actual, ideal : int
        A wavefront serves each of the 32 banks (4 bytes wide) once. Lanes are served 32, 16 or 8 at
        a time for accesses of up to 4, of 8 and of 16 bytes, and lanes that read the same word
        share it.

    Raises
    ------
    LayoutError
        If addresses are not integers from 0 on, or ``nbytes`` is not between 1 and 16.

    Examples
    --------
    >>> wavefronts([4 * lane for lane in range(32)], 4), wavefronts([128 * lane for lane in range(32)], 4)
    ((1, 1), (32, 1))
    """
    if not 1 <= nbytes <= BANK_BYTES * 4:
        raise LayoutError("wavefronts", f"a lane accesses 1 to 16 bytes, got {nbytes}")
    group = lanes_together(nbytes)
    actual = 0
    for start in range(0, len(addresses), group):
        words = {w for a in addresses[start:start + group]
                 for w in range(a // BANK_BYTES, (a + nbytes - 1) // BANK_BYTES + 1)}
        actual += max(Counter([w % BANKS for w in words]).values())
    return actual, -(-len(addresses) // group)


def lanes_together(nbytes: int) -> int:
    """Lanes of a warp that are served at a time when each accesses ``nbytes``."""
    return max(1, min(LANES, BANKS * BANK_BYTES // max(nbytes, BANK_BYTES)))


def meeting(addresses: Sequence[int]) -> list[int]:
    """Those of the lanes served together that begin in the bank with the most conflicts."""
    words: dict[int, set[int]] = {}
    for a in addresses:
        words.setdefault(bank_of(a, 1), set()).add(a // BANK_BYTES)
    busiest = max(words, key=lambda bank: len(words[bank]))
    return [lane for lane, a in enumerate(addresses) if bank_of(a, 1) == busiest]


def bank_of(index: int, element_bytes: int) -> int:
    return index * element_bytes // BANK_BYTES % BANKS


@dataclass(frozen=True)
class BankReport:
    """The wavefronts of a warp that reads rows and columns of a layout: one element per lane, the
    first 32 of each.

    Attributes
    ----------
    rows, columns : tuple of (int, int)
        Wavefronts and the fewest possible, for each coordinate of mode 0 and of the other modes
        counted together.

    Examples
    --------
    >>> report = bank_report(Layout((32, 32), (32, 1)), 4)
    >>> report.columns[0]
    (32, 1)
    """

    rows: tuple[tuple[int, int], ...]
    columns: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return "\n".join(f"reading a {name}: {_cost(max(costs))}"
                         for name, costs in (("row", self.rows), ("column", self.columns)))


def _cost(cost: tuple[int, int]) -> str:
    actual, ideal = cost
    waves = f"{actual} wavefront{'s' * (actual != 1)}"
    return f"{waves}, no bank conflict" if actual <= ideal else f"{waves} where {ideal} would do: bank conflicts"


@checked
def bank_report(layout: Domain, element_bytes: Whole) -> BankReport:
    """Count the bank conflicts of reading each row and each column of a layout in shared memory.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        In units of elements, with static leaves and values from 0 on.
    element_bytes : int
        1, 2, 4, 8 or 16.

    Returns
    -------
    BankReport
        Wavefronts of every row and column.

    Raises
    ------
    LayoutError
        For elements of other sizes, too many elements, symbolic leaves or values below 0.

    Examples
    --------
    >>> print(bank_report(Layout((32, 32), (32, 1)), 4))
    reading a row: 1 wavefront, no bank conflict
    reading a column: 32 wavefronts where 1 would do: bank conflicts
    """
    if element_bytes not in (1, 2, 4, 8, 16):
        raise LayoutError("bank_report",
                          f"an element has 1, 2, 4, 8 or 16 bytes, got {element_bytes}", layout)
    n = size(layout)
    rows = size(layout, 0) if layout.rank > 1 else 1
    if not isinstance(n, int) or not 0 < n <= _MOST:
        raise LayoutError("bank_report", f"conflicts are counted for 1 to {_MOST} elements", layout)
    columns = n // rows
    values = [layout(i) for i in range(n)]
    if not all(isinstance(v, int) and v >= 0 for v in values):
        raise LayoutError("bank_report", "addresses of shared memory are integers from 0", layout)

    def cost(indices: range) -> tuple[int, int]:
        return wavefronts([values[i] * element_bytes for i in indices[:LANES]], element_bytes)

    return BankReport(tuple(cost(range(r, n, rows)) for r in range(rows)),
                      tuple(cost(range(c * rows, (c + 1) * rows)) for c in range(columns)))

"""Quantities as people write them."""

from __future__ import annotations

__all__ = ["duration", "quantity"]

_PREFIXES = ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"),
             (-6, "u"), (-9, "n"), (-12, "p"))


def quantity(value: float, unit: str) -> str:
    """A quantity with three digits and the prefix of its unit.

    Examples
    --------
    >>> quantity(2.75e-3, "s"), quantity(999.6e-6, "s"), quantity(0, "s"), quantity(137438953472, "flop")
    ('2.75 ms', '1 ms', '0 s', '137 Gflop')
    """
    rounded = float(f"{value:.3g}")
    for exponent, prefix in _PREFIXES:
        if abs(rounded) >= 10.0**exponent:
            number = rounded / 10.0**exponent
            return f"{number:.0f} {prefix}{unit}" if abs(number) >= 1000 else f"{number:.3g} {prefix}{unit}"
    return f"{rounded:.3g} {unit}"


def duration(seconds: float) -> str:
    """A time: from two minutes on in minutes, hours and days.

    Examples
    --------
    >>> duration(6.644e-4), duration(37.2e3)
    ('664 us', '10.3 h')
    """
    for length, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            number = float(f"{seconds / length:.3g}")
            return f"{number:,.0f} {unit}" if number >= 1000 else f"{number:.3g} {unit}"
    return quantity(seconds, "s")

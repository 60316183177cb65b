"""Colours of cells. All are light enough for dark text, whatever the background of the picture."""

from __future__ import annotations

from colorsys import hls_to_rgb

EMPTY = "#e4e7eb"
"""A cell without an owner."""

_SCALE = ((255, 244, 196), (196, 230, 170), (132, 205, 190), (140, 180, 236), (186, 160, 226))
_THREADS = ((242, 142, 142), (247, 184, 110), (238, 219, 98), (150, 209, 128),
            (108, 206, 192), (128, 182, 240), (184, 158, 240), (240, 164, 212))
_TINTS = (0.0, 0.35, 0.6, 0.8)


def _mix(a: tuple[int, ...], b: tuple[int, ...], share: float) -> str:
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in zip(a, b, strict=True))


def by_position(position: int, count: int) -> str:
    """The colour of the smallest (0) to the largest value: yellow, green, blue, violet."""
    at = position / max(1, count - 1) * (len(_SCALE) - 1)
    k = min(int(at), len(_SCALE) - 2)
    return _mix(_SCALE[k], _SCALE[k + 1], at - k)


def by_thread(thread: int) -> str:
    """Eight hues in four tints: the 32 threads of a warp differ, and warps look alike."""
    return _mix(_THREADS[thread % 8], (255, 255, 255), _TINTS[thread // 8 % 4])


def by_bank(bank: int, banks: int) -> str:
    return "#" + "".join(f"{round(255 * x):02x}" for x in hls_to_rgb(bank / banks, 0.8, 0.75))

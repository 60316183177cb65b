"""Pictures of plans."""

from __future__ import annotations

import io
import re
import sys

import numpy as np
import pytest

import cuteblas
from cuteblas.cli import demo, terminal
from cuteblas.cli.explain import picture


def plain(text, number):
    return text


def product(m, n, k, dtype="f4", order="C", precision="auto"):
    out = np.empty((m, n), dtype, order=order)
    return cuteblas.explain(np.ones((m, k), dtype), np.ones((k, n), dtype), out,
                            precision=precision).plan


def transpose(m, n, dtype):
    return cuteblas.explain_copy(np.ones((m, n), dtype).T).plan


def tile_of(lines):
    return [[int(t) for t in re.findall(r"T(\d+)", line)] for line in lines[1:]
            if re.match(r" +T\d", line)]


@pytest.mark.parametrize("m, n, k, dtype", [(64, 64, 64, "f4"), (1152, 1152, 1152, "f4"),
                                            (256, 256, 64, "F"), (48, 48, 48, "l")])
def test_every_thread_owns_blocks_of_the_tile(m, n, k, dtype):
    plan = product(m, n, k, dtype, precision="ieee")
    tile = plan.config.tile
    lines = picture(plan, plain)
    shown = sorted(t for row in tile_of(lines) for t in row)
    assert shown == list(range(tile.threads))                  # each thread's block once
    extents = re.fullmatch(
        r"(\d+) threads own (\d+) x (\d+) elements of C; each cell is a thread and its (\d+) x (\d+)",
        lines[0]
    )
    threads, rows, columns, height, width = map(int, extents.groups())
    assert rows * columns == threads * height * width and (height, width) == tile.values[::-1] and threads == tile.threads


def test_c_is_shown_as_it_is_indexed():
    """Row-major C is computed as its transpose; the picture is of C in both cases."""
    by_rows, by_columns = (tile_of(picture(product(64, 64, 64, order=order), plain))
                           for order in "CF")
    # along a row of C, in which elements are neighbours
    assert by_rows[0][:3] == [0, 1, 4]
    assert [row[0] for row in by_columns][:3] == [0, 1, 4]      # down a column


@pytest.mark.parametrize("n, dtype", [(2048, "f2"), (4096, "f4")])
def test_warpgroup_accumulators(n, dtype):
    lines = picture(product(n, n, n, dtype), plain)
    assert lines[0].startswith("256 threads own") and lines[0].endswith("its 1 x 2")
    assert tile_of(lines)[:2] == [[0, 1, 2, 3] * 4, [4, 5, 6, 7] * 4] and lines[-1].startswith("  the first 16 of ")


@pytest.mark.parametrize("dtype", ["i1", "i2", "f4", "f8", "c16"])
def test_the_swizzle_spreads_columns_over_the_banks(dtype):
    lines = picture(transpose(512, 512, dtype), plain)
    rows = [[int(bank) for bank in re.findall(r" (\d+)", line)][-16:] for line in lines
            if re.match(r" +i\d", line)]
    without, swizzled = np.array([row[:8] for row in rows]), np.array([row[8:] for row in rows])
    assert without.shape == swizzled.shape == (8, 8)
    assert all(len(set(column)) == 1 for column in without.T)
    assert all(len(set(column)) == 8 for column in swizzled.T)
    assert all(sorted(a) == sorted(b) for a, b in zip(without, swizzled, strict=True))


def test_plain_copies_have_no_picture():
    assert picture(cuteblas.explain_copy(np.ones((64, 64))).plan, plain) == []
    assert picture(cuteblas.explain(np.ones((0, 3)), np.ones((3, 4))).plan, plain) == []


@pytest.mark.parametrize("plan", [product(4096, 4096, 4096), product(512, 512, 512, "f2"),
                                  transpose(512, 512, "f4")])
def test_pictures_fit_and_colours_do_not_move_anything(plan, monkeypatch):
    lines = picture(plan, plain)
    assert max(map(len, lines)) <= 100
    monkeypatch.setattr(sys, "stdout", Terminal())
    coloured = picture(plan, terminal.paint())
    stripped = [re.sub(r"\x1b\[\d+m", "", line) for line in coloured]
    assert coloured != lines and stripped[1:] == lines[1:]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colours_only_where_they_are_seen(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert terminal.paint()("x", 1) == "\x1b[33mx\x1b[0m"
    monkeypatch.setenv("TERM", "dumb")
    assert terminal.paint()("x", 1) == "x"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.paint()("x", 1) == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert terminal.paint()("x", 1) == "x"


def test_wrapped_lines_keep_their_edge(monkeypatch):
    monkeypatch.setattr(terminal, "columns", lambda: 28)
    text = "  runs on  one two three four five\n           six and seven\n  some fact  eight"
    assert terminal.wrapped(text).splitlines() == ["  runs on  one two three", "           four five",
                                                   "           six and seven",
                                                   "  some fact  eight"]


def test_long_names_leave_room_for_their_text(monkeypatch):
    monkeypatch.setattr(terminal, "columns", lambda: 24)
    text = "  kernel            one\n  global load of A  one two three\n                    four"
    assert terminal.wrapped(text).splitlines() == ["  kernel  one", "  global load of A  one",
                                                   "    two three", "    four"]


@pytest.mark.parametrize("encoding, shown", [("ascii", ["  ..", "++@@"]),
                                             ("utf-8", ["  ░░", "▒▒██"])])
def test_shades_follow_the_encoding(encoding, shown, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert demo.shaded(np.array([[0, 4], [8, 16]])) == shown
    assert demo.shaded(np.zeros((1, 2))) == ["    "]


def test_banks_of_the_tutorials_tiles():
    """Before and after the swizzle, as the tutorial prints them: a column is one bank, then eight
    of eight rows."""
    def rows(name):
        x = np.ones((64, 64), "f4").T
        title, heads, _, *lines, _ = picture(
            cuteblas.explain_copy(x, variant=f"transpose_smem_{name}").plan, plain
        )
        assert title.startswith("a tile of 32x64 elements of 4 bytes")
        return heads.split("  "), [[int(number) for number in line.split()[1:]] for line in lines]

    heads, swizzled = rows("swizzled")
    assert [head.strip() for head in heads if head.strip()] == ["(32,64):(64,1)",
                                                                "S<5,0,6> o 0 o (32,64):(64,1)"]
    assert [row[:8] for row in swizzled] == [list(range(8))] * 8
    assert [row[8:] for row in swizzled] == [[n ^ m for n in range(8)] for m in range(8)]
    assert [row[8:] for row in rows("padded")[1]] == [[n + m for n in range(8)] for m in range(8)]
    assert rows("conflict_read")[1] == [list(range(8))] * 8

"""Layouts and tensors as text."""

import pytest

from cuteblas.layout import (
    E,
    Layout,
    LayoutError,
    Swizzle,
    Var,
    composition,
    counting_iterator,
    layout_table,
    make_tensor,
    print_layout,
    print_tensor,
    tensor_table,
)


def test_table_of_a_layout(capsys):
    table = layout_table(Layout((2, 3), (3, 1)))
    assert table == "\n".join([
        "(2,3):(3,1)",
        "      0   1   2",
        "    +---+---+---+",
        " 0  | 0 | 1 | 2 |",
        "    +---+---+---+",
        " 1  | 3 | 4 | 5 |",
        "    +---+---+---+"])
    print_layout(Layout((2, 3), (3, 1)))
    assert capsys.readouterr().out == table + "\n"


def test_columns_are_as_wide_as_the_widest_value():
    lines = layout_table(Layout((12, 2), (1, 1000))).splitlines()
    assert len({len(line) for line in lines[2:]}) == 1 and " 11  |   11 | 1011 |" in lines
    assert lines[1].index("0") == lines[3].index("|") + 5


@pytest.mark.parametrize("layout, row", [
    (Layout(4, 3), " 0  | 0 | 3 | 6 | 9 |"),                          # a single mode is a row
    (Layout((2, (2, 2)), (1, (4, 2))), " 1  | 1 | 5 | 3 | 7 |"),      # further modes count together
    (composition(Swizzle(1, 0, 1), Layout((2, 2), (2, 1))), " 1  | 3 | 2 |"),
    (Layout((2, 2), (E(1), E(0))), " 1  | (0,1) | (1,1) |")])
def test_other_layouts(layout, row):
    assert row in layout_table(layout).splitlines()


def test_empty_and_symbolic_layouts():
    assert layout_table(Layout((0, 3))).splitlines()[0] == "(0,3):(1,0)"
    with pytest.raises(LayoutError, match="cannot be listed"):
        layout_table(Layout(Var("M")))


def test_table_of_a_tensor(capsys):
    tensor = make_tensor(counting_iterator(8), (2, 2))
    assert tensor_table(tensor) == "counting_iter(8) o (2,2):(1,2):\n    8   10\n    9   11"
    print_tensor(tensor)
    assert capsys.readouterr().out == tensor_table(tensor) + "\n"

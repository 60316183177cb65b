"""Every numbered sentence of docs/layout-semantics.md is followed by examples, and the examples
hold."""

import doctest
import pathlib
import re

import pytest

import cuteblas.layout as layout

TEXT = (pathlib.Path(__file__).parents[2] / "docs" / "layout-semantics.md").read_text()
BLOCKS = [(int(number), code)
          for number, code in re.findall(r"^\*\*(\d+)\. .*?\*\*\n```pycon\n(.*?)^```$", TEXT,
                                         re.DOTALL | re.MULTILINE)]
NAMES = {name: getattr(layout, name) for name in layout.__all__} | {
    "L": layout.Layout((4, (2, 3)), (2, (1, 8)))
}


def test_every_sentence_has_examples():
    assert [number for number, _ in BLOCKS] == list(range(1, len(BLOCKS) + 1))
    assert len(BLOCKS) == len(re.findall(r"^\*\*\d+\.", TEXT, re.MULTILINE)) > 30


@pytest.mark.parametrize("number, code", BLOCKS, ids=[str(number) for number, _ in BLOCKS])
def test_examples(number, code):
    test = doctest.DocTestParser().get_doctest(code, dict(NAMES), f"sentence {number}",
                                               "docs/layout-semantics.md", 0)
    out: list[str] = []
    result = doctest.DocTestRunner().run(test, out=out.append)
    assert result.attempted > 0 and result.failed == 0, "".join(out)


ROWS = re.findall(r"^\| (`.+`) \| (.*) \| (.*) \| `(.+)` \| `(.+)` \|$", TEXT, re.MULTILINE)


def test_the_table_has_every_name():
    names = [name for row in ROWS for name in re.findall(r"`(.+?)`", row[0])]
    assert sorted(names) == sorted(layout.__all__) and len(ROWS) == TEXT.count("` |\n")


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_examples_of_the_table(row):
    name = re.search(r"`(.+?)`", row[0])[1]
    assert re.search(rf"(?<!\w){name}(?!\w)", row[3]), "the example does not use the name"
    assert str(eval(row[3], dict(NAMES))) == row[4].replace("\\|", "|")


@pytest.mark.parametrize("module", ["algebra", "banks", "basis", "composition", "core",
                                    "inttuple", "show", "swizzle", "symbolic",
                                    "tensor", "tiling", "vectors"])
def test_docstring_examples(module):
    module = __import__(f"cuteblas.layout.{module}", fromlist=["*"])
    result = doctest.testmod(module, extraglobs=NAMES)
    assert result.failed == 0

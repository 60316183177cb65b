"""Every numbered sentence of docs/layout-semantics.md is followed by examples, and the examples hold."""

import doctest
import pathlib
import re

import pytest

import cuteblas.layout as layout

TEXT = (pathlib.Path(__file__).parents[2] / "docs" / "layout-semantics.md").read_text()
BLOCKS = [(int(number), code) for number, code in re.findall(r"^\*\*(\d+)\. .*?\*\*\n```pycon\n(.*?)^```$", TEXT,
                                                             re.DOTALL | re.MULTILINE)]
NAMES = {name: getattr(layout, name) for name in layout.__all__} | {"L": layout.Layout((4, (2, 3)), (2, (1, 8)))}


def test_every_sentence_has_examples():
    assert [number for number, _ in BLOCKS] == list(range(1, len(BLOCKS) + 1))
    assert len(BLOCKS) == len(re.findall(r"^\*\*\d+\.", TEXT, re.MULTILINE)) > 30


@pytest.mark.parametrize("number, code", BLOCKS, ids=[str(number) for number, _ in BLOCKS])
def test_examples(number, code):
    test = doctest.DocTestParser().get_doctest(code, dict(NAMES), f"sentence {number}", "docs/layout-semantics.md", 0)
    out: list[str] = []
    result = doctest.DocTestRunner().run(test, out=out.append)
    assert result.attempted > 0 and result.failed == 0, "".join(out)


@pytest.mark.parametrize("module", ["algebra", "basis", "composition", "core", "inttuple", "show", "swizzle", "symbolic", "tensor",
                                    "tiling",
                                    "vectors"])
def test_docstring_examples(module):
    module = __import__(f"cuteblas.layout.{module}", fromlist=["*"])
    result = doctest.testmod(module, extraglobs=NAMES)
    assert result.failed == 0

"""The Python examples of README and docs run as they are written.

Blocks of a file are run in order and share their names: ``python`` blocks as scripts, ``pycon`` blocks as doctests. A comment
``<!-- needs: compiler -->``, ``<!-- needs: dask -->`` or ``<!-- needs: gpu -->`` before a block leaves it out where there is none;
the last may say when it last ran on one: ``<!-- needs: gpu, run 2026-11-23 -->``.
"""

from __future__ import annotations

import json
import re
from doctest import ELLIPSIS, DocTestParser, DocTestRunner
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from xml.etree import ElementTree

import pytest

from cuteblas import cli, emulator, runtime

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILES = [ROOT / "README.md", *sorted(path for folder in (DOCS, DOCS / "howto", DOCS / "tutorials") for path in folder.glob("*.md")
                                     if path.name != "layout-semantics.md")]
BLOCK = re.compile(r"(?:^<!-- needs: (?P<needs>\w+)(?:, run [\d-]+)? -->\n)?"
                   r"^```(?P<kind>python|pycon)\n(?P<text>.*?)^```$", re.M | re.S)
PERFORMANCE = DOCS / "performance"
SITE = DOCS / "site"
ON_GITHUB = re.compile(r"https://(?:github\.com/cuteblas/cuteblas/(?:blob|tree)"
                       r"|raw\.githubusercontent\.com/cuteblas/cuteblas)/main/([^)#\"]*)")
WITHOUT_EXAMPLES = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
NAMED = re.compile(r"(?<![/\w])((?:cuteblas|layout|codegen|kernels|planning|runtime|emulator|engines|functions|blas|array|cli|tests"
                   r"|conformance|docs)/[\w/]+\.(?:py|h|cuh|md|json|yml))\b")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")


def available(needed):
    return {"compiler": emulator.available, "gpu": runtime.available, "dask": lambda: find_spec("dask") is not None}[needed]()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_examples(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)                               # where examples write files
    monkeypatch.setenv("CUTEBLAS_DEVICE", "cpu")              # as where there is no GPU
    text, names = path.read_text(encoding="utf-8"), {"__name__": path.stem}
    runner = DocTestRunner(optionflags=ELLIPSIS)
    for block in BLOCK.finditer(text):
        line = text[:block.start("text")].count("\n")
        if block["needs"] and not available(block["needs"]):
            continue
        if block["kind"] == "python":
            exec(compile("\n" * line + block["text"], str(path), "exec"), names)
        else:
            test = DocTestParser().get_doctest(block["text"], names, path.name, str(path), line)
            output = []
            runner.run(test, out=output.append, clear_globs=False)
            assert not output, "".join(output)
            names.update(test.globs)


CELL = re.compile(r"^```\{code-cell\} ipython3\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("path", [path for path in FILES if CELL.search(path.read_text(encoding="utf-8"))],
                         ids=lambda path: path.name)
def test_cells_of_notebooks(path):
    """They run, one after the other; the site shows what they print."""
    if not emulator.available():
        pytest.skip("the notebooks run kernels in the emulator, which needs a compiler")
    text, names = path.read_text(encoding="utf-8"), {"__name__": path.stem}
    for cell in CELL.finditer(text):
        exec(compile("\n" * text[:cell.start(1)].count("\n") + cell[1], str(path), "exec"), names)


def anchors(path):
    """Those of a page's headings, as GitHub and MyST name them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*?)\s*$", text, re.M)}


PAGES = [*FILES, *WITHOUT_EXAMPLES, ROOT / "CHANGELOG.md", DOCS / "layout-semantics.md", *sorted(PERFORMANCE.glob("*.md")),
         *sorted(SITE.glob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_links_lead_somewhere(path):
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        page = path.parent / target if target else path
        assert page.exists(), target
        assert not anchor or page.suffix != ".md" or anchor[1:] in anchors(page), f"{target}{anchor}"


OUTWARD = re.compile(r"https?://[^\s)>`\"'|]+")
HOSTS = {"arxiv.org", "data-apis.org", "github.com", "keepachangelog.com", "raw.githubusercontent.com", "semver.org",
         "www.nvidia.com"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_outward_links_have_the_form_of_ones_that_work(path):
    """None is opened: hosts are known, those on GitHub are files of this repository, or threads and repositories of others."""
    for link in OUTWARD.findall(path.read_text(encoding="utf-8")):
        assert link.startswith("https://") and link.split("/")[2] in HOSTS, link
        if link.startswith("https://github.com/") and "github.com/cuteblas/cuteblas" not in link:
            assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+(/(issues|pull)/\d+)?", link), link
        elif (own := ON_GITHUB.match(link)):
            assert (ROOT / own[1]).exists(), link


@pytest.mark.parametrize("name, words", [("products.svg", {"float32", "complex64", "target"}),
                                         ("transposes.svg", {"8192x8192", "16 bytes", "target"}),
                                         ("numpy-arrays.svg", {"NumPy", "CuPy, there and back"}),
                                         ("overview-light.svg", {"float32", "complex128", "CuPy"}),
                                         ("overview-dark.svg", {"float32", "complex128", "CuPy"})])
def test_plots_are_drawn_from_the_data(name, words, tmp_path):
    """They equal the committed ones, if the same version of matplotlib draws them."""
    matplotlib = pytest.importorskip("matplotlib")
    run_path(str(PERFORMANCE / "plots.py"))["main"](tmp_path)
    drawn, committed = ((folder / name).read_text(encoding="utf-8") for folder in (tmp_path, PERFORMANCE))
    assert words <= {element.text for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")}
    assert drawn == committed or f"Matplotlib v{matplotlib.__version__}" not in committed


def test_the_table_of_the_readme_is_of_the_data():
    pytest.importorskip("matplotlib")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| | ratio |"):].partition("\n\n")[0].splitlines()[2:]
    assert table == run_path(str(PERFORMANCE / "plots.py"))["table"]() and len(table) == 10


def test_links_of_the_readme_work_outside_of_the_repository():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [target for target, _ in LINK.findall(text) if target]
    assert len(ON_GITHUB.findall(text)) > 8


def test_host_times_on_numpy_arrays_are_those_of_the_data():
    text = (PERFORMANCE / "host.md").read_text(encoding="utf-8")
    data = json.loads((PERFORMANCE / "data" / "x86-host-numpy.json").read_text(encoding="utf-8"))
    rows = [(row["case"], 1e6 * row["ours_s"], 1e6 * row["rival_s"]) for row in data["figures"]["host"]]
    lines = [f"| `{case}` | {ours:.2f} | {theirs:.2f} | {ours - theirs:.2f} |" for case, ours, theirs in rows]
    assert len(lines) == 16 and "\n".join(lines) in text and data["about"]["command"] in text


def test_every_page_is_listed():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = [path for path in FILES if path.name not in ("README.md", "index.md")] + [DOCS / "layout-semantics.md"]
    assert all(f"({path.relative_to(DOCS).as_posix()})" in index for path in listed)


def test_the_page_of_the_command_line_names_every_command():
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in cli.COMMANDS)


@pytest.mark.parametrize("path", [page for page in PAGES if page.name not in ("history.md", "CHANGELOG.md")],
                         ids=lambda path: f"{path.parent.name}/{path.name}")
def test_named_files_exist(path):
    """What stands in capitals, as in ``kernels/FAMILY/NAME.py``, is up to the reader; the history names files of its time."""
    named = set(NAMED.findall(path.read_text(encoding="utf-8")))
    folders = ROOT, ROOT / "cuteblas", path.parent
    assert not [name for name in named if not re.search("[/_](?!README)[A-Z]{3}", name)
                and not any((folder / name).exists() for folder in folders)]

"""The Python examples of README and docs run as they are written.

Blocks of a file are run in order and share their names: ``python`` blocks as scripts, ``pycon``
blocks as doctests. A comment ``<!-- needs: compiler -->``, ``<!-- needs: dask -->`` or
``<!-- needs: gpu -->`` before a block leaves it out where there is none; the last may say when it
last ran on one: ``<!-- needs: gpu, run 2026-11-23 -->``.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from doctest import ELLIPSIS, DocTestParser, DocTestRunner
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from xml.etree import ElementTree

import pytest

import conformance.bench.__main__
import conformance.bench.calibrate
from cuteblas import cli, emulator, runtime
from cuteblas.cli import bench, calibrate
from cuteblas.cli.command import Parser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILES = [ROOT / "README.md", *sorted(path for folder in (DOCS, DOCS / "howto", DOCS / "tutorials")
                                     for path in folder.glob("*.md")
                                     if path.name != "layout-semantics.md")]
BLOCK = re.compile(r"(?:^<!-- needs: (?P<needs>\w+)(?:, run [\d-]+)? -->\n)?"
                   r"^```(?P<kind>python|pycon)\n(?P<text>.*?)^```$", re.M | re.S)
PERFORMANCE = DOCS / "performance"
SITE = DOCS / "site"
ON_GITHUB = re.compile(r"https://(?:github\.com/cuteblas/cuteblas/(?:blob|tree)"
                       r"|raw\.githubusercontent\.com/cuteblas/cuteblas)/main/([^)#\"]*)")
WITHOUT_EXAMPLES = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
NAMED = re.compile(
    r"(?<![/\w])((?:cuteblas|layout|codegen|kernels|planning|runtime|emulator|engines|functions|blas|array|cli|tests"
    r"|conformance|docs)/[\w/]+\.(?:py|h|cuh|md|json|yml))\b"
)
COMMANDS = {"cuteblas bench": bench, "cuteblas calibrate": calibrate,
            "conformance.bench": conformance.bench.__main__,
            "conformance.bench calibrate": conformance.bench.calibrate}
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")


def available(needed):
    return {"compiler": emulator.available, "gpu": runtime.available,
            "dask": lambda: find_spec("dask") is not None}[needed]()


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


@pytest.mark.parametrize("path", [path for path in FILES
                                  if CELL.search(path.read_text(encoding="utf-8"))],
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
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*?)\s*$", text, re.M)}


PAGES = [*FILES, *WITHOUT_EXAMPLES, ROOT / "CHANGELOG.md", DOCS / "layout-semantics.md",
         *sorted(PERFORMANCE.glob("*.md")), *sorted(SITE.glob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_links_lead_somewhere(path):
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        page = path.parent / target if target else path
        assert page.exists(), target
        assert not anchor or page.suffix != ".md" or anchor[1:] in anchors(page), f"{target}{anchor}"


OUTWARD = re.compile(r"https?://[^\s)>`\"'|]+")
HOSTS = {"arxiv.org", "data-apis.org", "docs.cupy.dev", "docs.nvidia.com", "docs.scipy.org",
         "github.com", "keepachangelog.com", "numpy.org", "pandas.pydata.org", "semver.org",
         "www.nvidia.com"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_outward_links_have_the_form_of_ones_that_work(path):
    """None is opened: hosts are known, those on GitHub are files of this repository, or threads and
    repositories of others."""
    for link in OUTWARD.findall(path.read_text(encoding="utf-8")):
        assert link.startswith("https://") and link.split("/")[2] in HOSTS, link
        if link.startswith("https://github.com/") and "github.com/cuteblas/cuteblas" not in link:
            assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+(/(issues|pull)/\d+)?",
                                link), link
        elif (own := ON_GITHUB.match(link)):
            assert (ROOT / own[1]).exists(), link


DRAWN = {"products": {"float32", "complex64", "target"},
         "transposes": {"8192x8192", "16 bytes", "target"},
         **{f"{name}-{shade}": words for shade in ("light", "dark")
            for name, words in {"overview": {"float32", "complex128", "CuPy"},
                                "by-type": {"int64", "complex128", "16384"},
                                "permutations": {"cuteblas", "CuPy"},
                                "numpy-arrays": {"NumPy on 16 cores", "CuPy, with both copies"},
                                "random": {"integers and bool", "many tiny"}}.items()}}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The folder of plots that are drawn now."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("plots")
    run_path(str(PERFORMANCE / "plots.py"))["main"](folder)
    return folder


@pytest.mark.parametrize("name", DRAWN)
def test_plots_are_drawn_from_the_data(name, drawn):
    """They equal the committed ones, if the same version of matplotlib draws them."""
    now, committed = ((folder / f"{name}.svg").read_text(encoding="utf-8")
                      for folder in (drawn, PERFORMANCE))
    assert DRAWN[name] <= {
        element.text
        for element in ElementTree.fromstring(now).iter("{http://www.w3.org/2000/svg}text")
    }
    assert now == committed or f"Matplotlib v{importlib.metadata.version('matplotlib')}" not in committed
    assert {path.stem for path in PERFORMANCE.glob("*.svg")} == set(DRAWN)


def test_tables_for_users_are_of_the_data():
    pytest.importorskip("matplotlib")
    plots = run_path(str(PERFORMANCE / "plots.py"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text[text.index("| on an H200 | speed"):].partition("\n\n")[0].splitlines()[2:]
    assert table == plots["table"]() and len(table) == 10
    for name, group, case, condition in plots["TABLE"].values():
        found = [row for row in plots["rows"](name, group) if row["case"].startswith(case)]
        assert found and ("errors no larger" not in condition
                          or all(row["error"] <= row["rival_error"] for row in found))
    assert "\n".join(plots["by_type"]()) in (DOCS / "how-fast.md").read_text(encoding="utf-8")


def test_the_support_matrix_is_what_planning_chooses():
    """Words agree exactly; times within a quarter, so that a new fit of a number does not change
    the page."""
    support = run_path(str(PERFORMANCE / "support.py"))
    text = (DOCS / "support.md").read_text(encoding="utf-8")
    assert "\n".join(support["chosen"]()) in text and "\n".join(support["by_name"]()) in text
    now = support["expected"]()
    written = text[text.index(now[0]):].partition("\n\n")[0].splitlines()
    for line, other in zip(now, written, strict=True):
        for cell, old in zip(line.split("|"), other.split("|"), strict=True):
            assert cell == old or float(cell) == pytest.approx(float(old), rel=0.25), line


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_code_fits_the_page(path):
    """Lines of code blocks have at most 76 columns: a page shows them without a bar to scroll
    by."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
    assert not [line for block in blocks for line in block.splitlines() if len(line) > 76]


STOPS = re.compile(
    r"on the kernels by|product, which the kernel applies to its sums|\b1/\d\.\d of the time|what others ask"
    r"|worked on by one of|kernels have no|the better of CuPy|all of NumPy's functions|where that is expected"
    r"|with the one that waits"
)


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "conformance.md"],
                         ids=lambda path: path.name)
def test_sentences_that_stopped_readers_are_gone(path):
    assert not STOPS.findall(" ".join(path.read_text(encoding="utf-8").split()))


def test_links_of_the_readme_are_relative():
    """They work in a clone; tests/test_packaging.py tests those of the package's page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not ON_GITHUB.findall(text) and len(LINK.findall(text)) > 10
    assert all((ROOT / picture).exists() for picture in re.findall(r'(?:src|srcset)="([^"]+)"',
                                                                   text))


def test_host_times_on_numpy_arrays_are_those_of_the_data():
    text = (PERFORMANCE / "host.md").read_text(encoding="utf-8")
    data = json.loads((PERFORMANCE / "data" / "x86-host-numpy.json").read_text(encoding="utf-8"))
    rows = [(row["case"], 1e6 * row["ours_s"], 1e6 * row["rival_s"])
            for row in data["figures"]["host"]]
    lines = [f"| `{case}` | {ours:.2f} | {theirs:.2f} | {ours - theirs:.2f} |"
             for case, ours, theirs in rows]
    assert len(lines) == 16 and "\n".join(lines) in text and data["about"]["command"] in text


def test_every_page_is_listed():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = [path for path in FILES if path.name not in ("README.md", "index.md")] + [
        DOCS / "layout-semantics.md"
    ]
    assert all(f"({path.relative_to(DOCS).as_posix()})" in index for path in listed)


def test_the_page_of_the_command_line_names_every_command():
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in cli.COMMANDS)


MEASURES = re.compile(
    r"python -m (cuteblas bench|cuteblas calibrate|conformance\.bench calibrate|conformance\.bench)"
    r"((?: (?:[\w.:,*/-]|\\\n *)+)*)"
)


@pytest.mark.parametrize("path", [page for page in PAGES
                                  if page.name not in ("history.md", "CHANGELOG.md")],
                         ids=lambda path: f"{path.parent.name}/{path.name}")
def test_commands_that_measure_are_understood(path):
    """Their groups and options are those of the command that they name."""
    for program, rest in MEASURES.findall(path.read_text(encoding="utf-8")):
        words = rest.replace("\\\n", " ").replace("--sizes ...",
                                                  "--sizes 64").replace("...", "").split()
        parser = Parser(program, None)
        COMMANDS[program].configure(parser)
        parser.parse_args(words)


@pytest.mark.parametrize("path", [page for page in PAGES
                                  if page.name not in ("history.md", "CHANGELOG.md")],
                         ids=lambda path: f"{path.parent.name}/{path.name}")
def test_named_files_exist(path):
    """What stands in capitals, as in ``kernels/FAMILY/NAME.py``, is up to the reader; the history
    names files of its time."""
    named = set(NAMED.findall(path.read_text(encoding="utf-8")))
    folders = ROOT, ROOT / "cuteblas", path.parent
    assert not [name for name in named if not re.search("[/_](?!README)[A-Z]{3}", name)
                and not any((folder / name).exists() for folder in folders)]

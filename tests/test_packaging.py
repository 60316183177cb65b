"""The sdist and the wheel have every file, the wheel says what is true of it, and installed
elsewhere it works."""

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import cuteblas
from cuteblas import emulator

pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")
pytest.importorskip("hatch_fancy_pypi_readme",
                    reason="hatch-fancy-pypi-readme, which makes its description, is not installed")

ROOT = Path(__file__).parents[1]
SMOKE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])                          # before an editable installation of the checkout
import cuteblas, cuteblas.cli, numpy
assert pathlib.Path(cuteblas.__file__).is_relative_to(sys.argv[1]), cuteblas.__file__
a = numpy.arange(6.0).reshape(2, 3)
assert (cuteblas.matmul(a, a.T) == a @ a.T).all()
if sys.argv[2] == "emulator":
    with cuteblas.backend("emulator"):
        assert (cuteblas.matmul(a, a.T) == a @ a.T).all()
assert cuteblas.explain(a, a.T).source
sys.exit(cuteblas.cli.main(["layout", "(4,2):(2,1)"]))
"""
MEASURE = """
import os, sys
sys.path.insert(0, sys.argv[1])
import cuteblas.cli
from cuteblas import runtime
from cuteblas.cli import calibrate, problems
from cuteblas.planning.problem import H200

class Workers(calibrate.Workers):
    def submit(self, function, problem, names, device):
        made = calibrate.Future()
        made.set_result([None] * len(names))
        return made

class Card(calibrate.Card):
    def __init__(self, device):
        self.device, self.workers = device, Workers()

    def times(self, problem, plans):
        return {i: each.seconds(self.device) * (1 + 0.1 * (len(str(each)) % 3))
                for i, each in enumerate(problem.alternatives)}

arguments = ["--backend", "numpy", "--sizes", "20", "--dtypes", "float32", "float64", "--repeats", "1", "--json", "bench.json"]
assert cuteblas.cli.main(["bench", *arguments]) == 0
calibrate.Card, calibrate.versions = Card, lambda: {"device": "a card"}
some = problems.usual_samples()[:10]
calibrate.usual_samples = lambda: some
runtime.why_unavailable, runtime.device_info = lambda: None, lambda: H200
assert cuteblas.cli.main(["calibrate", "--json", "card.json"]) == 0
assert sorted(os.listdir()) == ["bench.json", "card.json", "site"]
assert "conformance" not in sys.modules                # which only a checkout has
"""


def python(*arguments, cwd):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, check=True,
                          stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An sdist of this tree, and a wheel made from what the sdist holds."""
    out = tmp_path_factory.mktemp("dist")
    build = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"
    sdist = out / python("-c", build, "build_sdist", out, cwd=ROOT).split()[-1]
    with tarfile.open(sdist) as archive:
        # from Python 3.11.4 on
        archive.extractall(out, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    wheel = out / python("-c", build, "build_wheel", out,
                         cwd=out / sdist.name.removesuffix(".tar.gz")).split()[-1]
    return sdist, wheel


def of_the_package():
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / "cuteblas").rglob("*")
            if path.is_file() and path.suffix not in (".pyc", ".so")
            and "__pycache__" not in path.parts}


def test_the_wheel_has_every_file_of_the_package(built):
    with zipfile.ZipFile(built[1]) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == of_the_package() and "cuteblas/py.typed" in packed
    assert {Path(name).suffix for name in packed} >= {".py", ".cuh", ".h", ".cpp"}


def test_the_sdist_has_what_the_tests_need(built):
    with tarfile.open(built[0]) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert packed >= of_the_package() | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md",
                                         "tests/conftest.py", "conformance/conftest.py",
                                         "docs/README.md", "CONTRIBUTING.md", "SECURITY.md",
                                         ".ci/run", ".github/workflows/ci.yml",
                                         ".pre-commit-config.yaml"}


def test_metadata(built):
    trove = pytest.importorskip("trove_classifiers").classifiers
    with zipfile.ZipFile(built[1]) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = email.message_from_string(archive.read(name).decode())
    assert metadata["Version"] == cuteblas.__version__ and metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Classifier")) <= trove
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL"))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(urls)
    assert all(url.startswith(urls["Homepage"]) for url in urls.values())


def test_links_and_pictures_of_the_description_are_absolute(built):
    """Those of README.md are relative, and lead to files; on the page of the package they lead to
    the same files."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    with zipfile.ZipFile(built[1]) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        description = email.message_from_string(archive.read(name).decode()).get_payload()
    target = re.compile(r'(?:\]\(|(?:src|srcset)=")([^)"]+)')
    pairs = list(zip(target.findall(readme), target.findall(description), strict=True))
    pictures = [absolute for relative, absolute in pairs if relative.endswith(".svg")]
    assert len(pairs) > 15 and len(pictures) == 2
    for relative, absolute in pairs:
        assert (ROOT / relative.partition("#")[0]).is_file(), relative
        host = "raw.githubusercontent.com/cuteblas/cuteblas" if absolute in pictures else "github.com/cuteblas/cuteblas/blob"
        assert absolute == f"https://{host}/main/{relative}"
    assert target.sub("", readme).split() == target.sub("", description).split()


def test_the_wheel_works_outside_of_the_checkout(built, tmp_path):
    with zipfile.ZipFile(built[1]) as archive:
        archive.extractall(tmp_path / "site")
    runs = "emulator" if emulator.available() else "numpy"
    assert "size 8" in python("-c", SMOKE, tmp_path / "site", runs, cwd=tmp_path)
    text = python("-c", MEASURE, tmp_path / "site", cwd=tmp_path)
    assert "measured 10 of 10 problems" in text and "wrote card.json" in text

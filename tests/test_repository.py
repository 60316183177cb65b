"""The top of the repository, the definitions of CI and of the hooks before a commit, and the
version agree."""

import ast
import datetime
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cuteblas

from .mutations import MUTATIONS

ROOT = Path(__file__).parents[1]
TOP = {".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CONTRIBUTING.md",
       "LICENSE", "README.md", "SECURITY.md", "conformance", "cuteblas", "docs", "pyproject.toml",
       "tests"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUN = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
PARTS = set(re.findall(r"^(\w+)\(\) \{", RUN, re.M)) - {"develop", "opened", "together"}


def load(path):
    yaml = pytest.importorskip("yaml",
                               reason="PyYAML, which reads the definitions, is not installed")
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_top_level():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.splitlines()
    assert {name.partition("/")[0] for name in tracked} == TOP


def without_encoding(tree):
    """Calls that open text in whatever encoding the machine has."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        named = {keyword.arg for keyword in call.keywords}
        texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant)
                 and isinstance(arg.value, str)]
        if name in ("read_text", "write_text"):
            missing = "utf-8" not in texts
        elif name in ("open", "fdopen", "TextIOWrapper"):
            missing = getattr(call.func, "value",
                              None) is None and not any("b" in text for text in texts[-1:])
        else:
            missing = "text" in named or "universal_newlines" in named
        if missing and "encoding" not in named:
            yield f"{call.lineno}: {ast.unparse(call)[:80]}"


def test_text_has_an_encoding():
    files = [file for folder in ("cuteblas", "docs") for file in (ROOT / folder).rglob("*.py")]
    found = [f"{file.relative_to(ROOT)}:{each}" for file in files
             for each in without_encoding(ast.parse(file.read_text(encoding="utf-8")))]
    assert not found, "\n".join(found)
    assert len([*without_encoding(ast.parse("open('x', 'w'), p.read_text(), run(x, text=True), open('x', 'rb')"))]) == 3


def test_the_workflow_runs_every_part_on_every_python():
    jobs = load(".github/workflows/ci.yml")["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step]
                for name, job in jobs.items()}
    assert {".ci/run " + part for part in PARTS} == {command for of_job in commands.values()
                                                     for command in of_job}
    assert all(name in jobs and commands[name] == [f".ci/run {name}"] for name in PARTS)
    tested = jobs["tests"]["strategy"]["matrix"]["python"]
    assert all(isinstance(version, str) for version in tested)    # 3.10 without quotes would be 3.1
    assert tested[0] == PROJECT["requires-python"].removeprefix(">=") == jobs["lowest"]["strategy"]["matrix"]["python"][0]
    prefix = "Programming Language :: Python :: 3."
    assert {"3." + line.removeprefix(prefix) for line in PROJECT["classifiers"]
            if line.startswith(prefix)} <= set(tested)


def test_parts_of_ci_are_named():
    listed = re.search(r"set -- (.*)", RUN).group(1).split()
    assert set(listed) == PARTS
    if sys.platform == "win32":
        return
    refused = subprocess.run(["bash", ".ci/run", "nothing"], cwd=ROOT, capture_output=True,
                             text=True, check=False)
    assert refused.returncode == 2 and all(part in refused.stderr for part in PARTS)


def test_what_is_skipped_as_a_whole_without_cupy_is_run_with_it():
    pattern = re.search(r"grep -rlE '(.*?)' tests", RUN).group(1)
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text(encoding="utf-8")
        calls = [ast.unparse(statement.value) for statement in ast.parse(text).body
                 if isinstance(statement, (ast.Assign, ast.Expr))]
        needs = any(call.startswith("pytest.importorskip('cupy'") for call in calls)
        assert needs == bool(re.search(pattern, text, re.M)), file


def test_faults_have_a_text_and_tests():
    """Sixty at least; ``python -m tests.mutations`` reports the others."""
    ready = 0
    for fault in MUTATIONS:
        file = ROOT / "cuteblas" / fault.file
        ready += file.exists() and file.read_text(encoding="utf-8").count(fault.text) == 1
        for name in fault.tests.split():
            path, _, function = name.partition("::")
            path = ROOT / "tests" / path
            assert path.exists(), name
            assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), name
    assert ready >= 60


def test_hooks_are_programs_of_the_extra_lint():
    hooks = [hook for repository in load(".pre-commit-config.yaml")["repos"]
             for hook in repository["hooks"]]
    assert all(hook["language"] == "system" for hook in hooks) and len(
        {hook["id"] for hook in hooks}
    ) == len(hooks)
    wanted = {re.match(r"[\w-]+", name).group()
              for name in PROJECT["optional-dependencies"]["lint"]}
    try:
        scripts = {entry.name for name in wanted
                   for entry in importlib.metadata.distribution(name).entry_points}
    except importlib.metadata.PackageNotFoundError as missing:
        pytest.skip(f"of the extra lint, {missing.name} is not installed")
    programs = {hook["entry"].split()[0] for hook in hooks}
    # ruff is a binary, not an entry point
    assert programs - {"ruff"} <= scripts and {"ruff", "mypy"} <= programs & wanted
    assert all(f"    {program}" in RUN for program in ("ruff check", "mypy"))


def test_the_version_has_a_dated_section_in_the_changelog():
    assert PROJECT["version"] == cuteblas.__version__
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert sections[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)", section).groups()
                for section in sections[1:]]
    assert released[0][0] == PROJECT["version"]
    dates = [datetime.date.fromisoformat(date) for _, date in released]
    assert dates == sorted(dates, reverse=True)

"""The compiler of the emulator: which one, what becomes of its libraries, and what happens if it or
the cache misbehaves."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cuteblas import _cache, emulator
from cuteblas.emulator import compiler

SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of its own; temporary files have a folder of their own too, in which nothing may
    stay."""
    if not emulator.available():
        pytest.skip(str(emulator.why_unavailable()))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "_warned", [])
    return tmp_path


def _answers(folder: Path) -> bool:
    right = compiler.build(SOURCE, "a test").answer() == 42
    return right and not [*(folder / "temporary").iterdir()]


DAMAGE = {"half": lambda x: x[:len(x) // 2], "empty": lambda x: b"", "text": lambda x: b"text",
          "bytes": lambda x: x[:700] + bytes(64) + x[764:], "digest": lambda x: x[:-32] + bytes(32)}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_library_is_made_again(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    assert _answers(folder)
    (library,) = (folder / "cache" / "emulator").iterdir()
    whole = library.read_bytes()
    library.write_bytes(damage(whole))
    assert _answers(folder) and library.read_bytes()[-32:] == _cache._digest(
        library.name, library.read_bytes()[:-32]
    )
    assert len(library.read_bytes()) == len(whole)


def test_a_library_that_this_machine_does_not_load_is_made_again(folder: Path) -> None:
    assert _answers(folder)
    (library,) = (folder / "cache" / "emulator").iterdir()
    _cache.keep("emulator", library.name, b"\x7fELF of another system" + bytes(100))
    assert _answers(folder) and _answers(folder)


def _compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let a script be the compiler."""
    script = folder / "cxx"
    script.write_bytes(b"#!/bin/sh\n" + text.encode("latin-1") + b"\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setattr(compiler, "_compiler", compiler._compiler.__wrapped__)
    monkeypatch.setattr(compiler, "_PATIENCE", 0.3)


VERSION = 'case "$*" in *--version*) echo script 1; exit;; esac\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && to=$2; shift; done\n'


@pytest.mark.parametrize("writes", ["true", "rm -f $to", ": > $to", "echo text > $to", "mkdir $to"],
                         ids=["nothing", "removed", "empty", "text", "folder"])
def test_a_compiler_that_writes_no_library(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                           writes: str) -> None:
    with monkeypatch.context() as patch:
        _compiler(folder, patch, VERSION + writes)
        for _ in range(2):
            with pytest.raises(emulator.CompilerError, match=r"^(?s:.*)a test"):
                compiler.build(SOURCE, "a test")
    assert not [*(folder / "cache").rglob("*.*")] and not [*(folder / "temporary").iterdir()]
    assert _cache.usage("emulator").files == 0
    assert _answers(folder)


@pytest.mark.parametrize("version", ["true", "echo; echo", "exit 1", "sleep 100",
                                     "sleep 100 & echo 1; wait", "kill -9 $$"])
def test_a_compiler_that_tells_no_version_is_not_taken(folder: Path,
                                                       monkeypatch: pytest.MonkeyPatch,
                                                       version: str) -> None:
    _compiler(folder, monkeypatch, version)
    began = time.monotonic()
    found = compiler._compiler()
    assert found is not None and Path(found[0]).name in ("g++", "clang++",
                                                         "c++") and time.monotonic() - began < 30


def test_a_version_may_have_any_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compiler(folder, monkeypatch,
              "case \"$*\" in *--version*) printf 'ver\xe9 \\377\\n';; *) exec g++ \"$@\";; esac")
    assert compiler._compiler() == (str(folder / "cxx"), "ver\ufffd \ufffd") and _answers(folder)


def test_words_of_a_compiler_may_have_any_bytes(folder: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    _compiler(folder, monkeypatch, VERSION + "printf 'err\\377r' >&2; exit 1")
    with pytest.raises(emulator.CompilerError, match="refuses a test:\nerr\ufffdr"):
        compiler.build(SOURCE, "a test")


@pytest.mark.parametrize("text", [b"", b"no program", b"#!/no/such/interpreter\n", b"\x7fELF"])
def test_what_is_no_program_is_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                           text: bytes) -> None:
    (folder / "cxx").write_bytes(text)
    (folder / "cxx").chmod(0o755)
    monkeypatch.setenv("CXX", str(folder / "cxx"))
    found = compiler._compiler.__wrapped__()
    assert found is not None and found[0] != str(folder / "cxx")


@pytest.mark.parametrize("trouble", ["a file", "others", "full"])
def test_without_a_cache_kernels_are_compiled_in_each_process(folder: Path,
                                                              monkeypatch: pytest.MonkeyPatch,
                                                              trouble: str) -> None:
    cache = folder / "cache"
    match trouble:
        case "a file":
            cache.touch()
        case "others":
            (cache / "emulator").mkdir(parents=True)
            (cache / "emulator").chmod(0o777)
        case "full":
            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")
            monkeypatch.setattr(_cache.os, "replace", full)
    with pytest.warns(RuntimeWarning, match=r"the cache cannot be used .* set CUTEBLAS_CACHE_DIR"):
        assert _answers(folder)
    assert _answers(folder) and not [path for path in cache.rglob("*") if path.is_file()]


def test_a_library_that_others_planted_is_not_loaded(folder: Path) -> None:
    assert _answers(folder)
    (library,) = (folder / "cache" / "emulator").iterdir()
    planted = library.read_bytes()[:-32]
    for name in ("planted", library.name):           # under another name, and in a folder of others
        _cache.keep("emulator", name, planted)
    os.rename(library.parent / "planted", library)
    assert _cache.find("emulator", library.name) is None
    library.parent.chmod(0o777)
    assert _cache.find("emulator", library.name) is None


def test_the_cache_may_go_while_it_is_used(folder: Path) -> None:
    for _ in range(2):
        library = compiler.build(SOURCE, "a test")
        shutil.rmtree(folder / "cache")
        assert library.answer() == 42
    assert _answers(folder)


def test_a_library_is_loaded_from_the_cache_where_temporary_files_are_no_programs(
    folder: Path, monkeypatch
) -> None:
    load = compiler.ctypes.CDLL

    def refusing(path: str) -> object:
        if path.startswith(str(folder / "temporary")):
            raise OSError("failed to map segment from shared object")
        return load(path)

    monkeypatch.setattr(compiler.ctypes, "CDLL", refusing)
    assert _answers(folder) and _answers(folder)
    assert len([*(folder / "cache" / "emulator").iterdir()]) == 1
    monkeypatch.setattr(compiler, "usable_folder", lambda part: Path("/no/such/folder"))
    with pytest.raises(emulator.CompilerError, match="the library of a test cannot be loaded"):
        compiler.build(SOURCE, "a test")


def test_a_relative_folder_of_the_cache_stays_where_it_was(folder: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", f"cache-{folder.name}")
    assert _answers(folder)
    monkeypatch.chdir(folder / "temporary")
    assert _answers(folder) and len([*(folder / f"cache-{folder.name}" / "emulator").iterdir()]) == 1

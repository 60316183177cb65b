"""Where compiled kernels are kept."""

import struct
from pathlib import Path

import pytest

from cuteblas.runtime import cache


@pytest.fixture
def bare(monkeypatch):
    for name in ("CUTEBLAS_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    return monkeypatch


def test_the_environment_chooses_the_directory(bare):
    bare.setenv("CUTEBLAS_CACHE_DIR", "~/kernels")
    assert cache.cache_directory() == Path("/home/someone/kernels")


@pytest.mark.parametrize("platform, environment, expected", [
    ("linux", {}, "/home/someone/.cache/cuteblas"),
    ("linux", {"XDG_CACHE_HOME": "/fast"}, "/fast/cuteblas"),
    ("darwin", {"XDG_CACHE_HOME": "/fast"}, "/home/someone/Library/Caches/cuteblas"),
    ("win32", {"LOCALAPPDATA": "/local"}, "/local/cuteblas"),
    ("win32", {}, "/home/someone/AppData/Local/cuteblas"),
])
def test_else_the_platform_does(bare, platform, environment, expected):
    bare.setattr(cache.sys, "platform", platform)
    for name, value in environment.items():
        bare.setenv(name, value)
    assert cache.cache_directory() == Path(expected)


@pytest.mark.parametrize("part, other", [("entries", "emulator"), ("emulator", "entries")])
def test_usage_and_clear_concern_one_part_alone(monkeypatch, tmp_path, part, other):
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path / "new"))
    assert cache.usage(part) == (0, 0) and cache.clear(part) == 0 and not (tmp_path / "new").exists()
    files = {f"{part}/ab/one": "12345", f"{part}/two": "123", f"{other}/three": "1", "notes.txt": "not a kernel"}
    for name, content in files.items():
        path = tmp_path / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert cache.usage(part) == (2, 8)
    assert cache.clear(part) == 2
    assert cache.usage(part) == (0, 0) and cache.usage(other) == (1, 1) and (tmp_path / "new" / "notes.txt").exists()


def test_a_cubin_that_was_cut_short_is_recognised():
    # 64 bytes of header, two section headers of 64 bytes, then one program header of 56 bytes at the end.
    header = b"\x7fELF" + bytes(28) + struct.pack("<QQ", 192, 64) + bytes(6) + struct.pack("<HHHH", 56, 1, 64, 2) + bytes(2)
    whole = header + bytes(192 + 56 - 64)
    assert len(header) == 64 and cache.is_whole_cubin(whole)
    assert not cache.is_whole_cubin(whole[:-1])
    assert not cache.is_whole_cubin(whole[:63])
    assert not cache.is_whole_cubin(b"")
    assert not cache.is_whole_cubin(b"#" + whole[1:])

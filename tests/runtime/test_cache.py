"""Where compiled kernels are kept, and by which rules: those of GPUs, the emulator's libraries, and
calls that have run."""

import errno
import os
import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

from cuteblas import _cache as cache
from cuteblas import cli

PARTS = [*cache.CAPACITIES]
owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")


@pytest.fixture
def bare(monkeypatch):
    for name in ("CUTEBLAS_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    return monkeypatch


@pytest.fixture
def here(monkeypatch, tmp_path):
    """The directory of the cache, which is not there yet."""
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path / "new"))
    return tmp_path / "new"


def test_the_environment_chooses_the_directory(bare):
    bare.setenv("CUTEBLAS_CACHE_DIR", "~/kernels")
    assert cache.cache_directory() == Path("/home/someone/kernels")


@pytest.mark.parametrize("platform, environment, expected", [
    ("linux", {}, "/home/someone/.cache/cuteblas"),
    ("linux", {"XDG_CACHE_HOME": "/fast"}, "/fast/cuteblas"),
    ("linux", {"XDG_CACHE_HOME": "not/absolute"}, "/home/someone/.cache/cuteblas"),
    ("darwin", {"XDG_CACHE_HOME": "/fast"}, "/home/someone/Library/Caches/cuteblas"),
    ("win32", {"LOCALAPPDATA": "/local"}, "/local/cuteblas"),
    ("win32", {}, "/home/someone/AppData/Local/cuteblas"),
])
def test_else_the_platform_does(bare, platform, environment, expected):
    bare.setattr(cache.sys, "platform", platform)
    for name, value in environment.items():
        bare.setenv(name, value)
    assert cache.cache_directory() == Path(expected)


@owners
@pytest.mark.parametrize("chosen", [None, "~/kernels", "~nobody-has-this-name/kernels"])
def test_without_a_home_directory_nothing_is_kept(bare, tmp_path, chosen):
    bare.delenv("HOME")
    bare.setattr("pwd.getpwuid", lambda number: {}[number])
    bare.chdir(tmp_path)
    if chosen:
        bare.setenv("CUTEBLAS_CACHE_DIR", chosen)
    with pytest.raises(OSError, match="no home directory for ~"):
        cache.cache_directory()
    bare.setattr(cache, "_warned", [])
    for part in PARTS:
        assert cache.find(part, "name") is None and cache.usage(part) == (0, 0) and cache.clear(part) == 0
    with pytest.warns(RuntimeWarning, match="no home directory for ~.* set CUTEBLAS_CACHE_DIR"):
        cache.keep("emulator", "name", b"data")
    cache.keep("entries", "name", b"data")                              # it is said once
    assert not [*tmp_path.iterdir()]


def test_a_relative_path_stays_where_it_was(bare, tmp_path):
    (tmp_path / "one" / "two").mkdir(parents=True)
    bare.chdir(tmp_path / "one")
    bare.setenv("CUTEBLAS_CACHE_DIR", "two/kernels of this test")
    cache.keep("calls", "name", b"data")
    bare.chdir(tmp_path)
    assert cache.find("calls", "name") == b"data"
    assert cache.cache_directory() == tmp_path / "one/two/kernels of this test"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("data", [b"", b"x", bytes(1000)])
def test_what_is_kept_is_found(here, part, data):
    assert cache.find(part, "name") is None and not here.exists()
    cache.keep(part, "name", b"another")
    cache.keep(part, "name", data)
    assert cache.find(part, "name") == data and cache.find(part, "other") is None
    assert [*here.rglob("*")] == [here / part, here / part / "name"]


DAMAGE = {"half": lambda x: x[:len(x) // 2], "without its end": lambda x: x[:-1],
          "without its beginning": lambda x: x[1:], "empty": lambda x: b"",
          "a bit": lambda x: x[:9] + bytes([x[9] ^ 1]) + x[10:],
          "in its digest": lambda x: x[:-1] + b"\0", "longer": lambda x: x + b"\0",
          "twice": lambda x: 2 * x, "zeros": lambda x: bytes(len(x)),
          "text": lambda x: b"[" * 100000, "without a digest": lambda x: x[:-32]}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_was_damaged_is_not_found(here, part, damage):
    cache.keep(part, "name", b"data of a kernel")
    file = here / part / "name"
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert cache.find(part, "name") is None
    cache.keep(part, "name", b"data of a kernel")
    assert cache.find(part, "name") == b"data of a kernel"


def test_a_file_of_another_name_is_not_found(here):
    cache.keep("entries", "one", b"data")
    os.rename(here / "entries" / "one", here / "entries" / "two")
    assert cache.find("entries", "two") is None


@owners
@pytest.mark.parametrize("what", ["folder", "pipe", "device", "dangling", "huge"])
def test_what_is_no_file_is_not_found(here, what):
    cache.keep("calls", "name", b"data")
    file = here / "calls" / "name"
    file.unlink()
    match what:
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "dangling":
            file.symlink_to("nothing")
        case "huge":
            os.truncate(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), 1 << 40)
    assert cache.find("calls", "name") is None


@owners
@pytest.mark.parametrize("mask", [0, 0o002, 0o022, 0o077])
def test_nobody_else_can_write_there(bare, tmp_path, mask):
    bare.setenv("HOME", str(tmp_path / "home"))
    before = os.umask(mask)
    try:
        cache.keep("emulator", "name", b"data")
    finally:
        os.umask(before)
    made = [*(tmp_path / "home").rglob("*")]
    assert [path.name for path in made] == [".cache", "cuteblas", "emulator", "name"]
    assert not any(path.stat().st_mode & 0o077 for path in made) and cache.find("emulator", "name") == b"data"


def _mode(bits):
    return lambda path: path.chmod(bits)


def _given(path):
    os.chown(path, 12345, -1)


OTHERS = {"group": ("emulator", _mode(0o770)), "all": ("emulator", _mode(0o777)),
          "sticky": ("emulator", _mode(0o1777)), "directory of the group": (".", _mode(0o775)),
          "directory of all": (".", _mode(0o777)), "above": ("..", _mode(0o777)),
          "file": ("emulator/name", _mode(0o666)),
          "file of the group": ("emulator/name", _mode(0o620)), "owner": ("emulator", _given),
          "owner of the directory": (".", _given), "owner of a file": ("emulator/name", _given)}


@owners
@pytest.mark.parametrize("case", OTHERS)
def test_what_others_could_have_written_is_not_found(here, monkeypatch, case):
    cache.keep("emulator", "name", b"data")
    where, change = OTHERS[case]
    try:
        change(here / where)
    except PermissionError:
        pytest.skip("only root gives files away")
    assert cache.find("emulator", "name") is None
    if "file" not in case:
        monkeypatch.setattr(cache, "_warned", [])
        with pytest.warns(RuntimeWarning,
                          match="another user owns .* or can write to it.* set CUTEBLAS_CACHE_DIR"):
            cache.keep("emulator", "other", b"data")
        assert not (here / "emulator" / "other").exists()
    (here / "..").chmod(0o700)


@owners
def test_a_folder_among_those_of_others_is_used(here):
    """As in /tmp: everybody makes files there, and nobody removes those of others."""
    here.parent.chmod(0o1777)
    cache.keep("emulator", "name", b"data")
    assert cache.find("emulator", "name") == b"data"
    here.chmod(0o1777)
    assert cache.find("emulator", "name") == b"data"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT,
                                   errno.EIO])
@pytest.mark.parametrize("where", ["mkdir", "replace", "write"])
def test_what_cannot_be_written_is_said_once(here, monkeypatch, error, where):
    def fail(*_, **__):
        raise OSError(error, os.strerror(error))

    class Full:
        name = str(here / "emulator" / ".new-1")
        write = close = fail
        __enter__ = lambda self: self                       # noqa: E731
        __exit__ = lambda *_: None                          # noqa: E731

    monkeypatch.setattr(cache, "_warned", [])
    match where:
        case "mkdir":
            monkeypatch.setattr(cache.Path, "mkdir", fail)
        case "replace":
            monkeypatch.setattr(cache.os, "replace", fail)
        case "write":
            monkeypatch.setattr(cache, "NamedTemporaryFile", lambda **_: Full())
    with pytest.warns(
        RuntimeWarning,
        match=rf"the cache cannot be used .*{os.strerror(error)}.* set CUTEBLAS_CACHE_DIR"
    ) as said:
        cache.keep("emulator", "name", b"data")
    cache.keep("entries", "name", b"data")
    assert len(said) == 1 and cache.find("emulator", "name") is None
    assert not [path for path in here.rglob("*") if path.is_file()]


def test_a_folder_that_is_removed_meanwhile_is_made_again(here):
    cache.keep("entries", "name", b"data")
    (here / "entries" / "name").unlink()
    (here / "entries").rmdir()
    here.rmdir()
    assert cache.find("entries", "name") is None
    cache.keep("entries", "name", b"data")
    assert cache.find("entries", "name") == b"data"


@pytest.mark.parametrize("part", PARTS)
def test_the_oldest_files_go(here, monkeypatch, part):
    assert cache.CAPACITIES[part] <= 1 << 30
    monkeypatch.setitem(cache.CAPACITIES, part, 1000)
    monkeypatch.setattr(cache, "_WRITES", 1)
    for i in range(9):
        cache.keep(part, str(i), bytes(200 - 32))
        os.utime(here / part / str(i), (i, i))
        if i == 2:
            assert cache.find(part, "0") is not None                    # is used now
    assert sorted(path.name for path in (here / part).iterdir()) == ["0", "5", "6", "7", "8"]
    assert cache.usage(part).bytes == 1000


@pytest.mark.parametrize("part, other", [("entries", "emulator"), ("emulator", "entries")])
def test_usage_and_clear_concern_one_part_alone(here, part, other):
    assert cache.usage(part) == (0, 0) and cache.clear(part) == 0 and not here.exists()
    files = {f"{part}/ab/one": "12345", f"{part}/two": "123", f"{other}/three": "1",
             "notes.txt": "not a kernel"}
    for name, content in files.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    assert cache.usage(part) == (2, 8)
    assert cache.clear(part) == 2
    assert cache.usage(part) == (0, 0) and cache.usage(other) == (1, 1) and (here / "notes.txt").exists()


@owners
def test_without_a_home_directory_nothing_was_measured(bare, tmp_path):
    from cuteblas.planning.cost import hosts
    from cuteblas.runtime.costs import host_costs, own_costs

    for name in ("HOME", "XDG_CONFIG_HOME", "CUTEBLAS_CONFIG_DIR"):
        bare.delenv(name, raising=False)
    bare.setattr("pwd.getpwuid", lambda number: {}[number])
    bare.chdir(tmp_path)
    assert own_costs("NVIDIA H200") is None and host_costs() is hosts.HOST


@owners
def test_without_a_home_directory_commands_say_so(tmp_path):
    program = (
        "import os, pwd, sys\nos.environ.pop('HOME')\npwd.getpwuid = lambda number: {}[number]\n"
        "from cuteblas.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("CUTEBLAS_CACHE_DIR", "XDG_CACHE_HOME")}
    for command, expected in (("cache",
                               "no home directory for ~/.cache/cuteblas: set CUTEBLAS_CACHE_DIR"),
                              ("doctor", "no home directory for ~/.cache/cuteblas")):
        done = subprocess.run([sys.executable, "-c", program, command], capture_output=True,
                              text=True, cwd=tmp_path,
                              env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
                              check=False)
        assert expected in " ".join((done.stdout
                                     + done.stderr).split()) and "Traceback" not in done.stderr
    assert not [*tmp_path.rglob("cuteblas")]                           # CuPy makes a folder ~


# -- archives --------------------------------------------------------------------------------------
NAMES = [digit * 64 for digit in "0af"]


@pytest.fixture
def archive(here, tmp_path, monkeypatch):
    """An archive of two kernels and a call, and an empty cache."""
    for part, name, data in (("entries", NAMES[0], b"a kernel"), ("entries", NAMES[1], bytes(9999)),
                             ("calls", NAMES[2], b"{}"), ("emulator", NAMES[0], b"a library"),
                             ("entries", "name", b"of a test")):
        cache.keep(part, name, data)
    (here / "entries" / NAMES[2]).write_bytes(b"damaged")
    (here / "entries" / ".new-1234").write_bytes(b"half of")
    assert cache.export_to(tmp_path / "kernels.zip") == 3
    monkeypatch.setenv("CUTEBLAS_CACHE_DIR", str(tmp_path / "another"))
    return tmp_path / "kernels.zip"


def test_archives_carry_kernels_and_calls(archive, tmp_path):
    with zipfile.ZipFile(archive) as found:
        assert found.namelist() == [f"entries/{NAMES[0]}", f"entries/{NAMES[1]}",
                                    f"calls/{NAMES[2]}"]
    assert archive.stat().st_size < 2000                            # compressed
    assert cache.import_from(archive) == 3 == cache.import_from(archive)
    assert cache.find("entries", NAMES[0]) == b"a kernel" and cache.find("calls", NAMES[2]) == b"{}"
    assert (cache.usage("entries").files, cache.usage("calls").files,
            cache.usage("emulator").files) == (2, 1, 0)
    assert cache.export_to(tmp_path / "again.zip") == 3
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def rewritten(archive, name, data):
    with zipfile.ZipFile(archive, "a") as more, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)                # of a name that is there twice
        more.writestr(name, data)


def valid(name, data=b"data"):
    return data + cache._digest(name, data)


# more than the capacity
@pytest.mark.parametrize(
    "wrong",
    [
        *[
            lambda file, name=name: rewritten(file, name, valid(name.rpartition("/")[2]))
            for name in (
                f"../{NAMES[0]}", f"entries/../../{NAMES[0]}", f"/entries/{NAMES[0]}",
                f"emulator/{NAMES[0]}", "entries/", f"entries/{NAMES[0]}/{NAMES[0]}",
                f"entries/{NAMES[0]}0", f"entries/{NAMES[0]}\n", f"entries/{NAMES[1].upper()}",
                "setup.py", f"entries\\{NAMES[0]}", f"x\nentries/{NAMES[0]}"
            )
        ],
        lambda file: rewritten(file, f"entries/{NAMES[2]}", valid(NAMES[0])),
        lambda file: rewritten(file, f"entries/{NAMES[2]}", b""),
        lambda file: rewritten(file, f"entries/{NAMES[0]}", valid(NAMES[0])[:-1]),
        lambda file: file.write_bytes(file.read_bytes()[:-30]),
        lambda file: file.write_bytes(b""),
        # another compression
        lambda file: file.write_bytes(file.read_bytes().replace(b"\x08\x00", b"\x63\x00")),
        lambda file: file.write_bytes(file.read_bytes()[:120] + bytes(9) + file.read_bytes()[129:]),
        lambda file: rewritten(file, f"entries/{NAMES[2]}", valid(NAMES[2], bytes(2 << 20)))
    ]
)
def test_of_a_wrong_archive_nothing_is_imported(archive, monkeypatch, capsys, wrong):
    monkeypatch.setitem(cache.CAPACITIES, "entries", 1 << 20)
    wrong(archive)
    with pytest.raises(
        ValueError,
        match=f"^nothing was imported from {re.escape(str(archive))}: it was damaged, holds more"
    ):
        cache.import_from(archive)
    assert not cache.cache_directory().exists()
    assert cli.main(["cache", "import",
                     str(archive)]) == 2 and capsys.readouterr().err.count("\n") == 1


def test_the_oldest_files_go_for_those_of_an_archive(archive, monkeypatch):
    cache.keep("entries", NAMES[2], bytes(9000))
    os.utime(cache.cache_directory() / "entries" / NAMES[2], (1, 1))
    monkeypatch.setitem(cache.CAPACITIES, "entries", 12000)
    assert cache.import_from(archive) == 3
    assert cache.find("entries", NAMES[2]) is None and cache.find("entries",
                                                                  NAMES[1]) == bytes(9999)


def test_an_archive_needs_a_cache_that_can_be_written(archive, here, monkeypatch, capsys):
    monkeypatch.setattr(cache, "_write", lambda
                        *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        cache.import_from(archive)
    assert cli.main(["cache", "import",
                     str(archive)]) == 1 and "No space left" in capsys.readouterr().err
    assert cli.main(["cache", "import",
                     str(here / "missing.zip")]) == 1 and "No such file" in capsys.readouterr().err


def test_the_command_exports_what_one_card_takes(here, tmp_path, capsys):
    new, old = bytearray(b"\x7fELF\2\1\1\x41\x08".ljust(64, b"\0")), bytearray(b"\x7fELF\2\1\1\x33\x07".ljust(64, b"\0"))
    for name, form, flags in ((NAMES[0], new, b"\4\x5a\0\6"), (NAMES[1], old, b"\x5a\5\x5a\0"),
                              (NAMES[2], new, b"\2\x64\0\6")):
        form[48:52] = flags                            # of CUDA 13 and 12 for sm_90, and for sm_100
        cache.keep("entries", name, bytes(form))
    cache.keep("calls", NAMES[0], b'{"arch": "sm_90", "sm": 100}')
    for device, count in ((["--device", "h200"], 3), (["--device", "b200"], 1),
                          (["--device", "a100"], 0), ([], 4)):
        assert cli.main(["cache", "export", str(tmp_path / "kernels.zip"), *device]) == 0
        assert capsys.readouterr().out == f"files exported: {count}\n"
    assert cli.main(["cache", "import", str(tmp_path / "kernels.zip")]) == 0 and capsys.readouterr().out == "files imported: 4\n"
    for wrong, said in ((["export"], "export needs a FILE"), (["import"], "import needs a FILE"),
                        (["export", "x.zip", "--device", "x"], "device is one of")):
        assert cli.main(["cache", *wrong]) == 2 and said in capsys.readouterr().err
    assert cli.main(["cache", "export",
                     str(tmp_path)]) == 1 and "Is a directory" in capsys.readouterr().err

"""CuPy's and NumPy's own products, served by this package."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any

from .._forks import surviving
from ..engines.placement import start_soon
from ..engines.settings import answered_libraries

_VARIABLE = "CUTEBLAS_INSTALL"

_lock = surviving(RLock())
_waiting: list[Callable[[], object]] = []       # called when the hooks in CuPy are in their places
_MODULES = {"cupy": f"{__package__}.hooks", "numpy": f"{__package__}.numpy_hooks"}


def install(*, cupy: bool | None = None, numpy: bool = False) -> None:
    """Run CuPy's products on the kernels, or NumPy's through this package, in all threads, until
    :func:`uninstall`.

    Programs need no change. In CuPy, ``install`` replaces four attributes; modules that imported
    ``matmul`` from it earlier are served too. In NumPy, it replaces the loops of ``matmul``
    (``a @ b``), ``vecdot``, ``matvec`` and ``vecmat`` under all their names, and attributes such as
    ``numpy.dot`` and ``numpy.einsum``; a module that imported these by name earlier keeps NumPy's.
    A call that cuteblas does not take goes to the original, and ``cuteblas.stats`` counts it with
    the reason. The first installation in a process sends a small product through every hook and
    compares it with NumPy's. Installing again changes nothing.

    Parameters
    ----------
    cupy : bool, optional
        Install into CuPy; the default is to do so unless ``numpy`` is true.
    numpy : bool
        Install into NumPy. Calls on NumPy arrays then run as calls of this package's functions;
        ``cuteblas.backend`` decides where.

    Returns
    -------
    None
        CuPy or NumPy is changed.

    Raises
    ------
    RuntimeError
        If this is not possible here; the message says why, and both libraries are unchanged.
    ValueError
        If neither library is asked for.

    Examples
    --------
    >>> cuteblas.install(numpy=True)
    >>> c = np.eye(3) @ np.eye(3)
    >>> cuteblas.uninstall()
    """
    switches = _asked_for(cupy, numpy)
    with _lock:
        _put_in_place_and_check(switches)
        for switch in switches:
            switch.everywhere, switch.pending, switch.refused = True, False, None
    if numpy:
        start_soon()


@contextmanager
def enabled(*, cupy: bool | None = None, numpy: bool = False) -> Iterator[None]:
    """Run CuPy's products on the kernels, or NumPy's through this package, inside a ``with`` block,
    for this thread or task.

    Other threads are not affected, not even threads that the block starts; use :func:`install` for
    those. Blocks may be nested.

    Parameters
    ----------
    cupy, numpy : bool
        As in :func:`install`.

    Returns
    -------
    context manager
        For a ``with`` block.

    Raises
    ------
    RuntimeError, ValueError
        As :func:`install`.

    Examples
    --------
    >>> a = np.ones((3, 2))
    >>> with cuteblas.enabled(numpy=True):
    ...     c = a.T @ a
    """
    switches = _asked_for(cupy, numpy)
    with _lock:
        _put_in_place_and_check(switches)
        for switch in switches:
            switch.blocks += 1
    tokens = [switch.here.set(True) for switch in switches]
    try:
        yield
    finally:
        for switch, token in zip(switches, tokens, strict=True):
            switch.here.reset(token)
        with _lock:
            for switch in switches:
                switch.blocks -= 1
            _release()


def uninstall() -> None:
    """Undo :func:`install` and ``CUTEBLAS_INSTALL``: restore every attribute and loop of CuPy and
    NumPy.

    They are restored when no ``with enabled()`` block is open in any thread. Without an earlier
    :func:`install`, nothing happens.

    Returns
    -------
    None
        CuPy and NumPy are as they were.

    Examples
    --------
    >>> cuteblas.uninstall()
    """
    with _lock:
        _AT_IMPORT.leave()
        for switch in _imported().values():
            switch.everywhere = switch.pending = False
        _release()


def installed(library: str = "cupy") -> bool:
    """Whether :func:`install` is in force, or will be from CuPy's import or first product on."""
    switch = _imported().get(library)
    return (library == "cupy" and _AT_IMPORT in sys.meta_path) or (
        switch is not None and (switch.pending or switch.everywhere))


def _answered() -> list[str]:
    used = _imported()
    return [name for library, name in (("cupy", "CuPy"), ("numpy", "NumPy"))
            if installed(library) or (library in used and used[library].here.get())]


answered_libraries.append(_answered)


def install_with_cupy(then: Callable[[], object] | None = None) -> None:
    """Install as soon as CuPy is imported, without importing it, and ``then`` call."""
    # The first product checks the hooks, so CuPy touches no device before the program does. If the
    # check fails, a RuntimeWarning says why, and CuPy goes on alone.
    if then is not None:
        _waiting.append(then)
    if "cupy" in sys.modules:
        _put_in_place()
    elif _AT_IMPORT not in sys.meta_path:
        sys.meta_path.insert(0, _AT_IMPORT)


def obey_environment() -> None:
    """Install what ``CUTEBLAS_INSTALL`` names: ``cupy`` or ``1`` with CuPy, ``numpy`` now."""
    wish = os.environ.get(_VARIABLE, "")
    wishes = {"cupy" if each == "1" else each for each in wish.replace(" ", "").split(",")} - {
        "",
        "0"
    }
    if not wishes <= _MODULES.keys():
        warnings.warn(
            f"{_VARIABLE} is {wish!r}; cupy (or 1) installs cuteblas into CuPy, numpy into NumPy, cupy,numpy into both, "
            f"0 into none",
            RuntimeWarning,
            stacklevel=2
        )
        return
    if "cupy" in wishes:
        install_with_cupy()
    if "numpy" in wishes:
        try:
            install(numpy=True)
        except RuntimeError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def _asked_for(cupy: bool | None, numpy: bool) -> list[Any]:
    """The libraries' switches. CuPy comes first, without the lock: :class:`_AtImport` may wait."""
    asked: list[Any] = []
    if cupy if cupy is not None else not numpy:
        from ..runtime.errors import MissingDependency, require

        try:
            require("cupy")
            asked.append(import_module(_MODULES["cupy"]).SWITCH)
        except Exception as error:
            from ..runtime import why_unavailable

            raise MissingDependency(
                f"cuteblas cannot be installed: {why_unavailable() or error}"
            ) from error
    if numpy:
        asked.append(import_module(_MODULES["numpy"]).SWITCH)
    if not asked:
        raise ValueError(
            "cupy=False without numpy=True names no library: install into CuPy, NumPy or both"
        )
    return asked


def _imported() -> dict[str, Any]:
    return {library: sys.modules[name].SWITCH for library, name in _MODULES.items()
            if name in sys.modules}


def _put_in_place_and_check(switches: Iterable[Any]) -> None:
    try:
        for switch in switches:
            switch.link()
            if not switch.checked:
                switch.check()
    except BaseException:
        _release()
        raise


def _put_in_place() -> None:
    try:
        switch = import_module(_MODULES["cupy"]).SWITCH
    except Exception as error:
        warnings.warn(f"cuteblas cannot be installed: {error}", RuntimeWarning, stacklevel=2)
        return
    with _lock:
        switch.link()
        switch.pending = not switch.everywhere
    while _waiting:
        _waiting.pop()()


def _release() -> None:
    for library, switch in _imported().items():
        if not (switch.blocks or installed(library)):
            switch.unlink()


class _AtImport:
    """Finds CuPy where other finders do, and is notified when its module has been executed."""

    def find_spec(self, name: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        """CuPy's specification by the other finders, with a loader that notifies this one."""
        if name != "cupy":
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path
                 if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            self._listen(spec.loader)
        return spec

    def _listen(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            del loader.exec_module
            if self in sys.meta_path:
                self.leave()
                _put_in_place()

        loader.exec_module = exec_module

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


_AT_IMPORT = _AtImport()

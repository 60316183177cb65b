"""Transparent products: CuPy's own ``@``, ``matmul``, ``dot`` and ``tensordot``, served by the kernels."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any

from .._forks import surviving

__all__ = ["enabled", "install", "install_with_cupy", "installed", "obey_environment", "uninstall"]

_VARIABLE = "CUTEBLAS_INSTALL"

_lock = surviving(RLock())
_blocks = 0             # how many ``with enabled()`` are open, in all threads


def install() -> None:
    """Let CuPy's products run on the kernels, in all threads, until :func:`uninstall`.

    Four attributes of CuPy are replaced; programs need no change, and modules that have imported ``matmul`` from CuPy before are
    served too. A call that the kernels do not take goes to what was there before, and ``cuteblas.stats`` counts it with the reason.
    The first time in a process, a small product is sent through every hook and compared with NumPy's. Installing twice is the same
    as once.

    Returns
    -------
    None
        CuPy is changed.

    Raises
    ------
    RuntimeError
        If the kernels cannot serve CuPy here; the message says why, and CuPy is as it was.

    Examples
    --------
    >>> cuteblas.install()  # doctest: +SKIP
    >>> c = cupy.matmul(a, b)  # doctest: +SKIP
    >>> cuteblas.uninstall()
    """
    hooks = _imported_hooks()
    with _lock:
        _put_in_place_and_check(hooks)
        hooks.SWITCH.everywhere, hooks.SWITCH.pending, hooks.SWITCH.refused = True, False, None


@contextmanager
def enabled() -> Iterator[None]:
    """Let CuPy's products run on the kernels inside a ``with`` block, for this thread or task.

    Other threads are not affected, and neither are threads that are started inside the block: :func:`install` is for those. Blocks
    may be nested.

    Returns
    -------
    context manager
        For a ``with`` block.

    Raises
    ------
    RuntimeError
        As :func:`install`.

    Examples
    --------
    >>> with cuteblas.enabled():  # doctest: +SKIP
    ...     c = a.T @ a
    """
    global _blocks
    hooks = _imported_hooks()
    with _lock:
        _put_in_place_and_check(hooks)
        _blocks += 1
    token = hooks.HERE.set(True)
    try:
        yield
    finally:
        hooks.HERE.reset(token)
        with _lock:
            _blocks -= 1
            _release(hooks)


def uninstall() -> None:
    """Undo :func:`install`, ``CUTEBLAS_INSTALL`` included: every attribute of CuPy is again what it was, once no ``with enabled()``
    is open in any thread. Without :func:`install` before, nothing happens.

    Returns
    -------
    None
        CuPy is as it was.

    Examples
    --------
    >>> cuteblas.uninstall()
    """
    with _lock:
        _AT_IMPORT.leave()
        hooks: Any = sys.modules.get(f"{__package__}.hooks")
        if hooks is not None:
            hooks.SWITCH.everywhere = hooks.SWITCH.pending = False
            _release(hooks)


def installed() -> bool:
    """Whether :func:`install` is in force, or will be from CuPy's import or first product on."""
    hooks: Any = sys.modules.get(f"{__package__}.hooks")
    return _AT_IMPORT in sys.meta_path or (hooks is not None and (hooks.SWITCH.everywhere or hooks.SWITCH.pending))


def install_with_cupy(then: Callable[[], object] | None = None) -> None:
    """Install as soon as CuPy is imported, without importing it.

    The hooks are put in place then, and the first product checks them: CuPy is not made to touch a device before the program does.
    If the check fails, a :class:`RuntimeWarning` says why and CuPy goes on alone.

    Parameters
    ----------
    then : callable, optional
        Called when the hooks are in their places.
    """
    if then is not None:
        _AT_IMPORT.then.append(then)
    if "cupy" in sys.modules:
        _put_in_place()
    elif _AT_IMPORT not in sys.meta_path:
        sys.meta_path.insert(0, _AT_IMPORT)


def obey_environment() -> None:
    """Install with CuPy if the variable ``CUTEBLAS_INSTALL`` is 1."""
    wish = os.environ.get(_VARIABLE, "")
    if wish == "1":
        install_with_cupy()
    elif wish not in ("", "0"):
        warnings.warn(f"{_VARIABLE} is {wish!r}; 1 installs cuteblas into CuPy, 0 does not", RuntimeWarning, stacklevel=2)


def _imported_hooks() -> Any:
    """The module of the hooks, imported if need be. CuPy is imported first and without the lock: its import may be what
    :class:`_AtImport` waits for, in this thread or in another one."""
    try:
        import_module("cupy")
        return import_module(f"{__package__}.hooks")
    except (ImportError, AttributeError) as error:
        from ..runtime import why_unavailable

        raise RuntimeError(f"cuteblas cannot be installed: {why_unavailable() or error}") from error


def _put_in_place_and_check(hooks: Any) -> None:
    _link(hooks)
    if not hooks.SWITCH.checked:
        try:
            hooks.check()
        except BaseException:
            _release(hooks)
            raise


def _put_in_place() -> None:
    """Hooks that the first product checks."""
    try:
        hooks: Any = import_module(f"{__package__}.hooks")
    except (ImportError, AttributeError) as error:
        warnings.warn(f"cuteblas cannot be installed: {error}", RuntimeWarning, stacklevel=2)
        return
    with _lock:
        _link(hooks)
        hooks.SWITCH.pending = not hooks.SWITCH.everywhere
    while _AT_IMPORT.then:
        _AT_IMPORT.then.pop()()


def _link(hooks: Any) -> None:
    for patch in hooks.PATCHES:
        patch.link()


def _release(hooks: Any) -> None:
    """Remove the hooks if they are no longer needed."""
    if not (_blocks or hooks.SWITCH.everywhere or hooks.SWITCH.pending):
        for patch in hooks.PATCHES:
            patch.unlink()


class _AtImport(MetaPathFinder):
    """Finds CuPy where the other finders find it, and is notified when its module has been executed.

    Attributes
    ----------
    then : list of callable
        Whom else to tell.
    """

    def __init__(self) -> None:
        self.then: list[Callable[[], object]] = []

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification of CuPy that the other finders give, with a loader that notifies this finder."""
        if name != "cupy":
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:
                    self._listen(spec.loader)
                return spec
        return None

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
        """Stop waiting."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


_AT_IMPORT = _AtImport()

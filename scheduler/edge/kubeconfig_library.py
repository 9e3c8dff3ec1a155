"""The part of kubernetes-asyncio that reads kubeconfig and in-cluster settings, without the rest of it.

Importing the package brings every API and every model with it: 0.7 s of CPU and 40 MB for each start and each command,
of which nothing is used here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = "kubernetes_asyncio"
UNUSED = tuple(f"{PACKAGE}.{name}" for name in ("client.api", "client.models", "dynamic", "stream", "utils", "watch"))


class _Empty(ModuleType):
    """A module that has whatever is asked of it, and nothing in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Without(MetaPathFinder, Loader):
    """Finds empty modules in place of those in UNUSED."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in UNUSED):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def _loaded() -> list[str]:
    return [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]


@contextmanager
def _reduced() -> Iterator[None]:
    """Imports of the package inside give a reduced one; whoever imports it afterwards gets the whole one."""
    finder = _Without()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in _loaded():
            del sys.modules[name]


def kubeconfig_library() -> tuple[Any, Any]:
    """A fresh ``kubernetes_asyncio.client.Configuration`` and the module ``kubernetes_asyncio.config``.

    A package that is imported already is used as it is; one that cannot do without the rest is imported whole.
    """
    if not _loaded():
        try:
            with _reduced():
                return _parts()
        except (ImportError, AttributeError, TypeError):
            pass  # another version of the package, built otherwise
    return _parts()


def _parts() -> tuple[Any, Any]:
    config = import_module(f"{PACKAGE}.config")
    import_module(f"{PACKAGE}.config.incluster_config")
    # Not by calling the class: that would give a copy of a default that somebody else may have set.
    return type.__call__(import_module(f"{PACKAGE}.client").Configuration), config

"""Reads the lock files that pip-compile writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME, DEVELOPMENT = ROOT / "requirements-runtime.lock", ROOT / "requirements.lock"
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)\s*(?P<rest>.*)$")
_HASH = re.compile(r"--hash=(\w+):([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Pinned:
    """One line of a lock file. ``name`` is normalised; ``hashes``: (algorithm, hex) of every file that may be used."""

    name: str
    version: str
    hashes: tuple[tuple[str, str], ...]


class LockError(ValueError):
    """A lock file has a line that pins nothing."""


def normalised(name: str) -> str:
    """Package names compare without case, and with ``-`` for ``_`` and ``.``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> list[Pinned]:
    """Every pin, in order. Raises LockError for a line that is no pin with hashes, OSError."""
    return list(_pins(path))


def _pins(path: Path) -> Iterator[Pinned]:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        line = line.strip()  # noqa: PLW2901  # the bare line goes on
        if not line or line.startswith("#"):
            continue
        found = _REQUIREMENT.match(line)
        hashes = tuple(_HASH.findall(line))
        if found is None or not hashes:
            raise LockError(f"{path.name}: {line.split(' ', 1)[0]}: not pinned to a version with hashes")
        yield Pinned(normalised(found["name"]), found["version"], hashes)

"""The lock files: everything is pinned with hashes, nothing is missing, and nothing is installed without them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from supply.lock import DEVELOPMENT, ROOT, RUNTIME, LockError, normalised, read_lock


@pytest.mark.parametrize("lock", [RUNTIME, DEVELOPMENT])
def test_every_package_is_pinned_with_hashes(lock: Path) -> None:
    """One version each, sha256 of every file that may be used, no URL and no editable."""
    pins = read_lock(lock)
    assert len(pins) > 20
    assert len({pin.name for pin in pins}) == len(pins)
    for pin in pins:
        assert {kind for kind, _ in pin.hashes} == {"sha256"}
        assert all(re.fullmatch(r"[0-9a-f]{64}", value) for _, value in pin.hashes)
    text = lock.read_text()
    assert "://" not in text
    assert "-e " not in text


def test_what_ships_is_what_is_tested() -> None:
    """The runtime's pins are the development's."""
    development = {pin.name: pin for pin in read_lock(DEVELOPMENT)}
    for pin in read_lock(RUNTIME):
        assert development[pin.name].version == pin.version


def test_every_dependency_is_locked() -> None:
    """What pyproject.toml asks for is in the lock files: runtime in both, the rest in the development's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime, development = ({pin.name for pin in read_lock(lock)} for lock in (RUNTIME, DEVELOPMENT))
    assert {_name(text) for text in project["dependencies"]} <= runtime
    assert {_name(text) for text in project["optional-dependencies"]["dev"]} <= development


def _name(requirement: str) -> str:
    return normalised(re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0])


@pytest.mark.parametrize("file", ["Makefile", "manifests/overlays/kind/Dockerfile"])
def test_locked_packages_are_installed_with_their_hashes(file: str) -> None:
    """Each installation from a lock file demands hashes; each of our own wheel takes nothing else along."""
    installs = [line for line in (ROOT / file).read_text().splitlines() if re.search(r"\bpip install\b", line)]
    assert len(installs) >= 2
    for line in installs:
        assert "--require-hashes" in line or "--no-deps" in line or "pip-tools" in line, line


@pytest.mark.parametrize("line", ["aiohttp", "aiohttp>=3", "aiohttp==3.1", "git+https://example.com/x", "-e ."])
def test_a_line_without_version_and_hash_is_refused(tmp_path: Path, line: str) -> None:
    """The reader itself: a lock file that locks nothing is not taken for one."""
    lock = tmp_path / "some.lock"
    lock.write_text(f"# made by hand\n{line}\n")
    with pytest.raises(LockError, match="not pinned to a version with hashes"):
        read_lock(lock)

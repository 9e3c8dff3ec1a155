"""The build of the control plane: once, atomically, loudly when impossible. A shell script plays Go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from e2e.controlplane import build
from e2e.controlplane.fixtures import require_binaries

FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.8; exit 0; fi
[ -e "$0.broken" ] && echo "no such package" && exit 1
while [ "$1" != -o ]; do shift; done
echo "built by a fake" > "$2"
echo "$2" >> "$0.calls"
"""


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A go in PATH that writes a file for each binary and records it; an empty cache folder."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/bin:/usr/bin")
    monkeypatch.setenv("DRA_SCHEDULER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return go


def module(folder: Path, sums: str) -> build.Target:
    """A Go module with one binary."""
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text("module m\n")
    (folder / "go.sum").write_text(sums)
    return build.Target("tool", ".", folder)


def test_everything_is_built_once(fake_go: Path) -> None:
    """The first call builds five binaries, the second does nothing and gives the same folder."""
    first = build.control_plane_binaries()
    assert sorted(path.name for path in first.iterdir()) == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ]
    calls = Path(f"{fake_go}.calls").read_text()
    assert build.control_plane_binaries() == first
    assert Path(f"{fake_go}.calls").read_text() == calls


def test_other_sums_are_another_folder(fake_go: Path, tmp_path: Path) -> None:
    """Binaries of other module sums are never taken for ours."""
    one = build.build("tools", [module(tmp_path / "m", "a")])
    two = build.build("tools", [module(tmp_path / "m", "b")])
    assert one != two
    assert build.build("tools", [module(tmp_path / "m", "a")]) == one


def test_a_failed_build_leaves_nothing(fake_go: Path, tmp_path: Path) -> None:
    """No folder, no remains, and the compiler's words in the error; the next try starts anew."""
    broken = Path(f"{fake_go}.broken")
    broken.touch()
    with pytest.raises(build.BuildError, match="no such package"):
        build.build("tools", [module(tmp_path / "m", "a")])
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tools.lock"]
    broken.unlink()
    assert (build.build("tools", [module(tmp_path / "m", "a")]) / "tool").exists()


def test_ready_binaries_win(fake_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KUBEBUILDER_ASSETS is used as it is and nothing is built."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/opt/assets")
    assert build.control_plane_binaries() == Path("/opt/assets")
    assert not Path(f"{fake_go}.calls").exists()


def test_without_go_suites_are_skipped_and_fail_in_ci(fake_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Go skips and says why; CI=true makes the same a failure; the command exits with 3."""
    fake_go.unlink()
    monkeypatch.setenv("PATH", str(fake_go.parent))
    assert shutil.which("go") is None
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no go in PATH"):
        require_binaries()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no go in PATH"):
        require_binaries()
    assert build.main([]) == build.EXIT_NO_GO

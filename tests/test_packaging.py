"""The wheel: what is in it, and that it works without the source tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="wheel")
def _wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tracked sources so that no build folder appears in the tree."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for name in ("scheduler", "plugins", "manifests"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module", name="python")
def _python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that holds the wheel; its dependencies are those of this environment,
    lent by a path file, so that nothing is downloaded. The lent folder's editable link to the tree is not followed.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    # Appended to sys.path as plain text: path files inside the lent folder are not processed.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the environment's interpreter far from the source tree."""
    return subprocess.run(
        [str(python), *arguments], cwd=cwd, env={}, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel: Path) -> None:
    """Sources, type markers, the demo's data and the licence; no tests, no manifests."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"scheduler", "plugins", wheel.name.split("-py3")[0] + ".dist-info"}
    assert {"scheduler/py.typed", "plugins/py.typed"} <= set(names)
    demo = sorted(path.name for path in (ROOT / "manifests/examples/demo").glob("*.yaml"))
    assert sorted(name.split("/")[-1] for name in names if name.startswith("scheduler/cli/data/")) == demo
    pages = sorted(f"scheduler/edge/static/{path.name}" for path in (ROOT / "scheduler/edge/static").iterdir())
    assert sorted(name for name in names if name.startswith("scheduler/edge/static/")) == pages
    assert "scheduler/edge/static/index.html" in pages
    for name in ("LICENSE", "NOTICE"):
        assert any(entry.endswith(f"licenses/{name}") for entry in names)
    sources = {str(path.relative_to(ROOT)) for top in ("scheduler", "plugins") for path in (ROOT / top).rglob("*.py")}
    assert sources <= set(names)


def test_the_commands_work_from_the_wheel(python: Path, tmp_path: Path) -> None:
    """Both console scripts start, and the code comes from the environment, not from the tree."""
    for script in ("dra-scheduler", "kubectl-dra"):
        done = run(python, str(python.parent / script), "version", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("dra-scheduler ")
    where = run(python, "-c", "import scheduler; print(scheduler.__file__)", cwd=tmp_path)
    assert where.stdout.startswith(str(python.parent.parent))


def test_every_module_imports_from_the_wheel(python: Path, tmp_path: Path) -> None:
    """No module needs a file that only the source tree has."""
    code = """
import importlib, pkgutil, plugins, scheduler
for package in (scheduler, plugins):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""
    done = run(python, "-W", "error", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_dashboards_files_are_read_from_the_wheel(python: Path, tmp_path: Path) -> None:
    """As package data, without the tree."""
    code = "from scheduler.edge.dashboard import read_assets; print(*sorted(read_assets()))"
    done = run(python, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"index.html", "app.js", "style.css"} <= set(done.stdout.split())


def test_the_version_is_written_once(wheel: Path) -> None:
    """pyproject.toml and scheduler.__version__ agree."""
    from scheduler import __version__

    assert wheel.name.split("-")[1] == __version__

"""The import contracts: they hold, and each of them notices a breach."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BREACHES = {
    "Imports point inwards": ("scheduler/cel/errors.py", "import scheduler.state.nodes"),
    "The core and the plugins decide": ("scheduler/dra/pools.py", "import os"),
    "cel-python is used in scheduler.cel alone": ("scheduler/edge/client.py", "import celpy"),
    "Plugins see framework": ("plugins/node_name.py", "import scheduler.cel.errors"),
    "kopf is used in scheduler.guard.frame alone": ("scheduler/guard/reads.py", "import kopf"),
    "Only the composition root imports plugins": ("scheduler/cli/version.py", "import plugins.node_name"),
}


def lint(folder: Path) -> tuple[int, str]:
    """Exit code and report of import-linter over the packages in ``folder``, long lines joined."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_every_contract_notices_a_breach(tmp_path: Path) -> None:
    """One forbidden import per contract, put into a copy of the tree, breaks exactly that contract's promise."""
    for name in ("scheduler", "plugins"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    code, report = lint(tmp_path)
    assert code == 0, report
    assert report.count("KEPT") == len(BREACHES)
    for file, line in BREACHES.values():
        with (tmp_path / file).open("a") as source:
            source.write(f"\n{line}\n")
    code, report = lint(tmp_path)
    assert code == 1
    assert f"{len(BREACHES)} broken" in report, report
    for contract in BREACHES:
        assert contract in report

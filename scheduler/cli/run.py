"""``dra-scheduler run``: read the flags and the configuration file, hand over to the composition root."""

from __future__ import annotations

import argparse
from pathlib import Path

from scheduler.cli.options import Arguments
from scheduler.cli.run_options import add_run_arguments, run_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of kube-scheduler that are built, and ``--verify-caches``."""
    add_run_arguments(parser)


def execute(arguments: Arguments) -> int:
    """Run until a signal (0) or until the Lease is lost (1)."""
    options = run_options(arguments, lambda path: Path(path).read_text(encoding="utf-8"))
    # Imported here: bad flags and files are told at once, without loading the scheduler.
    from scheduler.app import run

    return run(options)

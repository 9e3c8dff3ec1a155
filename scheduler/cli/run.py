"""``dra-scheduler run``: read the flags and the configuration file, hand over to the composition root."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from scheduler.cli import version
from scheduler.cli.options import Arguments
from scheduler.cli.run_options import add_run_arguments, run_options
from scheduler.config.written import document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of kube-scheduler, and ``--verify-caches``."""
    add_run_arguments(parser)


def execute(arguments: Arguments) -> int:
    """Run until a signal (0) or until the Lease is lost (1); or write the configuration and leave (0)."""
    if arguments.version:
        return version.execute(arguments)
    options = run_options(arguments, lambda path: Path(path).read_text(encoding="utf-8"))
    if arguments.write_config_to:
        from scheduler.app.profiles import check_config

        check_config(options.config, options.feature_gates)
        text = yaml.safe_dump(document(options.config, secrets=True), sort_keys=False)
        Path(arguments.write_config_to).write_text(text, encoding="utf-8")
        return 0
    # Imported here: bad flags and files are told at once, without loading the scheduler.
    from scheduler.app import run

    return run(options)

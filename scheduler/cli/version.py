"""``dra-scheduler version``."""

from __future__ import annotations

import argparse

from scheduler import __version__
from scheduler.cli.options import Arguments

KUBERNETES_VERSION = "v1.37.2"
"""The kube-scheduler whose behaviour is followed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No flags."""


def execute(arguments: Arguments) -> int:
    """Print our version and upstream's."""
    print(f"dra-scheduler {__version__} (follows kube-scheduler {KUBERNETES_VERSION})")
    return 0

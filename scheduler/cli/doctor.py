"""``dra-scheduler doctor``: devices given twice, leaked claims and other damage that is already there, and its cure.

Exit codes: 0 nothing but notes, or all of it was repaired; 2 errors or warnings are left; 1 the command failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.cli.options import Arguments, UsageError, add_flag, parse_seconds
from scheduler.cli.sources import add_source_flags, painter, say, write_data

if TYPE_CHECKING:
    from scheduler.app.doctor import Round
    from scheduler.explain.text import Paint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to read the cluster, and whether to repair."""
    add_flag(parser, "fix", default=False, text="repair what is safe; without --yes only tried (server-side dry run)")
    add_flag(parser, "yes", default=False, text="with --fix: write")
    parser.add_argument(
        "--settle",
        type=parse_seconds,
        metavar="DURATION",
        help="how long every finding must stay true before it is told (default: by check, 20s at most; 0s: one look)",
    )
    add_source_flags(parser)


def execute(arguments: Arguments) -> int:
    """0 or 2, see above."""
    from scheduler.app.doctor import from_cluster, from_files
    from scheduler.config import load_config

    if arguments.yes and not arguments.fix:
        raise UsageError("--yes says that --fix may write; give --fix, too")
    if arguments.files and (arguments.fix or arguments.kubeconfig):
        raise UsageError(f"-f and {'--fix' if arguments.fix else '--kubeconfig'} exclude each other")
    config = load_config(Path(arguments.config).read_text(encoding="utf-8") if arguments.config else "")
    if arguments.files:
        found = from_files(arguments.files, config)
    else:
        dry = not arguments.yes
        found = from_cluster(arguments.kubeconfig, config, settle_s=arguments.settle, fix=arguments.fix, dry=dry)
    if arguments.output != "text":
        write_data(found, arguments.output)
    else:
        for line in _lines(found, painter()):
            say(line)
    return 2 if found.left else 0


def _lines(found: Round, paint: Paint) -> Iterator[str]:
    from scheduler.explain.doctor_text import diagnosis_lines

    yield from diagnosis_lines(found.diagnosis, paint)
    if found.outcomes is None:
        return
    yield ""
    if not found.outcomes:
        yield "nothing here can be repaired safely"
    for outcome in found.outcomes:
        style = "good" if outcome.result in ("done", "would be done") else "bad"
        yield paint(style, outcome.result) + f": {outcome.does}" + (f": {outcome.why}" if outcome.why else "")
    if any(outcome.result == "would be done" for outcome in found.outcomes):
        yield paint("faint", "dry run: the API server would take these writes; --fix --yes does them")

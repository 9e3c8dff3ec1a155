"""``dra-scheduler whatif``: what would be placed where, and why not, if the cluster were changed.

Exit codes: 0 no Pod loses its place and every added one gets one, 2 one does not, 1 the command failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scheduler.cli.options import Arguments, UsageError, add_flag
from scheduler.cli.sources import add_source_flags, painter, write_data
from scheduler.cli.whatif_edits import add_edit_flags, edit_entries

_BAR_WIDTH = 30
_BAR_EVERY_S = 0.1
_BAR_AFTER_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Edits, how far to go, and where to read the cluster."""
    add_edit_flags(parser)
    add_flag(
        parser,
        "until-stable",
        default=False,
        text="go on until nothing changes: preempted Pods leave, woken ones are tried again",
    )
    parser.add_argument("-n", "--namespace", default="default", metavar="NAMESPACE",
                        help="of objects that name none (default: default)")  # fmt: skip
    add_source_flags(parser)


def execute(arguments: Arguments) -> int:
    """0 or 2, see above."""
    from scheduler.app.whatif import Question, answer, objects_from_cluster, objects_from_files
    from scheduler.config import SchedulerConfig, load_config
    from scheduler.config.gates import parse_feature_gates
    from scheduler.dra.features import Features
    from scheduler.edge.dumps import read_dumps
    from scheduler.whatif.edits import decode_edits
    from scheduler.whatif.text import difference_lines

    if arguments.files and arguments.kubeconfig:
        raise UsageError("-f and --kubeconfig exclude each other")

    def config_of(path: str) -> SchedulerConfig:
        return load_config(Path(path).read_text(encoding="utf-8") if path else "")

    def read(path: str) -> Iterable[Any]:
        return read_dumps([path])

    entries = edit_entries(arguments, read)
    edits = decode_edits(entries, namespace=arguments.namespace)
    config = config_of(arguments.config)
    features = Features.from_gates(parse_feature_gates(arguments.feature_gates))
    if arguments.files:
        objects = objects_from_files(arguments.files, features)
    else:
        objects = objects_from_cluster(arguments.kubeconfig, features)
    question = Question(objects, config, features, edits, time.time(), arguments.until_stable, config_of, read)
    with_bar = Bar(time.monotonic, sys.stderr) if sys.stderr.isatty() else None
    found = answer(question, with_bar.tell) if with_bar else answer(question)
    if with_bar:
        with_bar.clear()
    if arguments.output != "text":
        write_data(found, arguments.output)
    else:
        for line in difference_lines(found, painter()):
            print(line)
    return 2 if found.troubled else 0


class Bar:
    """A line on a terminal that says how far it is; it appears when a run takes longer than a second.

    ``clock``: seconds, monotonic. ``out``: where it is drawn.
    """

    def __init__(self, clock: Callable[[], float], out: Any) -> None:
        self._clock, self._out = clock, out
        self._began = clock()
        self._drawn = 0.0
        self._shown = False

    def tell(self, what: str, attempts: int, waiting: int) -> None:
        """Draw, at most ten times a second."""
        now = self._clock()
        if now - self._began < _BAR_AFTER_S or now - self._drawn < _BAR_EVERY_S:
            return
        self._drawn, self._shown = now, True
        share = attempts / max(1, attempts + waiting)
        filled = int(share * _BAR_WIDTH)
        bar = "#" * filled + "." * (_BAR_WIDTH - filled)
        self._out.write(f"\r[{bar}] {attempts} attempts, {waiting} Pods left, {what}\033[K")
        self._out.flush()

    def clear(self) -> None:
        """Leave nothing behind."""
        if self._shown:
            self._out.write("\r\033[K")
            self._out.flush()

"""``dra-scheduler whatif``: what would be placed where, and why not, if the cluster were changed.

Exit codes: 0 no Pod loses its place and every added one gets one, 2 one does not, 1 the command failed. An added Pod
of a scheduler that is not served gets none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.cli.options import Arguments, UsageError, add_flag
from scheduler.cli.sources import add_server_flags, add_source_flags, painter, say, server_of, write_data
from scheduler.cli.whatif_edits import add_edit_flags, edit_entries

if TYPE_CHECKING:
    from scheduler.app.remote_settings import Settings
    from scheduler.config import SchedulerConfig

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
    add_server_flags(parser)


def execute(arguments: Arguments) -> int:
    """0 or 2, see above."""
    from scheduler.app.whatif import Question, answer, objects_from_cluster, objects_from_files
    from scheduler.dra.features import Features
    from scheduler.edge.dumps import read_dumps
    from scheduler.whatif.edits import decode_edits
    from scheduler.whatif.text import difference_lines

    if arguments.files and arguments.kubeconfig:
        raise UsageError("-f and --kubeconfig exclude each other")

    def read(path: str) -> Iterable[Any]:
        return read_dumps([path])

    entries = edit_entries(arguments, read)
    edits = decode_edits(entries, namespace=arguments.namespace)
    settings = _settings(arguments)
    features = Features.from_gates(settings.gates)
    if arguments.files:
        objects = objects_from_files(arguments.files, features)
    else:
        objects = objects_from_cluster(arguments.kubeconfig, features)
    question = Question(
        objects,
        settings.config,
        features,
        edits,
        time.time(),
        arguments.until_stable,
        _config_of,
        read,
        settings.caveats,
    )
    with_bar = Bar(time.monotonic, sys.stderr) if sys.stderr.isatty() else None
    found = answer(question, with_bar.tell) if with_bar else answer(question)
    if with_bar:
        with_bar.clear()
    if arguments.output != "text":
        write_data(found, arguments.output)
    else:
        for line in difference_lines(found, painter()):
            say(line)
    return 2 if found.troubled else 0


def _config_of(path: str) -> SchedulerConfig:
    from scheduler.config import load_config

    return load_config(Path(path).read_text(encoding="utf-8") if path else "")


def _settings(arguments: Arguments) -> Settings:
    """Configuration and gates: of a running scheduler, else of the flags. The cluster is read with the caller's own
    kubeconfig either way, so that nobody sees here what they may not list.
    """
    from scheduler.app.remote_settings import Settings, settings_of
    from scheduler.config.gates import parse_feature_gates

    remote = server_of(arguments)
    if remote is None:
        return Settings(_config_of(arguments.config), parse_feature_gates(arguments.feature_gates))
    if arguments.files:
        raise UsageError("-f and a running scheduler exclude each other: its cluster is read as it is now")
    for flag, given in (("--config", arguments.config), ("--feature-gates", arguments.feature_gates)):
        if given:
            raise UsageError(f"{flag}: a running scheduler has its own; --new-config and --weight change it")
    return settings_of(remote)


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

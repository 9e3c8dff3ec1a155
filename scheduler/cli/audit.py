"""``dra-scheduler audit``: what the audit trail tells about a Pod, a claim, a device or a node, also when it is gone.

    audit pod|claim|device|node NAME, or audit export

The trail is read from files, or told by a scheduler that runs, to who may see its subject.

Exit codes: 0 told, 1 the command failed or nothing is recorded.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING

from scheduler.cli.options import Arguments, UsageError
from scheduler.cli.sources import add_server_flags, painter, say, server_of, write_data
from scheduler.config.durations import NANOSECONDS_PER_SECOND, DurationError, parse_duration

if TYPE_CHECKING:
    from scheduler.app.remote import Remote
    from scheduler.audit.stories import Story

DEFAULT_FILE = "/var/lib/dra-scheduler/audit.db"
WHATS = ("pod", "claim", "device", "node", "export")
FORMATS = ("text", "json", "yaml", "jsonl", "csv")
_NAMESPACED = ("pod", "claim")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to tell, from which files, of which time."""
    add = parser.add_argument
    add("what", metavar="pod|claim|device|node|export", help="what the story is about, also as pod/NAME; or everything")
    add(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help="its name; of a device: driver/pool/device, or the end of it",
    )
    add("-n", "--namespace", default="default", metavar="NAMESPACE", help="of the Pod or claim (default: default)")
    add("--file", dest="files", action="append", default=[], metavar="FILE",
        help=f"an audit file; may be repeated, one per replica (default {DEFAULT_FILE})")  # fmt: skip
    add("--since", default="", metavar="TIME", help="RFC 3339 time, or a duration before now such as 2h")
    add("--until", default="", metavar="TIME", help="the same")
    add("-o", "--output", choices=FORMATS, default="",
        help="text (default), json or yaml; of export: jsonl (default) or csv")  # fmt: skip
    add("--kubeconfig", default="", metavar="FILE", help="of --server and --port-forward; default: as kubectl")
    add_server_flags(parser)


def execute(arguments: Arguments) -> int:
    """0, see above."""
    now = time.time()
    window = _moment(arguments.since, "--since", now, 0.0), _moment(arguments.until, "--until", now, float("inf"))
    if window[0] > window[1]:
        raise UsageError("--since is later than --until")
    what, name = _subject(arguments)
    remote = server_of(arguments)
    if remote is not None:
        return _show(_asked(arguments, remote, what, name, window), arguments.output)
    if arguments.kubeconfig:
        raise UsageError("--kubeconfig goes with --server or --port-forward")
    files = arguments.files or [DEFAULT_FILE]
    if what == "export":
        return _export(files, window, arguments.output or "jsonl")
    from scheduler.app.trails import tell

    return _show(tell(files, what, name, window), arguments.output)


def _asked(arguments: Arguments, remote: Remote, what: str, name: str, window: tuple[float, float]) -> Story:
    """The story that the scheduler tells, each replica's part of it."""
    from scheduler.app.remote import ask_each
    from scheduler.app.trails import told_together
    from scheduler.audit.stories import Story

    if arguments.files:
        raise UsageError("--file and a running scheduler exclude each other: it tells its own record")
    if what == "export":
        raise UsageError("export reads files: a running scheduler tells one story at a time")
    query = {"kind": what, "name": name}
    query |= {end: str(moment) for end, moment in zip(("since", "until"), window, strict=True) if isfinite(moment)}
    return told_together([told.answer for told in ask_each(remote, "/record", Story, query)])


def _subject(arguments: Arguments) -> tuple[str, str]:
    what, name = arguments.what, arguments.name
    if not name and "/" in what:
        what, _, name = what.partition("/")
    if what not in WHATS:
        raise UsageError(f"{what}: one of {', '.join(WHATS)} is needed")
    if what == "export":
        if name:
            raise UsageError("export takes no name")
        if arguments.output not in ("", "jsonl", "csv"):
            raise UsageError(f"export writes jsonl or csv, not {arguments.output}")
        return what, ""
    if arguments.output in ("jsonl", "csv"):
        raise UsageError(f"-o {arguments.output} goes with export")
    if not name:
        raise UsageError(f"the name of the {what} is needed")
    return what, f"{arguments.namespace}/{name}" if what in _NAMESPACED and "/" not in name else name


def _show(told: Story, output: str) -> int:
    from scheduler.audit.stories import story_lines

    if output in ("json", "yaml"):
        write_data(told, output)
        return 0
    for line in story_lines(told, _text, painter()):
        say(line)
    return 0


def _export(files: list[str], window: tuple[float, float], output: str) -> int:
    import msgspec

    from scheduler.app.trails import all_records
    from scheduler.audit.tables import COLUMNS, rows

    records = all_records(files, window)
    if output == "jsonl":
        for record in records:
            print(msgspec.json.encode(record).decode())
        return 0
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for record in records:
        table.writerows(rows(record, _text))
    return 0


def _text(seconds: float) -> str:
    """RFC 3339 with milliseconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(given: str, flag: str, now: float, otherwise: float) -> float:
    if not given:
        return otherwise
    try:
        return now - parse_duration(given) / NANOSECONDS_PER_SECOND
    except DurationError:
        pass
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise UsageError(f"{flag}={given} is neither a time such as 2026-05-01T12:00:00Z nor a duration") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()

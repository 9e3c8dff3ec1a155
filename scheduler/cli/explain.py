"""``dra-scheduler explain pod/NAME``: why a Pod waits, down to each device, or why it is where it is.

Exit codes: 0 the Pod is scheduled or fits, 2 it waits or is held back, 1 the command failed.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from scheduler.cli.options import Arguments, UsageError, add_flag
from scheduler.cli.sources import (
    add_server_flags,
    add_source_flags,
    caveats_of,
    extenders_of,
    load_snapshot,
    painter,
    remote_of,
    write_data,
)

if TYPE_CHECKING:
    from scheduler.explain.facts import Explanation

HINTS_S = 3.0
"""How long hints are looked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The Pod and where to read the cluster."""
    parser.add_argument("pod", metavar="pod/NAME", help="the Pod; NAME alone will do")
    parser.add_argument("-n", "--namespace", default="default", metavar="NAMESPACE", help="its namespace")
    add_flag(parser, "hints", default=True, text="look for single changes that would help")
    add_source_flags(parser)
    add_server_flags(parser)


def execute(arguments: Arguments) -> int:
    """0 or 2, see above."""
    from scheduler.edge.dumps import uncollected

    with uncollected():  # a short life with a large heap
        return _execute(arguments)


def _execute(arguments: Arguments) -> int:
    from scheduler.explain.text import explanation_lines

    found, now = _answer(arguments)
    if arguments.output != "text":
        write_data(found, arguments.output)
    else:
        for line in explanation_lines(found, now, painter()):
            print(line)
    return 2 if found.phase in ("waiting", "held back") else 0


def _answer(arguments: Arguments) -> tuple[Explanation, float]:
    """The explanation, and the Unix seconds at which it holds."""
    from scheduler.explain.facts import Explanation
    from scheduler.explain.hints import find_hints
    from scheduler.explain.pods import explain_pod

    name = _pod_name(arguments.pod)
    remote = remote_of(arguments)
    if remote is not None:
        from scheduler.app.remote import ask, explanation_path

        query = {} if arguments.hints else {"hints": "false"}
        told = ask(remote, explanation_path(arguments.namespace, name), Explanation, query)
        return told.answer, told.now
    snapshot = load_snapshot(arguments)
    pod = snapshot.pod(arguments.namespace, name)
    profile, own = snapshot.profile_for(pod)
    found = explain_pod(profile, pod, snapshot.state, snapshot.now)
    if arguments.hints and found.phase in ("waiting", "held back"):
        ends_at = time.monotonic() + HINTS_S
        if not find_hints(profile, pod, snapshot.state, snapshot.now, found, lambda: time.monotonic() < ends_at):
            found.caveats.append("not every change that might help was tried")
    if not own:
        found.caveats.append(
            f"schedulerName {pod.spec.schedulerName} has no profile here: judged by profile {profile.name}"
        )
    extenders = extenders_of(arguments)
    if extenders:
        found.caveats.append(f"extenders of the configuration were not asked: {', '.join(extenders)}")
    found.caveats.extend(caveats_of(snapshot))
    return found, snapshot.now


def _pod_name(given: str) -> str:
    kind, slash, name = given.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        raise UsageError(f"{given}: only Pods can be explained, as pod/NAME")
    if not name:
        raise UsageError("the name of a Pod is needed, as pod/NAME")
    return name

"""``dra-scheduler explain pod/NAME``: why a Pod waits, down to each device, or why it is where it is.

Exit codes: 0 the Pod is scheduled or fits, 2 it waits or is held back, 1 the command failed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from scheduler.cli.options import Arguments, UsageError, add_flag
from scheduler.cli.sources import (
    add_server_flags,
    add_source_flags,
    caveats_of,
    extenders_of,
    load_snapshot,
    namespace_of,
    painter,
    remote_of,
    say,
    write_data,
)

if TYPE_CHECKING:
    from scheduler.api.core import Pod
    from scheduler.app.snapshot import Snapshot
    from scheduler.explain.facts import Cause, Explanation

HINTS_S = 3.0
"""How long hints are looked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The Pod and where to read the cluster."""
    parser.add_argument("pod", metavar="pod/NAME", help="the Pod, also as pod NAME; NAME alone will do")
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("-n", "--namespace", default="", metavar="NAMESPACE",
        help="its namespace (default: of the kubeconfig's current context; with -f: default)")  # fmt: skip
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
            say(line)
    return 2 if found.phase in ("waiting", "held back") else 0


def _answer(arguments: Arguments) -> tuple[Explanation, float]:
    """The explanation, and the Unix seconds at which it holds."""
    from scheduler.explain.facts import Explanation
    from scheduler.explain.hints import find_hints
    from scheduler.explain.pods import explain_pod

    name = _pod_name(arguments.pod, arguments.name)
    remote = remote_of(arguments)
    namespace = namespace_of(arguments)
    if remote is not None:
        from scheduler.app.remote import ask, explanation_path

        query = {} if arguments.hints else {"hints": "false"}
        told = ask(remote, explanation_path(namespace, name), Explanation, query)
        return told.answer, told.now
    snapshot = load_snapshot(arguments)
    pod = snapshot.pod(namespace, name)
    profile, own = snapshot.profile_for(pod)
    found = explain_pod(profile, pod, snapshot.state, snapshot.now)
    if found.phase == "held back":
        found.because.extend(template_reasons(snapshot, pod))
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
    found.caveats.extend(caveats_of(snapshot, about=pod))
    return found, snapshot.now


def template_reasons(snapshot: Snapshot, pod: Pod) -> Iterator[Cause]:
    """Why claims of templates are not there, which a state alone cannot tell; nothing when templates were not read."""
    from scheduler.explain.pods import template_causes
    from scheduler.whatif.objects import TEMPLATE

    if TEMPLATE not in snapshot.objects.found:
        return
    named = f"{TEMPLATE} "
    bad = {one.subject.removeprefix(named) for one in snapshot.objects.problems if one.subject.startswith(named)}
    claims = snapshot.state.devices.claims
    quotas = snapshot.objects.quotas()
    yield from template_causes(
        pod, snapshot.objects.templates, bad, lambda claim: quotas.refusals(claim, claims.values())
    )


def _pod_name(given: str, second: str) -> str:
    """Of ``pod/NAME``, ``pod NAME`` or ``NAME``. Raises UsageError."""
    kind, slash, name = given.rpartition("/")
    if second:
        if slash or "/" in second:
            raise UsageError(f"{given} {second}: one Pod is explained at a time, as pod/NAME or pod NAME")
        kind, slash, name = given, " ", second
    if slash and kind.lower() not in ("pod", "pods", "po"):
        raise UsageError(f"{given}{slash if second else ''}{second}: only Pods can be explained, as pod/NAME")
    if not name:
        raise UsageError("the name of a Pod is needed, as pod/NAME")
    return name

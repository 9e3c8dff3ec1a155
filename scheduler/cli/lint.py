"""``dra-scheduler lint``: claims, templates, classes and taint rules against the devices that are published.

Exit codes: 0 nothing but notes, 2 errors or warnings were found, with --manifest about the manifests, 1 the command
failed, or the input has nothing to judge.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scheduler.cli.options import Arguments, UsageError
from scheduler.cli.sources import (
    add_server_flags,
    add_source_flags,
    caveats_of,
    load_snapshot,
    painter,
    remote_of,
    require_any,
    say,
    with_documents,
    write_data,
)

if TYPE_CHECKING:
    from scheduler.app.snapshot import Snapshot
    from scheduler.explain.findings import Finding, Findings
    from scheduler.explain.lint_fields import Raw
    from scheduler.explain.text import Paint

Named = tuple[str, Any]
"""(file, document)."""
JUDGED = (
    "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule", "Pod", "Deployment",
    "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob",
)  # fmt: skip
"""Kinds of which one at least has to be there."""
_STYLES = {"error": "bad", "warning": "hint", "note": "faint"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to read the cluster; manifests that were not applied yet may be among the files."""
    add_source_flags(parser)
    add_server_flags(parser)
    parser.add_argument(
        "-m",
        "--manifest",
        dest="manifests",
        action="append",
        default=[],
        metavar="FILE",
        help="look at it as if it were applied, or compare with what was stored of it, and leave out what has nothing "
        "to do with it; may be repeated",
    )


def execute(arguments: Arguments) -> int:
    """0 or 2, see above."""
    from scheduler.edge.dumps import uncollected

    with uncollected():  # a short life with a large heap
        return _execute(arguments)


def _execute(arguments: Arguments) -> int:
    found = _answer(arguments)
    if arguments.output != "text":
        write_data(found, arguments.output)
    else:
        for line in _lines(found, painter()):
            say(line)
    return 2 if found.troubled else 0


def _answer(arguments: Arguments) -> Findings:
    from scheduler.edge.dumps import origins, read_named_dumps
    from scheduler.explain.findings import Findings

    remote = remote_of(arguments)
    if remote is not None and arguments.manifests:
        raise UsageError("--manifest and a running scheduler exclude each other: it looks at what it watches")
    if remote is not None:
        from scheduler.app.remote import ask

        return ask(remote, "/lint", Findings).answer
    files = list(read_named_dumps(arguments.files))
    given = list(read_named_dumps(arguments.manifests))
    snapshot = load_snapshot(arguments, [document for _, document in files] if files else None)
    require_any(snapshot, JUDGED)
    if arguments.manifests:
        return _of_manifests(arguments, snapshot, files, given)
    found = _look(snapshot, snapshot, {}, origins(files))
    found.caveats.extend(caveats_of(snapshot))
    return found


def _look(
    snapshot: Snapshot, stored: Snapshot, manifests: Raw, files: Mapping[tuple[str, str], str] = MappingProxyType({})
) -> Findings:
    """``stored``: what the cluster has without the manifests."""
    from scheduler.explain.lint import lint

    objects = snapshot.objects
    return lint(
        snapshot.state,
        objects.templates,
        objects.of("DeviceTaintRule"),
        stored.objects.raw,
        snapshot.profiles,
        manifests,
        files,
        stored.objects.found,
        {problem.subject for problem in objects.problems},
    )


def _of_manifests(arguments: Arguments, stored: Snapshot, files: Sequence[Named], given: Sequence[Named]) -> Findings:
    """What the manifests would do, and nothing that is wrong without them."""
    from scheduler.app.snapshot import objects_of, readable_kinds
    from scheduler.edge.dumps import origins
    from scheduler.explain.findings import SEVERITIES
    from scheduler.explain.lint_manifests import only_about, unknown_fields

    features = stored.state.features
    documents = [document for _, document in given]
    manifests = objects_of(documents, features, live=True).raw
    applied = with_documents(stored, arguments, documents)
    origin = origins([*files, *given])
    found = _look(applied, stored, manifests, origin)
    only_about(found, manifests, stored.objects.raw, lambda: _look(stored, stored, {}))
    unknown = unknown_fields(manifests, readable_kinds(features))
    own = [replace(one, file=origin.get(_key(one.subject), "")) for one in unknown]
    own += _unreadable(arguments, stored, applied, given, origin)
    found.findings = sorted([*own, *found.findings], key=lambda one: SEVERITIES.index(one.severity))
    applied.objects.problems[:] = stored.objects.problems
    found.caveats.extend(caveats_of(applied))
    return found


def _unreadable(
    arguments: Arguments,
    stored: Snapshot,
    applied: Snapshot,
    given: Sequence[Named],
    origin: Mapping[tuple[str, str], str],
) -> Iterator[Finding]:
    """Documents that hold no object, or one that cannot be used; and files that hold nothing at all."""
    from scheduler.app.snapshot import objects_of
    from scheduler.explain.lint_manifests import unreadable

    told = set()
    numbers: dict[str, int] = {}
    holding = set()
    for file, document in given:
        numbers[file] = number = numbers.get(file, 0) + 1
        if document is not None:
            holding.add(file)
        for problem in objects_of([document], stored.state.features, live=True).problems:
            subject = "document" if problem.subject.startswith("document ") else problem.subject
            told.add((problem.subject, problem.field, problem.problem))
            yield unreadable(subject, problem.field, problem.problem, number, file)
    for file in dict.fromkeys([*arguments.manifests, *numbers]):
        if file not in holding and (file in numbers or not Path(file).is_dir()) and file != "-":
            yield unreadable("document", "", "the file holds no object", 0, file)
    known = {(one.subject, one.field, one.problem) for one in stored.objects.problems} | told
    for problem in applied.objects.problems:
        fresh = (problem.subject, problem.field, problem.problem) not in known
        if fresh and not problem.subject.startswith("document "):
            file = origin.get(_key(problem.subject), "")
            yield unreadable(problem.subject, problem.field, problem.problem, 0, file)


def _key(subject: str) -> tuple[str, str]:
    kind, _, key = subject.partition(" ")
    return kind, key


def _lines(found: Findings, paint: Paint) -> Iterator[str]:
    for finding in found.findings:
        place = (f" {finding.path}" if finding.path else "") + (f" in {finding.file}" if finding.file else "")
        yield paint(_STYLES[finding.severity], finding.severity) + paint("title", f" {finding.subject}") + place
        yield f"  {finding.what}"
        yield f"  why: {finding.why}"
        yield f"  fix: {finding.fix}" + paint("faint", f"  [{finding.check}]")
    counts = {severity: sum(f.severity == severity for f in found.findings) for severity in _STYLES}
    checked = ", ".join(f"{kind} {count}" for kind, count in found.checked.items())
    numbers = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items())
    yield f"{numbers} (looked at: {checked})"
    yield from (paint("faint", f"note: {caveat}") for caveat in found.caveats)

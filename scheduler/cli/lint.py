"""``dra-scheduler lint``: claims, templates, classes and taint rules against the devices that are published.

Exit codes: 0 nothing but notes, 2 errors or warnings were found, 1 the command failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from scheduler.cli.options import Arguments, UsageError
from scheduler.cli.sources import (
    add_server_flags,
    add_source_flags,
    caveats_of,
    load_snapshot,
    painter,
    remote_of,
    with_documents,
    write_data,
)

if TYPE_CHECKING:
    from scheduler.explain.findings import Findings
    from scheduler.explain.text import Paint

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
        help="look at it as if it were applied, or compare with what was stored of it; may be repeated",
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
            print(line)
    return 2 if found.troubled else 0


def _answer(arguments: Arguments) -> Findings:
    from scheduler.app.snapshot import objects_of
    from scheduler.edge.dumps import origins, read_named_dumps
    from scheduler.explain.findings import Findings
    from scheduler.explain.lint import lint
    from scheduler.explain.lint_fields import Raw

    remote = remote_of(arguments)
    if remote is not None and arguments.manifests:
        raise UsageError("--manifest and a running scheduler exclude each other: it looks at what it watches")
    if remote is not None:
        from scheduler.app.remote import ask

        return ask(remote, "/lint", Findings).answer
    files = list(read_named_dumps(arguments.files))
    given = list(read_named_dumps(arguments.manifests))
    snapshot = load_snapshot(arguments, [document for _, document in files] if files else None)
    stored = snapshot.objects.raw
    manifests: Raw = {}
    if given:
        documents = [document for _, document in given]
        manifests = objects_of(documents, snapshot.state.features, live=True).raw
        snapshot = with_documents(snapshot, arguments, documents)
    objects = snapshot.objects
    found = lint(
        snapshot.state,
        objects.templates,
        objects.of("DeviceTaintRule"),
        stored,
        snapshot.profiles,
        manifests,
        origins([*files, *given]),
    )
    found.caveats.extend(caveats_of(snapshot))
    return found


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

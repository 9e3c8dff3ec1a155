"""``make vulnerabilities``: known vulnerabilities of what the lock files pin.

With ``--database`` no network is needed: a folder, a zip or a file of OSV records (the export "PyPI" of the OSV
database). Without, pip-audit asks a vulnerability service. A check that did not look at every package did not take
place: that is said, and is no success.

Exit codes: 0 nothing is known, 2 something is, 3 the check could not run, 1 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from supply.lock import DEVELOPMENT, RUNTIME, LockError, Pinned, normalised, read_lock

Json = dict[str, Any]
AUDIT_TIMEOUT_S = 300


class UnavailableError(Exception):
    """The check could not run; the message says why."""


@dataclass(frozen=True, slots=True, order=True)
class Hit:
    """A pinned package with a known vulnerability. ``fixed``: the versions that mend it."""

    name: str
    version: str
    identifier: str
    fixed: tuple[str, ...] = ()
    summary: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """See the exit codes above."""
    parser = argparse.ArgumentParser(prog="make vulnerabilities", description=__doc__)
    parser.add_argument("--database", type=Path, help="OSV records: a folder, a zip, or one JSON file")
    parser.add_argument("--lock", type=Path, action="append", help="lock file (default: both of this project)")
    arguments = parser.parse_args(argv)
    locks = arguments.lock or [RUNTIME, DEVELOPMENT]
    try:
        pins = sorted({pin for lock in locks for pin in read_lock(lock)}, key=lambda pin: (pin.name, pin.version))
    except (LockError, OSError) as error:
        print(f"make vulnerabilities: {error}", file=sys.stderr)
        return 1
    try:
        if arguments.database is not None:
            hits, asked = offline(pins, arguments.database)
        else:
            hits, asked = [hit for lock in locks for hit in ask_service(lock)], "a vulnerability service"
    except UnavailableError as error:
        print(f"COULD NOT RUN: {error}", file=sys.stderr)
        return 3
    for hit in sorted(set(hits)):
        mended = f"; fixed in {', '.join(hit.fixed)}" if hit.fixed else ""
        print(f"{hit.name} {hit.version}: {hit.identifier}: {hit.summary or 'no summary'}{mended}")
    print(f"{len(set(hits))} known vulnerabilities in {len(pins)} packages, by {asked}")
    return 2 if hits else 0


def offline(pins: Sequence[Pinned], database: Path) -> tuple[list[Hit], str]:
    """Hits by a database on disk, and its description. Raises UnavailableError for one without a PyPI record."""
    wanted = {pin.name: pin for pin in pins}
    hits, count, newest = [], 0, ""
    try:
        for record in records(database):
            about = [
                entry for entry in record.get("affected", ()) if entry.get("package", {}).get("ecosystem") == "PyPI"
            ]
            count += bool(about)
            newest = max(newest, str(record.get("modified", "")))
            for entry in about if not record.get("withdrawn") else ():
                pin = wanted.get(normalised(str(entry["package"].get("name", ""))))
                if pin is not None and affects(entry, pin.version):
                    summary = " ".join(str(record.get("summary", "")).split())
                    hits.append(Hit(pin.name, pin.version, str(record.get("id", "?")), fixes(entry), summary))
    except (OSError, zipfile.BadZipFile, ValueError, TypeError, AttributeError) as error:
        raise UnavailableError(f"{database} cannot be read: {error}") from error
    if not count:
        raise UnavailableError(f"{database} holds no OSV record about a package of PyPI")
    return hits, f"{count} records on disk, the newest of {newest[:10] or 'an unknown day'}"


def records(database: Path) -> Iterator[Json]:
    """Every OSV record of a folder, a zip or a file (one record, or a list)."""
    if database.is_dir():
        for file in sorted(database.rglob("*.json")):
            yield from _decoded(file.read_bytes())
    elif zipfile.is_zipfile(database):
        with zipfile.ZipFile(database) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json"):
                    yield from _decoded(archive.read(name))
    else:
        yield from _decoded(database.read_bytes())


def _decoded(content: bytes) -> Iterator[Json]:
    found = json.loads(content)
    yield from found if isinstance(found, list) else [found]


def affects(entry: Json, version: str) -> bool:
    """Whether an ``affected`` entry of an OSV record covers a version, by its list or by its ranges."""
    if version in entry.get("versions", ()):
        return True
    try:
        mine = Version(version)
    except InvalidVersion:
        return False
    ranges = (one for one in entry.get("ranges", ()) if one.get("type") == "ECOSYSTEM")
    return any(_within(one.get("events", ()), mine) for one in ranges)


def _within(events: Iterable[Json], version: Version) -> bool:
    """OSV's rule: the events in the order of versions, ``introduced`` opens, ``fixed`` and ``last_affected`` close."""
    steps: list[tuple[Version, int, str]] = []
    for event in events:
        for order, kind in enumerate(("introduced", "fixed", "last_affected")):
            if kind in event:
                text = str(event[kind])
                try:
                    steps.append((Version("0.dev0" if text == "0" else text), order, kind))
                except InvalidVersion:
                    continue
    inside = False
    for at, _, kind in sorted(steps):
        if kind == "introduced" and version >= at:
            inside = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def fixes(entry: Json) -> tuple[str, ...]:
    """The versions that an entry names as fixed."""
    ranges = (one for one in entry.get("ranges", ()) if one.get("type") == "ECOSYSTEM")
    return tuple(str(event["fixed"]) for one in ranges for event in one.get("events", ()) if "fixed" in event)


def ask_service(lock: Path) -> list[Hit]:
    """What pip-audit is told about a lock file. Raises UnavailableError unless every package was looked at."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(lock), "--require-hashes", "--disable-pip",
               "--format", "json", "--progress-spinner", "off", "--timeout", "15"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=AUDIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise UnavailableError(
            f"the vulnerability service did not answer within {AUDIT_TIMEOUT_S} s; {_INSTEAD}"
        ) from None
    return audited(done.stdout, done.stderr)


_INSTEAD = "without a network give a copy of the OSV database: make vulnerabilities DB=FILE"


def audited(answer: str, complaints: str) -> list[Hit]:
    """The hits in pip-audit's JSON. What it could not ask about it calls skipped, and is content; we are not."""
    try:
        dependencies = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (complaints.strip().splitlines() or ["no answer"])[-1]
        raise UnavailableError(f"the vulnerability service was not reached ({last[:200]}); {_INSTEAD}") from None
    skipped = [one["name"] for one in dependencies if "skip_reason" in one]
    if skipped or not dependencies:
        missing = f"{len(skipped)} of {len(dependencies)} packages" if dependencies else "any package"
        raise UnavailableError(f"the vulnerability service gave no answer about {missing}; {_INSTEAD}")
    return [
        Hit(normalised(one["name"]), one["version"], found["id"], tuple(found.get("fix_versions", ())),
            " ".join(str(found.get("description", "")).split())[:100])
        for one in dependencies
        for found in one["vulns"]
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

"""Known vulnerabilities: found by a database on disk, and a check that did not take place is no success."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from supply import vulnerabilities
from supply.vulnerabilities import UnavailableError, affects, audited, main

Json = dict[str, Any]


def record(name: str, *events: Json, versions: tuple[str, ...] = (), **more: Json | str) -> Json:
    """An OSV record about one package."""
    affected = {
        "package": {"ecosystem": "PyPI", "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
        "versions": list(versions),
    }
    return {
        "id": f"OSV-{name}",
        "summary": "bad\n things",
        "modified": "2026-11-01T00:00:00Z",
        "affected": [affected],
        **more,
    }


@pytest.fixture
def lock(tmp_path: Path) -> str:
    """A lock file with two packages."""
    file = tmp_path / "some.lock"
    file.write_text("".join(f"{name}==1.5 \\\n    --hash=sha256:{'0' * 64}\n" for name in ("my-package", "other")))
    return str(file)


def database(folder: Path, *found: Json) -> str:
    """A folder with records."""
    folder.mkdir()
    for number, one in enumerate(found):
        (folder / f"{number}.json").write_text(json.dumps(one))
    return str(folder)


@pytest.mark.parametrize(
    ("events", "hit"),
    [
        ([{"introduced": "0"}], True),
        ([{"introduced": "0"}, {"fixed": "1.5"}], False),
        ([{"introduced": "0"}, {"fixed": "1.5.1"}], True),
        ([{"introduced": "1.5.1"}], False),
        ([{"introduced": "1.0"}, {"last_affected": "1.5"}], True),
        ([{"introduced": "1.0"}, {"last_affected": "1.4"}], False),
        ([{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.4"}, {"fixed": "1.6"}], True),
        ([{"introduced": "1.4"}, {"fixed": "1.6"}, {"introduced": "0"}, {"fixed": "1.2"}], True),
        ([{"introduced": "0"}, {"fixed": "not a version"}], True),
    ],
)
def test_ranges_are_read_as_osv_defines_them(events: list[Json], hit: bool) -> None:
    """In the order of versions, not of the list; a fix is no longer affected, a last_affected still is."""
    assert affects(record("x", *events)["affected"][0], "1.5") is hit


def test_hits_are_told_with_their_fix(tmp_path: Path, lock: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By range and by list of versions, however the name is spelled; no other ecosystem, nothing withdrawn."""
    other = record("other", {"introduced": "0"}) | {"withdrawn": "2026-01-01T00:00:00Z"}
    elsewhere = record("my-package", {"introduced": "0"}) | {"id": "OSV-npm"}
    elsewhere["affected"][0]["package"]["ecosystem"] = "npm"
    found = record("My_Package", {"introduced": "0"}, {"fixed": "2.0"})
    listed = record("other", versions=("1.5",)) | {"id": "OSV-listed"}
    folder = database(tmp_path / "osv", found, other, elsewhere, listed)
    assert main(["--database", folder, "--lock", lock]) == 2
    shown = capsys.readouterr().out
    assert "my-package 1.5: OSV-My_Package: bad things; fixed in 2.0\n" in shown
    assert "other 1.5: OSV-listed: bad things\n" in shown
    assert shown.endswith("2 known vulnerabilities in 2 packages, by 3 records on disk, the newest of 2026-11-01\n")


def test_nothing_known_is_a_success(tmp_path: Path, lock: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From a zip, as the database is exported."""
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("OSV-1.json", json.dumps(record("unrelated", {"introduced": "0"})))
    assert main(["--database", str(archive), "--lock", lock]) == 0
    assert capsys.readouterr().out.startswith("0 known vulnerabilities in 2 packages")


@pytest.mark.parametrize("content", [None, "", "{", "[1]", "{}", "[]", '{"affected": 7}'])
def test_a_database_that_says_nothing_is_no_check(
    tmp_path: Path, lock: str, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, broken, empty, or about something else: code 3, never 0."""
    file = tmp_path / "osv.json"
    if content is not None:
        file.write_text(content)
    assert main(["--database", str(file), "--lock", lock]) == 3
    assert "COULD NOT RUN" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [
    "", "no json", "[]", '{"dependencies": []}',
    '{"dependencies": [{"name": "a", "skip_reason": "not found"}, {"name": "b", "version": "1", "vulns": []}]}',
])  # fmt: skip
def test_a_service_that_was_not_asked_about_everything_is_no_check(answer: str) -> None:
    """pip-audit says "No known vulnerabilities found" when it could not ask about a single package."""
    with pytest.raises(UnavailableError, match=r"make vulnerabilities DB=FILE"):
        audited(answer, "some\nlast line")


def test_a_service_that_answers_is_believed() -> None:
    """Hits with the versions that mend them."""
    answer = {"dependencies": [
        {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"], "description": "x"}]},
        {"name": "b", "version": "1", "vulns": []},
    ]}  # fmt: skip
    (hit,) = audited(json.dumps(answer), "")
    assert (hit.name, hit.identifier, hit.fixed) == ("a", "CVE-1", ("2",))


def test_a_service_that_hangs_is_no_check(
    lock: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bounded, and told."""

    def hang(*command: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("pip-audit", 300)

    monkeypatch.setattr(vulnerabilities.subprocess, "run", hang)
    assert main(["--lock", lock]) == 3
    assert "COULD NOT RUN: the vulnerability service did not answer" in capsys.readouterr().err


def test_a_lock_that_locks_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 1 and the line."""
    file = tmp_path / "bad.lock"
    file.write_text("aiohttp\n")
    assert main(["--lock", str(file)]) == 1
    assert "bad.lock: aiohttp: not pinned" in capsys.readouterr().err

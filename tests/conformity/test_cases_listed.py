"""docs/cases.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`((?:tests|e2e)/[\w/]+\.py)(?:::(\w+))?`")
TEXT = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")


def test_every_test_named_exists() -> None:
    """Each file is there and defines the test."""
    named = TEST.findall(TEXT)
    assert len(named) > 60
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).is_file() or (test and f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_every_case_has_a_test_or_a_reason() -> None:
    """A row without a test says why."""
    rows = [row for row in TEXT.splitlines() if re.match(r"\| B\d+ \|", row)]
    assert len(rows) == len({row.split("|")[1] for row in rows}) >= 69
    assert [row for row in rows if not TEST.search(row) and "no test" not in row] == []

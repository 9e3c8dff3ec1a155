"""Configuration files that cannot be used: exit code 1 and a line that names the field and the rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.cli.main import main

FOLDER = Path(__file__).resolve().parents[1] / "config" / "broken"
FILES = sorted(FOLDER.glob("*.yaml"))


def test_there_are_thirty() -> None:
    """Fewer would mean that the folder was not found."""
    assert len(FILES) >= 30


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_broken_file_stops_the_start(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line of the file, a comment, is what standard error must contain."""
    expected = file.read_text().split("\n", 1)[0].removeprefix("# ")
    assert main(["run", f"--config={file}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("dra-scheduler run: ")
    assert expected in error

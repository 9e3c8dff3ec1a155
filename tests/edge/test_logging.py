"""Log lines: JSON for machines, text for people, foreign loggers in the same form."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from scheduler.edge.logging import configure_logging, get_logger


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines() -> None:
    """One object per line with level, time, component and fields; odd values become text."""
    stream = io.StringIO()
    configure_logging("json", stream=stream)
    get_logger("loop").info("attempt", pod="ns/p", node=None, odd={1}, error=ValueError("x"))
    line = json.loads(stream.getvalue())
    assert (line["event"], line["component"], line["level"], line["pod"]) == ("attempt", "loop", "info", "ns/p")
    assert line["ts"].endswith("Z")
    assert line["error"] == "x"


def test_exceptions_and_foreign_loggers() -> None:
    """A traceback is a field; a library's warning is a line of ours, its chatter is not shown."""
    stream = io.StringIO()
    configure_logging("json", stream=stream)
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("loop").exception("failed")
    logging.getLogger("aiohttp.client").warning("odd %s", "thing")
    logging.getLogger("aiohttp.client").info("chatter")
    ours, foreign = (json.loads(line) for line in stream.getvalue().splitlines())
    assert "ValueError: broken" in ours["exception"]
    assert (foreign["event"], foreign["logger"], foreign["level"]) == ("odd thing", "aiohttp.client", "warning")


def test_text_and_verbosity() -> None:
    """Details appear from -v=4 on; no colour codes off a terminal."""
    stream = io.StringIO()
    configure_logging("text", verbosity=3, stream=stream)
    get_logger("loop").debug("hidden")
    configure_logging("text", verbosity=4, stream=stream)
    get_logger("loop").debug("shown", pod="ns/p")
    text = stream.getvalue()
    assert "hidden" not in text
    assert "shown" in text
    assert "pod=ns/p" in text
    assert "\x1b" not in text


def test_tracebacks_in_text_stay_small() -> None:
    """An error's line has its traceback, and no values of local variables: they are long and may be secret."""
    stream = io.StringIO()
    configure_logging("text", stream=stream)
    secret = "do not print this"
    try:
        raise ValueError(str(len(secret)))
    except ValueError:
        get_logger("loop").exception("failed")
    text = stream.getvalue()
    assert "ValueError: 17" in text
    assert secret not in text.replace('secret = "do not print this"', "")
    assert len(text.splitlines()) < 20


class _Refusing(io.StringIO):
    """A stream on a disk that is full for a while."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_log_that_cannot_be_written_costs_lines_not_attempts() -> None:
    """Nobody who logs meets the error; the first line that gets through says how many did not, the next one nothing."""
    stream = _Refusing()
    configure_logging("json", stream=stream)
    stream.full = True
    get_logger("loop").info("one")
    logging.getLogger("aiohttp.client").warning("two")
    stream.full = False
    get_logger("loop").info("three")
    get_logger("loop").info("four")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line.get("lines_lost")) for line in lines] == [("three", 2), ("four", None)]


_FULL = """
import resource, sys
from scheduler.edge.logging import configure_logging, get_logger
configure_logging("json")
log, (soft, hard) = get_logger("loop"), resource.getrlimit(resource.RLIMIT_FSIZE)
for number in range(300):
    if number == 10:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    if number == 290:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.info("line", number=number)
"""


def test_the_count_of_lost_lines_is_right_for_a_file_on_a_full_disk(tmp_path: Path) -> None:
    """Each line is in the file, whole and once, or counted; the one that was cut off is counted, and ends there."""
    file = tmp_path / "log"
    with file.open("wb") as stderr:
        subprocess.run([sys.executable, "-c", _FULL], stderr=stderr, check=True, cwd=Path(__file__).parents[2])
    found, torn = [], 0
    for line in file.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            torn += 1
    numbers = [line["number"] for line in found]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    assert numbers[-1] == 299
    assert len(numbers) + sum(line.get("lines_lost", 0) for line in found) == 300
    assert torn <= 1


def test_threads_that_log_at_once_tell_each_lost_line_once() -> None:
    """The lease and the loop have a thread each."""
    stream = _Refusing()
    configure_logging("json", stream=stream)

    def work(name: str) -> None:
        for number in range(300):
            stream.full = number % 7 < 3
            get_logger(name).info("line")

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.full = False
    get_logger("loop").info("last")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) + sum(line.get("lines_lost", 0) for line in lines) == 901


def test_a_closed_log_stream_is_no_error() -> None:
    """Whoever read the log has gone."""
    stream = io.StringIO()
    configure_logging("text", stream=stream)
    stream.close()
    get_logger("loop").info("nobody reads this")

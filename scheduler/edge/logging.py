"""Logging: one wide line per attempt, text for people, JSON for machines, always on standard error.

Nothing below the edge logs. Foreign libraries log through the standard module; their warnings are shown in the same
format. ``-v`` counts as in Kubernetes: 0 says what went wrong or waits, 2 also what went well, 4 and more add detail.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog

SUCCESS_VERBOSITY = 2
"""From here on each Binding has its line, as in kube-scheduler; at 0 it would be the largest part of the log."""
DETAIL_VERBOSITY = 4
FOREIGN_VERBOSITY = 8

Format = Literal["text", "json"]

_encoder = msgspec.json.Encoder(enc_hook=str)


class _Threshold:
    """The level below which lines are dropped. For the whole process, as the loggers are."""

    level = logging.INFO
    verbosity = 0


def set_verbosity(verbosity: int) -> None:
    """Change -v while running; loggers that exist already follow."""
    _Threshold.verbosity = verbosity
    _Threshold.level = logging.DEBUG if verbosity >= DETAIL_VERBOSITY else logging.INFO
    logging.getLogger().setLevel(logging.DEBUG if verbosity >= FOREIGN_VERBOSITY else logging.WARNING)


def verbose(level: int) -> bool:
    """True when -v is at least ``level``: asked before a line that is not worth its making otherwise."""
    return _Threshold.verbosity >= level


class _Target:
    """A stream that may refuse (disk full, reader gone): lines are lost then and counted, never an attempt.

    The next line that gets through says how many were lost, as ``lines_lost``. Nothing is buffered: what a buffer keeps
    after a failure would be counted, and written later all the same. Any thread may log.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = 0
        self._torn = False
        self._lock = threading.Lock()
        self._carried = threading.local()

    def write(self, text: str) -> int:
        """The length of the text, whether it got through or not."""
        told = getattr(self._carried, "count", 0)
        self._carried.count = 0
        with self._lock:
            if not self._passed(text):
                self._lost += 1 + told
        return len(text)

    def _passed(self, text: str) -> bool:
        data = b"\n" * self._torn + text.encode(errors="replace")
        rest = data
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):  # in memory, or closed
            return self._passed_in_memory(text)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            if len(rest) < len(data):
                self._torn = not data[: len(data) - len(rest)].endswith(b"\n")
            return False
        self._torn = False
        return True

    def _passed_in_memory(self, text: str) -> bool:
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            return False
        return True

    def flush(self) -> None:
        """Nothing is kept."""

    def tell_lost(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A processor: the line that is about to be written, by this thread, carries the count."""
        with self._lock:
            count, self._lost = self._lost, 0
        if count:
            event["lines_lost"] = self._carried.count = count
        return event


def _drop_below(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if method == "debug" and _Threshold.level > logging.DEBUG:
        raise structlog.DropEvent
    return event


def _serialize(event: MutableMapping[str, Any], **_: Any) -> str:
    return _encoder.encode(event).decode()


def configure_logging(format: Format = "text", verbosity: int = 0, stream: TextIO | None = None) -> None:
    """Set up structlog and the standard logging module for this process. Colours only on a terminal."""
    stream = stream if stream is not None else sys.stderr
    target = _Target(stream)
    set_verbosity(verbosity)
    shared: list[structlog.typing.Processor] = [
        _drop_below,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts" if format == "json" else "timestamp"),
        target.tell_lost,
    ]
    if format == "json":
        # The text renderer formats tracebacks itself.
        shared.append(structlog.processors.format_exc_info)
    renderer = _renderer(format, stream.isatty())
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        # Only write and flush are used of it.
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, target)),
        cache_logger_on_first_use=False,
    )
    _configure_foreign(shared[1:], renderer, target, verbosity)


def _renderer(format: Format, colors: bool) -> structlog.typing.Processor:
    if format == "json":
        return structlog.processors.JSONRenderer(serializer=_serialize)
    # Plain: with rich installed the default prints every local variable, thousands of lines for one error.
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, sort_keys=False, exception_formatter=plain)


def _configure_foreign(
    shared: list[structlog.typing.Processor], renderer: structlog.typing.Processor, target: _Target, verbosity: int
) -> None:
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_logger],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity >= FOREIGN_VERBOSITY else logging.WARNING)


def _name_logger(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    record = event.get("_record")
    if record is not None:
        event["logger"] = record.name
    return event


def get_logger(component: str) -> structlog.typing.FilteringBoundLogger:
    """A logger that names its ``component`` in every line."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind(component=component)
    return logger

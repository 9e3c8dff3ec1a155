"""The flags of ``run`` for the audit trail and the recording."""

from __future__ import annotations

import argparse

from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.cli.options import Arguments, UsageError, parse_seconds
from scheduler.config.options import AuditOptions

SIZE_MIN_BYTES = 1024 * 1024


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add, default = parser.add_argument, AuditOptions()
    add("--audit-file", default="", metavar="FILE",
        help="keep one record per decision in this SQLite file, of this replica alone (default: none)")  # fmt: skip
    add("--audit-max-age", type=parse_seconds, default=default.max_age_s, metavar="DURATION",
        help="forget older records (default 720h)")  # fmt: skip
    add("--audit-max-size", type=parse_size, default=default.max_size_bytes, metavar="QUANTITY",
        help="forget the oldest records beyond this size of the file (default 256Mi)")  # fmt: skip
    add("--record", default="", metavar="FOLDER",
        help="record what decisions are made on, for dra-scheduler replay (default: none)")  # fmt: skip
    add("--record-max-size", type=parse_size, default=default.record_max_bytes, metavar="QUANTITY",
        help="forget the oldest part of the recording beyond this size (default 256Mi)")  # fmt: skip


def audit_options(arguments: Arguments) -> AuditOptions:
    """What the flags say. Raises UsageError."""
    if arguments.audit_max_age <= 0:
        raise UsageError("--audit-max-age must be greater than zero")
    return AuditOptions(
        file=arguments.audit_file,
        max_age_s=arguments.audit_max_age,
        max_size_bytes=arguments.audit_max_size,
        record=arguments.record,
        record_max_bytes=arguments.record_max_size,
    )


def parse_size(text: str) -> int:
    """Bytes as a Kubernetes quantity, at least 1Mi."""
    try:
        size_bytes = parse_quantity(text).value()
    except QuantityError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 256Mi: {error}") from error
    if size_bytes < SIZE_MIN_BYTES:
        raise argparse.ArgumentTypeError(f"{text} is less than 1Mi")
    return size_bytes

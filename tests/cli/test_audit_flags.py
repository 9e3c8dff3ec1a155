"""The flags of the audit trail and the recording."""

from __future__ import annotations

import pytest

from scheduler.cli.options import Parser, UsageError, go_style
from scheduler.cli.run_options import add_run_arguments, run_options
from scheduler.config.options import AuditOptions


def audit(*argv: str) -> AuditOptions:
    """What a command line asks for."""
    parser = Parser(prog="run")
    add_run_arguments(parser)
    return run_options(parser.parse_args(go_style(parser, argv)), lambda path: "").audit


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    """No file, no folder."""
    assert audit() == AuditOptions()
    assert (AuditOptions().file, AuditOptions().record) == ("", "")


def test_sizes_are_quantities_and_ages_are_durations() -> None:
    """As everywhere in Kubernetes."""
    given = audit(
        "--audit-file=/a.db", "--audit-max-age=48h", "--audit-max-size", "1Gi", "--record=/r", "--record-max-size=64Mi"
    )
    assert given == AuditOptions("/a.db", 48 * 3600.0, 1 << 30, "/r", 64 << 20)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--audit-max-size=12", "12 is less than 1Mi"),
        ("--record-max-size=-5Gi", "-5Gi is less than 1Mi"),
        ("--audit-max-size=big", "'big' is not a size such as 256Mi"),
        ("--audit-max-age=0s", "--audit-max-age must be greater than zero"),
        ("--audit-max-age=30d", "30d"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_flag(flag: str, text: str) -> None:
    """At once, not when the file is full."""
    with pytest.raises(UsageError, match=text):
        audit(flag)

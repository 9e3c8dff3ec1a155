"""``make failovers`` judges the time within which another replica holds the lease, and ends accordingly."""

from __future__ import annotations

import pytest

from e2e.failovers import TAKEOVER_WITHIN_S, Takeover, conclude, too_late


def test_a_late_takeover_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 and a sentence with fault, time and promise; the others are not complained about."""
    results = [Takeover("SIGTERM", 0.9, 2.0), Takeover("SIGKILL", TAKEOVER_WITHIN_S + 1.0, 25.0)]
    assert conclude(results, []) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "VIOLATION" in line]
    assert "after SIGKILL another replica held the lease after 21.0 s, 20 s are promised" in line


def test_only_the_lease_is_judged_by_its_time() -> None:
    """The next Pod may take longer: it waits for the new leader's caches, too."""
    results = [Takeover("SIGKILL", TAKEOVER_WITHIN_S, 60.0)]
    assert conclude(results, []) == 0
    assert conclude(results, ["a Pod vanished: pod a"]) == 1


def test_another_lease_has_a_bound_of_its_own() -> None:
    """As in the suite, whose lease is shorter."""
    results = [Takeover("SIGSTOP", 8.2, 9.0), Takeover("clock jump", 15.1, 16.0)]
    assert [text.split(":")[0] for text in too_late(results, 15.0)] == ["takeover too late"]

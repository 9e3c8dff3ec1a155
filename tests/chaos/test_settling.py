"""A run passes only on a complete history: one that has not caught up gives no verdict, whatever it shows."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from e2e.chaos.__main__ import conclude
from e2e.chaos.report import report
from e2e.chaos.run import Outcome
from e2e.chaos.settling import SETTLE_MAX_S, Verdict, settle
from e2e.history import Fact, PodFact
from e2e.history_check import SILENT
from e2e.waiting import NeverHappenedError
from tests.history.histories import OURS

LATE = "never happened within 5.0 s: the history has caught up"
FORGOTTEN = PodFact(1, "u", "default", "a", OURS)


class FakeHistory:
    """Hands out the next facts with each pass; ``complete``: whether it has caught up in that pass, the last one stays.

    Also the clock: a pass that has not caught up takes 5 s, a pause what it takes.
    """

    def __init__(self, complete: Iterable[bool], *passes: list[Fact]) -> None:
        self._complete, self._passes = list(complete), list(passes)
        self.now_s, self.looks = 0.0, 0

    async def caught_up(self, timeout_s: float) -> None:
        complete = self._complete.pop(0) if len(self._complete) > 1 else self._complete[0]
        self.looks += 1
        if not complete:
            self.now_s += timeout_s
            raise NeverHappenedError(LATE)

    def take_all(self) -> list[Fact]:
        return self._passes.pop(0) if self._passes else []

    async def pause(self, pause_s: float) -> None:
        self.now_s += pause_s


async def settled(history: FakeHistory, *waits: bool) -> Verdict:
    """The verdict; ``waits``: whether a Pod that fits waits, pass by pass, False at the end."""
    passes = iter(waits)

    async def fit_and_wait() -> bool:
        return next(passes, False)

    async def ready() -> bool:
        return True

    return await settle(history, (), fit_and_wait, ready, clock=lambda: history.now_s, pause=history.pause)


async def test_a_pass_on_an_incomplete_history_is_no_success() -> None:
    """It is looked at again, and what comes late counts."""
    told = PodFact(2, "u", "default", "a", OURS, told="no room")
    history = FakeHistory([False, False, True], [], [FORGOTTEN], [told])
    verdict = await settled(history)
    assert history.looks == 3
    assert (verdict.facts, verdict.violations, verdict.unjudged) == ([FORGOTTEN, told], [], "")


async def test_what_stays_wrong_is_judged_when_time_is_up() -> None:
    """A complete history with a violation that stays is a verdict."""
    history = FakeHistory([True], [FORGOTTEN])
    verdict = await settled(history)
    assert history.now_s > SETTLE_MAX_S
    assert [violation.rule for violation in verdict.violations] == [SILENT]
    assert verdict.unjudged == ""


@pytest.mark.parametrize("facts", [[], [FORGOTTEN]], ids=["nothing wrong", "something wrong"])
async def test_a_history_that_never_catches_up_is_no_verdict(facts: list[Fact]) -> None:
    """Neither passed nor broken: unjudged, with the reason, and within the bound."""
    history = FakeHistory([False], facts)
    verdict = await settled(history)
    assert SETTLE_MAX_S < history.now_s < SETTLE_MAX_S + 15.0
    assert verdict.violations == []
    assert LATE in verdict.unjudged
    assert f"{len(facts)} violations in what there is" in verdict.unjudged


async def test_only_the_last_pass_counts() -> None:
    """Caught up while a Pod that fits waits, and not when nothing does: no success yet."""
    history = FakeHistory([True, False, True])
    verdict = await settled(history, True, False, False)
    assert history.looks == 3
    assert verdict.unjudged == ""


def test_an_unjudged_run_has_not_passed(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 for judged runs only, 1 for broken promises, 2 for no verdict; all are named."""
    fine, bad = Outcome(1, facts=10, settled_s=2.0), Outcome(2, ["a Pod vanished: pod a"], facts=5, settled_s=61.0)
    dark = Outcome(3, facts=7, settled_s=99.0, unjudged=LATE)
    assert conclude([fine]) == 0
    assert conclude([fine, bad, dark]) == 1
    assert conclude([fine, dark]) == 2
    assert "2 runs, 0 with violations [], 1 unjudged [3]; the slowest settled after 2.0 s" in capsys.readouterr().out
    assert "UNJUDGED" in dark.line()
    text = report([fine, dark])
    assert text.startswith("2 runs, seeds 1, 3: 0 with violations, 1 whose history could not be judged (3). 10 facts")
    assert "nan s" in report([dark])

"""Permit: answers in order, waiting, time-outs and who may end the waiting."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core import Pod
from scheduler.errors import PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.permit import PermitResult, WaitingPod, WaitingPods, run_permit
from scheduler.framework.profile import Profile
from scheduler.framework.status import SUCCESS, Code, Status, error, unschedulable
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info


class Says:
    """Answers with what it was given."""

    def __init__(self, name: str, answer: Any) -> None:
        self.name, self.answer, self.asked = name, answer, 0

    def permit(self, cycle: Cycle, node: str) -> Any:
        self.asked += 1
        return self.answer


def wait(timeout_s: float) -> PermitResult:
    return PermitResult(Status(Code.WAIT), timeout_s)


def run(*plugins: Says) -> Status | WaitingPod | None:
    cycle = Cycle(Pod(), pod_info(Pod()), ClusterState())
    return run_permit(Profile("p", {}, permit=plugins), cycle, "n", 100.0)


def waiting(*plugins: Says) -> WaitingPod:
    found = run(*plugins)
    assert isinstance(found, WaitingPod)
    return found


def test_without_objections_nothing_waits() -> None:
    """Success of all is no waiting; so is no plugin at all."""
    assert run() is None
    assert run(Says("a", PermitResult(SUCCESS)), Says("b", PermitResult(SUCCESS))) is None


def test_a_refusal_ends_it_and_names_its_plugin() -> None:
    """Those after it are not asked, and a wait before it counts for nothing."""
    last = Says("c", PermitResult(SUCCESS))
    status = run(Says("a", wait(1)), Says("b", PermitResult(unschedulable("no"))), last)
    assert isinstance(status, Status)
    assert (status.plugin, status.reasons, last.asked) == ("b", ("no",), 0)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (PermitResult(error("broken")), 'running Permit plugin "a": broken'),
        (SUCCESS, 'running Permit plugin "a": answered Status, not PermitResult'),
        (PermitResult(Status(Code.SKIP)), 'running Permit plugin "a": '),
    ],
)
def test_everything_else_is_an_error(answer: object, text: str) -> None:
    """An error, a code that Permit does not know, and an answer of another type."""
    with pytest.raises(PluginError) as caught:
        run(Says("a", answer))
    assert str(caught.value) == text


def test_all_who_wait_must_allow() -> None:
    """The Pod goes on with the last plugin's consent; each change is told."""
    found, changes = waiting(Says("a", wait(10)), Says("b", wait(20))), []
    found.on_change = lambda: changes.append(1)
    found.allow("a")
    assert (found.verdict(100.0), found.allowed) == (None, False)
    found.allow("b")
    assert (found.verdict(100.0), found.allowed, len(changes)) == (SUCCESS, True, 2)
    found.reject("b", "too late")
    assert found.verdict(500.0) == SUCCESS
    assert not found.preempt("too late")


def test_the_first_time_out_rejects() -> None:
    """The deadline of each plugin counts from the beginning; its text gives Go's form of the duration."""
    found = waiting(Says("a", wait(90)), Says("b", wait(1.5)))
    assert (found.due(), found.verdict(101.4)) == (101.5, None)
    verdict = found.verdict(101.5)
    assert verdict is not None
    assert (verdict.code, verdict.plugin) == (Code.UNSCHEDULABLE, "b")
    assert verdict.message == "rejected due to timeout after waiting 1.5s at plugin b"


def test_nobody_waits_longer_than_fifteen_minutes() -> None:
    """Longer wishes are cut."""
    found = waiting(Says("a", wait(86_400)))
    verdict = found.verdict(100.0 + 900.0)
    assert verdict is not None
    assert "after waiting 15m0s at plugin a" in verdict.message


def test_the_first_end_counts() -> None:
    """A preempted Pod is an error, not a rejection, and stays one whatever comes later."""
    found = waiting(Says("a", wait(10)))
    assert found.preempt("preempted")
    found.allow("a")
    found.reject("a", "no")
    verdict = found.verdict(1e9)
    assert verdict is not None
    assert (verdict.code, verdict.message) == (Code.ERROR, "preempted")


def test_waiting_pods_are_found_by_uid() -> None:
    """Plugins look Pods up to allow or reject them, also while they go through all of them."""
    pods, found = WaitingPods(), waiting(Says("a", wait(10)))
    pods.add(found)
    assert pods.get(found.pod.uid) is found
    for each in pods:
        pods.remove(each.pod.uid)
    assert pods.get(found.pod.uid) is None
    assert list(pods) == []

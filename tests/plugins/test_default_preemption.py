"""DefaultPreemption by itself: who may preempt, which candidate wins, who is held back, what pauses do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plugins.default_preemption import DefaultPreemption
from plugins.default_preemption.choice import best
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.cycle.attempt import Attempt
from scheduler.cycle.decision import Need, Rejected, Running
from scheduler.explain.outcome import report_failure
from scheduler.framework.cycle import Cycle
from scheduler.framework.dryrun import Candidate
from scheduler.framework.instructions import PreemptPods
from scheduler.framework.nodeview import NodeView
from scheduler.framework.plugin import PostFilterResult
from scheduler.framework.status import SUCCESS, Code, Status, unschedulable
from scheduler.state.cluster import ClusterState
from tests.plugins.preemption_world import NOW, Json, attempt_of, profile_of, run, state_of


def node(name: str, cpu: str = "2") -> Json:
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    }


def item(name: str, priority: int, cpu: str = "1", on: str = "", started: int = 0, **status: Any) -> Json:
    """A Pod; ``started``: seconds after midnight."""
    spec: Json = {"priority": priority, "containers": [{"name": "c", "image": "i"}]}
    spec["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    if on:
        spec["nodeName"] = on
        status.setdefault("startTime", f"2026-01-01T00:{started // 60:02}:{started % 60:02}Z")
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": spec,
        "status": status,
    }


def pod(name: str, priority: int, cpu: str = "1", on: str = "", started: int = 0, **status: Any) -> Pod:
    found: Pod = convert(POD, item(name, priority, cpu, on, started, **status))
    return found


def candidate(name: str, *victims: tuple[int, int], violations: int = 0) -> Candidate:
    """Victims as (priority, start)."""
    return Candidate(
        name, tuple(pod(f"{name}{i}", p, on="n", started=s) for i, (p, s) in enumerate(victims)), violations
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (candidate("a", (90, 0), (90, 0)), candidate("b", (1, 9), violations=1)),
        (candidate("a", (1, 0), (1, 0), (1, 0)), candidate("b", (2, 9))),
        (candidate("a", (5, 0), (1, 0)), candidate("b", (5, 9), (2, 9))),
        (candidate("a", (5, 0)), candidate("b", (5, 9), (-(2**31), 9))),
        (candidate("a", (5, 9), (1, 0)), candidate("b", (5, 3), (1, 30))),
    ],
    ids=["fewest violations", "lowest highest victim", "smallest sum", "fewest victims", "latest start"],
)
def test_each_rule_decides_when_those_before_do_not(better: Candidate, worse: Candidate) -> None:
    """3.18.4: violations, highest victim, sum, number, earliest start among the highest."""
    assert best([better, worse], NOW) is better
    assert best([worse, better], NOW) is better


def test_among_equal_candidates_the_first_wins() -> None:
    """Equal input gives equal output."""
    first, second = candidate("a", (1, 0)), candidate("b", (1, 0))
    assert best([first, second], NOW) is first


def preemptor_and_plugin(state: ClusterState) -> tuple[Pod, DefaultPreemption, PreemptPods]:
    """A Pod that has just chosen its victims."""
    preemptor = pod("big", 10, "2")
    state.apply(Change(POD, None, preemptor))
    profile = profile_of(state)
    decision, asked = run(attempt_of(state, preemptor, profile))
    assert isinstance(decision, Rejected)
    (instruction,) = asked
    assert isinstance(instruction, PreemptPods)
    return preemptor, profile.plugins["DefaultPreemption"], instruction


def test_a_preemptor_is_held_back_until_its_last_victim_goes() -> None:
    """PreEnqueue refuses while victims are being told, and lets go as soon as the last one is going or gone."""
    state = state_of([node("n"), item("a", 0, on="n"), item("b", 0, on="n")])
    preemptor, plugin, instruction = preemptor_and_plugin(state)
    held = plugin.pre_enqueue(preemptor)
    assert (held.code, held.reasons) == (
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        ("waiting for the preemption for this pod to be finished",),
    )
    assert plugin.pre_enqueue(pod("other", 10)) == SUCCESS
    last = instruction.victims[-1]
    instruction.progress.last = last
    assert plugin.pre_enqueue(preemptor) == held
    state.apply(Change(POD, last, None))
    assert plugin.pre_enqueue(preemptor) == SUCCESS
    assert plugin.pre_enqueue(preemptor) == SUCCESS


def test_a_preemption_that_failed_holds_nobody_back() -> None:
    """The end of the background work opens the gate whatever came of it."""
    state = state_of([node("n"), item("a", 0, on="n"), item("b", 0, on="n")])
    preemptor, plugin, instruction = preemptor_and_plugin(state)
    instruction.progress.ended = True
    assert plugin.pre_enqueue(preemptor) == SUCCESS


def test_victims_that_go_already_hold_nobody_back() -> None:
    """3.18.5: when every victim is being deleted, the preemptor is not held back."""
    going = {**item("a", 0, "2", on="n")}
    going["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    preemptor, plugin, instruction = preemptor_and_plugin(state_of([node("n"), going]))
    assert [victim.uid for victim in instruction.victims] == ["a"]
    assert plugin.pre_enqueue(preemptor) == SUCCESS


def test_who_goes_anyway_goes_first_among_equals() -> None:
    """Of Pods equal in all else the one that is being deleted is the victim."""
    going = item("b", 0, on="n")
    going["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    state = state_of([node("n", "3"), item("a", 0, on="n"), going, item("c", 0, on="n")])
    decision, asked = run(attempt_of(state, pod("big", 10, "1"), profile_of(state)))
    assert isinstance(decision, Rejected)
    assert [victim.uid for one in asked if isinstance(one, PreemptPods) for victim in one.victims] == ["b"]


def test_its_events_wake_nobody() -> None:
    """The registration exists so that deletions are recorded for Pods in flight; its hint never queues."""
    (registration,) = profile_of(ClusterState()).registrations["DefaultPreemption"]
    assert registration.hint is not None
    assert registration.hint(pod("w", 1), pod("v", 0, on="n"), None) is False


def message(state: ClusterState, preemptor: Pod, plugins: Json | None = None) -> tuple[str, str | None]:
    decision, _ = run(attempt_of(state, preemptor, profile_of(state, plugins=plugins)))
    assert isinstance(decision, Rejected)
    return report_failure(decision).message, decision.nominated_node


def test_a_failed_instruction_is_the_message_and_keeps_the_nomination() -> None:
    """6.3: PostFilter Error keeps the nomination; the text follows the fit error."""
    state = state_of([node("n"), item("a", 0, "2", on="n")])
    attempt = attempt_of(state, pod("big", 10, "2"), profile_of(state))
    outcome = attempt.step(1 << 62)
    assert isinstance(outcome, Need)
    attempt.answer("no connection")
    decision = attempt.step(1 << 62)
    assert isinstance(decision, Rejected)
    assert report_failure(decision).message == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: no connection"
    )
    assert decision.nominated_node is None


class Moody:
    """A user's filter that breaks as soon as a node has no Pods."""

    name = "Moody"

    def __init__(self, handle: Any) -> None:
        """Nothing to keep."""

    def check(self, cycle: Cycle, node: NodeView) -> Status:
        if not node.pods:
            raise ValueError("an empty node")
        return SUCCESS


class Crowded:
    """A user's filter in the per-node form that wants at most one Pod on a node."""

    name = "Crowded"

    def __init__(self, handle: Any) -> None:
        """Nothing to keep."""

    def check(self, cycle: Cycle, node: NodeView) -> Status:
        return SUCCESS if len(node.pods) <= 1 else unschedulable("too crowded")


def test_a_filter_that_breaks_in_the_dry_run_costs_the_preemption_only() -> None:
    """The error is the PostFilter message; the attempt still counts as Unschedulable."""
    state = state_of([node("n"), item("a", 0, "2", on="n")])
    text, nominated = message(state, pod("big", 10, "2"), {"Moody": Moody})
    broken = 'running Filter plugin "Moody" on node n: ValueError: an empty node'
    assert text == f"0/1 nodes are available: 1 Insufficient cpu. preemption: {broken}"
    assert nominated is None


def test_a_users_filter_sees_the_nodes_as_they_would_be() -> None:
    """A filter that knows nothing of preemption works in the dry run: it looks at the Pods left on the node."""
    state = state_of([node("n", "8"), item("a", 0, on="n", started=1), item("b", 5, on="n"), item("c", 0, on="n")])
    decision, asked = run(attempt_of(state, pod("big", 10), profile_of(state, plugins={"Crowded": Crowded})))
    assert isinstance(decision, Rejected)
    assert [victim.uid for one in asked if isinstance(one, PreemptPods) for victim in one.victims] == ["c", "a"]


def finish(attempt: Attempt, budget: int, between: Any = lambda: None) -> tuple[Any, list[str]]:
    victims: list[str] = []
    pauses = 0
    while True:
        outcome = attempt.step(budget)
        if isinstance(outcome, Need):
            assert isinstance(outcome.instruction, PreemptPods)
            victims = [victim.uid for victim in outcome.instruction.victims]
            attempt.answer(None)
        elif isinstance(outcome, Running):
            pauses += 1
            between()
        else:
            assert pauses or budget > 1
            return outcome, victims


def test_pauses_change_nothing() -> None:
    """With the smallest budget the dry run pauses between filters and finds the same."""
    objects = [node(f"n{i}") for i in range(5)]
    objects += [item(f"p{i}{k}", (i * 7 + k) % 5, on=f"n{i}", started=i * 9 + k) for i in range(5) for k in range(2)]
    answers = []
    for budget in (1, 1 << 62):
        state = state_of(objects)
        decision, victims = finish(attempt_of(state, pod("big", 10, "2"), profile_of(state)), budget)
        answers.append((decision.nominated_node, victims, report_failure(decision).message))
    assert answers[0] == answers[1]


def test_a_node_that_comes_while_victims_are_sought_begins_the_attempt_anew() -> None:
    """Rows may stand for other nodes by then: nothing found before is used. The new node fits."""
    state = state_of([node("n"), item("a", 0, "2", on="n")])
    steps = []

    def between() -> None:
        steps.append(1)
        if len(steps) == 6:
            state.apply(Change(NODE, None, convert(NODE, node("fresh"))))

    decision, victims = finish(attempt_of(state, pod("big", 10, "2"), profile_of(state)), 1, between)
    assert len(steps) > 6
    assert (decision.node, victims) == ("fresh", [])


def test_the_search_stops_with_enough_candidates() -> None:
    """3.18.2: minCandidateNodesPercentage and -Absolute; without a violation-free candidate it goes on."""
    objects = [node(f"n{i}", "1") for i in range(200)]
    objects += [item(f"p{i}", 0, on=f"n{i}", started=i % 60) for i in range(200)]
    few = {"DefaultPreemption": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}}
    many = {"DefaultPreemption": {"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 1}}
    chosen = []
    for arguments in (few, many):
        state = state_of(objects)
        decision, _ = run(attempt_of(state, pod("big", 10), profile_of(state, arguments)))
        assert isinstance(decision, Rejected)
        chosen.append(decision.nominated_node)
    assert chosen[0] != chosen[1]
    assert chosen[1] == "n59"


def test_only_violating_candidates_do_not_end_the_search() -> None:
    """3.18.2: it goes on until one candidate violates no budget."""
    objects = [node(f"n{i}", "1") for i in range(150)]
    guarded = [item(f"p{i}", 0, on=f"n{i}") for i in range(150)]
    for one in guarded[:-1]:
        one["metadata"]["labels"] = {"app": "db"}
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
    }
    few = {"DefaultPreemption": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}}
    for name in ("big", "huge", "other"):  # the search begins at other nodes
        state = state_of([*objects, *guarded, budget])
        decision, _ = run(attempt_of(state, pod(name, 10), profile_of(state, few)))
        assert isinstance(decision, Rejected)
        assert decision.nominated_node == "n149"


def test_a_pod_that_nothing_helps_loses_its_nomination() -> None:
    """6.3: no candidate clears it; not being eligible keeps it as it is."""
    state = state_of([node("n"), item("a", 10, "2", on="n")])
    decision, _ = run(attempt_of(state, pod("big", 10, "2", nominatedNodeName="n"), profile_of(state)))
    assert isinstance(decision, Rejected)
    assert decision.nominated_node == ""
    never = item("big", 10, "2", nominatedNodeName="n")
    never["spec"]["preemptionPolicy"] = "Never"
    decision, _ = run(attempt_of(state, convert(POD, never), profile_of(state)))
    assert isinstance(decision, Rejected)
    assert decision.nominated_node is None


@pytest.mark.parametrize(
    ("condition", "eligible"),
    [
        ({"status": "True", "reason": "PreemptionByScheduler"}, False),
        ({"status": "False", "reason": "PreemptionByScheduler"}, True),
        ({"status": "True", "reason": "EvictionByEvictionAPI"}, True),
    ],
)
def test_who_waits_for_a_victim_does_not_preempt_again(condition: Json, eligible: bool) -> None:
    """3.18.1: a lower Pod on the nominated node that goes because of a preemption is worth waiting for."""
    going = item("a", 0, "1", on="n1", conditions=[{"type": "DisruptionTarget", **condition}])
    going["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    state = state_of([node("n1"), going, item("b", 0, on="n1"), node("n2"), item("c", 0, "2", on="n2")])
    decision, asked = run(attempt_of(state, pod("big", 10, "2", nominatedNodeName="n1"), profile_of(state)))
    assert isinstance(decision, Rejected)
    assert bool(asked) is eligible
    text = "preemption: not eligible due to a terminating pod on the nominated node."
    assert (text in report_failure(decision).message) is not eligible


def test_a_nominated_node_that_became_hopeless_is_not_waited_for() -> None:
    """3.18.1: when the nominated node is Unresolvable by now, the Pod may preempt elsewhere."""
    going = item("a", 0, "2", on="n1", conditions=[{"type": "DisruptionTarget", "status": "True"}])
    going["status"]["conditions"][0]["reason"] = "PreemptionByScheduler"
    going["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    tainted = node("n1")
    tainted["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    state = state_of([tainted, going, node("n2"), item("c", 0, "2", on="n2")])
    decision, _ = run(attempt_of(state, pod("big", 10, "2", nominatedNodeName="n1"), profile_of(state)))
    assert isinstance(decision, Rejected)
    assert decision.nominated_node == "n2"


class Talks:
    """A PostFilter before DefaultPreemption that has something to say."""

    name = "Talks"

    def __init__(self, handle: Any) -> None:
        """Nothing to keep."""

    def post_filter(self, cycle: Cycle, statuses: Any) -> Any:
        """Always Unschedulable, with a reason."""
        return PostFilterResult(unschedulable("talking"))
        yield  # a generator, as PostFilters are


@pytest.mark.parametrize(
    ("priority", "text"),
    [
        (10, "preemption: found a potential placement for pod on node n, preempting 1 victims"),
        (0, "talking, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."),
    ],
)
def test_what_others_said_is_lost_when_preemption_succeeds(priority: int, text: str) -> None:
    """1.7, 3.18.6: success speaks alone; refusals are joined."""
    state = state_of([node("n"), item("a", 0, "2", on="n")])
    profile = profile_of(state)
    profile = replace(profile, post_filter=(Talks(None), *profile.post_filter))
    decision, _ = run(attempt_of(state, pod("big", priority, "2"), profile))
    assert isinstance(decision, Rejected)
    assert report_failure(decision).message == f"0/1 nodes are available: 1 Insufficient cpu. {text}"

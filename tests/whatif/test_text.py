"""The difference as people read it."""

from __future__ import annotations

from scheduler.whatif.text import SHOWN_MAX, difference_lines
from tests.app.objects import node, pod
from tests.whatif.worlds import Object, add, ask, placed


def told(items: list[Object], *edits: Object, until_stable: bool = False) -> str:
    """The text."""
    return "\n".join(difference_lines(ask(items, *edits, until_stable=until_stable)))


def test_nothing_changes() -> None:
    """Said in words, with what the input lacks behind."""
    shown = told([node("n1")], {"uncordon": {"node": "n1"}})
    assert shown.startswith(
        "edit: node n1 takes Pods again\nnothing changes\n0 Pods placed, 0 waiting (without the edits: "
    )
    assert "note: no Pod in the input: nodes look empty" in shown


def test_pods_that_wait_for_one_reason_are_told_together() -> None:
    """A hundred Pods are two lines."""
    lines = told([node("n1", cpu="1")], add(pod("p", cpu="2"), count=100)).splitlines()
    assert lines[1] == "added 100 pods: default/p-1, default/p-2, default/p-3, …, default/p-100"
    assert lines[2].startswith("  is: waits: 0/1 nodes are available: 1 Insufficient cpu.")
    assert lines[3].startswith("0 Pods placed, 100 waiting")


def test_a_reason_that_names_the_pod_does_not_keep_pods_apart() -> None:
    """A template that is missing is one line for all Pods of a Job; a single Pod is named."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
           "spec": {"parallelism": 2, "template": {"spec": pod("x", template="gone")["spec"]}}}  # fmt: skip
    lines = told([node("n1")], add(job, count=3)).splitlines()
    assert lines[1:3] == [
        "added 6 pods: default/j-1-0, default/j-1-1, default/j-2-0, …, default/j-3-1",
        '  is: held back: pod "…": ResourceClaim not created yet',
    ]
    assert lines[3].startswith("0 Pods placed, 6 waiting")
    assert 'pod "default/p": ResourceClaim not created yet' in told([node("n1")], add(pod("p", template="gone")))


def test_pods_of_a_scheduler_that_is_not_served_come_with_a_way_out() -> None:
    """What to write instead; nothing of the kind for Pods that were there before."""
    lines = told([node("n1")], add(pod("p", scheduler="default-scheduler"), count=2)).splitlines()
    assert lines[2] == "  is: not served: it waits for scheduler default-scheduler, which has no profile here"
    assert lines[4] == (
        "Pods of default-scheduler get no place here: --serve default-scheduler after --add, or the name of a profile "
        "in spec.schedulerName"
    )
    there = told([node("n1"), pod("p", scheduler="default-scheduler")], {"uncordon": {"node": "n1"}})
    assert "--serve" not in there


def test_a_long_answer_is_cut_and_says_so() -> None:
    """Whoever has a node has lines of its own."""
    shown = told(
        [node("n1", cpu="8")], add(pod("p", cpu="10m"), count=SHOWN_MAX - 90), add(pod("q", cpu="10m"), count=2)
    )
    assert "more changes" not in shown
    many = [node(f"n{index}") for index in range(3)]
    shown = told(many, add(pod("p", cpu="10m"), count=SHOWN_MAX + 20))
    assert "… and 20 more changes (-o json shows all)" in shown


def test_who_goes_and_who_comes_instead() -> None:
    """Each names the other."""
    items = [node("n1"), node("n2"), placed(pod("web-1"), "n1", "ReplicaSet/web")]
    shown = told(items, {"drain": {"node": "n1"}})
    assert "removed pod default/web-1  (node n1 is drained; pod default/web-1-new comes in its place)" in shown
    assert (
        "added pod default/web-1-new  (in place of pod default/web-1)\n  is: on node n2\n    the only node that fits"
        in shown
    )


def test_preemption_is_told_before_it_is_carried_out() -> None:
    """Who would have to go, on which node, and how to see what follows."""
    items = [node("n1", cpu="1"), placed(pod("low", cpu="800m"), "n1")]
    shown = told(items, add(pod("high", cpu="500m", priority=3)))
    assert "    would preempt default/low on node n1" in shown
    assert "Pods would be preempted: --until-stable shows what follows" in shown
    done = told(items, add(pod("high", cpu="500m", priority=3)), until_stable=True)
    assert "removed pod default/low  (preempted for pod default/high)\n  before: on node n1" in done
    assert "would preempt" not in done


def test_styles_are_put_around_words() -> None:
    """Colours come from outside."""
    lines = difference_lines(ask([node("n1")], add(pod("p"))), lambda style, text: f"<{style}>{text}")
    assert list(lines)[1] == "<good>added <title>pod default/p"

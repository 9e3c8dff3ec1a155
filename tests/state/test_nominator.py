"""Nominations: one node per Pod, gone with Pod and node; and what the cluster state makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.errors import InternalError
from scheduler.state.cluster import ClusterState
from scheduler.state.nominator import Nominator
from scheduler.state.podinfo import pod_info


def waiting(name: str, nominated: str = "", node: str = "") -> Pod:
    item = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"nominatedNodeName": nominated},
    }
    pod: Pod = convert(POD, item)
    return pod


def names(nominator: Nominator, node: str) -> list[str]:
    return [info.uid for info in nominator.on(node)]


def test_a_pod_is_nominated_to_one_node_at_most() -> None:
    """A new nomination ends the one before; an empty one ends it, too."""
    nominator, info = Nominator(), pod_info(waiting("p"))
    nominator.nominate(info, "a")
    nominator.nominate(info, "b")
    assert (names(nominator, "a"), names(nominator, "b"), nominator.node_of("p")) == ([], ["p"], "b")
    nominator.nominate(info, "")
    assert not nominator
    assert list(nominator.nodes()) == []


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [("", "", "memory"), ("", "x", "x"), ("x", "", ""), ("x", "y", "y")],
    ids=["our own write has not come back", "set", "cleared", "moved"],
)
def test_what_the_watch_shows_wins_once_it_says_something(before: str, now: str, expected: str) -> None:
    """A Pod that never had a nomination keeps the one in memory; a change in the API is the truth."""
    nominator, info = Nominator(), pod_info(waiting("p"))
    nominator.nominate(info, "memory")
    nominator.seen(info, before, now)
    assert nominator.node_of("p") == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["", "a", "b", "c"]), st.integers(0, 3))))
def test_both_indexes_agree_after_any_calls(calls: list[tuple[int, str, int]]) -> None:
    """Nominations by node and by Pod are the same relation, whatever happened."""
    nominator, model = Nominator(), dict[str, str]()
    infos = [pod_info(waiting(f"p{index}")) for index in range(5)]
    for index, node, kind in calls:
        uid = infos[index].uid
        if kind == 0:
            nominator.forget(uid)
            model.pop(uid, None)
        elif kind == 1:
            nominator.forget_node(node)
            model = {other: there for other, there in model.items() if there != node}
        else:
            nominator.nominate(infos[index], node)
            model.pop(uid, None)
            if node:
                model[uid] = node
        nominator.verify(model.keys())
        assert {uid: nominator.node_of(uid) for uid in model} == model
        assert bool(nominator) == bool(model)


def test_verify_finds_a_nomination_of_a_stranger() -> None:
    """A Pod that does not wait must not keep room."""
    nominator = Nominator()
    nominator.nominate(pod_info(waiting("p")), "a")
    with pytest.raises(InternalError):
        nominator.verify([])


def test_b123_nominations_follow_pods_and_nodes() -> None:
    """B123: a nomination ends when the Pod is placed, assumed or gone, and when its node goes."""
    state = ClusterState()
    node = convert(NODE, {"metadata": {"name": "a", "uid": "a"}})
    state.apply(Change(NODE, None, node))
    for step in ("placed", "gone", "ended", "assumed", "node"):
        pod = waiting(step, "a")
        state.apply(Change(POD, None, pod))
        assert names(state.nominator, "a") == [step]
        if step == "placed":
            state.apply(Change(POD, pod, waiting(step, "", "a")))
        elif step == "gone":
            state.apply(Change(POD, pod, None))
        elif step == "ended":
            ended = convert(POD, {"metadata": {"name": step, "uid": step}, "status": {"phase": "Failed"}})
            state.apply(Change(POD, pod, ended))
        elif step == "assumed":
            state.assume(pod, "a")
        else:
            state.apply(Change(NODE, node, None))
        assert not state.nominator, step
        state.verify()


def test_our_own_nomination_lasts_until_the_api_speaks() -> None:
    """A nomination in memory is for waiting Pods only, and an unrelated update does not end it."""
    state = ClusterState()
    pod = waiting("p")
    state.nominate(pod, "a")
    assert not state.nominator
    state.apply(Change(POD, None, pod))
    state.nominate(pod, "a")
    newer = waiting("p")
    state.apply(Change(POD, pod, newer))
    assert names(state.nominator, "a") == ["p"]
    state.apply(Change(POD, newer, waiting("p", "b")))
    assert (names(state.nominator, "a"), names(state.nominator, "b")) == ([], ["p"])

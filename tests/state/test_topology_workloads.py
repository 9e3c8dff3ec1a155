"""Services and controllers, and the selector they give a Pod; Pods and nodes reach the topology counts."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, Kind, convert
from scheduler.api.selectors import Requirement
from scheduler.api.workloads import REPLICA_SET, REPLICATION_CONTROLLER, SERVICE, STATEFUL_SET, WORKLOADS
from scheduler.state.cluster import ClusterState
from scheduler.state.topology_terms import Condition, PodMatch

Json = dict[str, Any]


def apply(state: ClusterState, kind: Kind, new: Json | None, old: Json | None = None) -> None:
    before, after = (convert(kind, item) if item is not None else None for item in (old, new))
    assert state.apply(Change(kind, before, after)) == [] or kind in (NODE, POD)


def named(name: str, selector: Any, namespace: str = "default") -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}


def pod(labels: Json, owner: Json | None = None, node: str = "") -> Pod:
    metadata: Json = {"name": "p", "uid": "p", "namespace": "default", "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [{**owner, "name": "owner", "controller": True}]
    found: Pod = convert(POD, {"metadata": metadata, "spec": {"nodeName": node}})
    return found


def equal(**labels: str) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items()))


def test_services_that_select_the_pod_are_merged() -> None:
    """Only Services of its namespace whose whole selector the Pod carries; one without a selector selects nothing."""
    state = ClusterState()
    apply(state, SERVICE, named("a", {"app": "web"}))
    apply(state, SERVICE, named("b", {"tier": "front"}))
    apply(state, SERVICE, named("c", {"app": "web", "tier": "back"}))
    apply(state, SERVICE, named("d", None))
    apply(state, SERVICE, named("e", {"x": "y"}, "other"))
    wanted = pod({"app": "web", "tier": "front", "x": "y"})
    assert state.workloads.default_selector(wanted) == equal(app="web", tier="front")
    apply(state, SERVICE, None, named("b", {"tier": "front"}))
    assert state.workloads.default_selector(wanted) == equal(app="web")
    assert state.workloads.default_selector(pod({})) == ()


@pytest.mark.parametrize("kind", [REPLICATION_CONTROLLER, REPLICA_SET, STATEFUL_SET], ids=lambda kind: kind.name)
def test_the_controllers_selector_is_added(kind: Kind) -> None:
    """The controlling owner counts when its kind and version are the ones known, and for as long as it exists."""
    state = ClusterState()
    selector = {"job": "1"} if kind is REPLICATION_CONTROLLER else {"matchLabels": {"job": "1"}}
    apply(state, SERVICE, named("a", {"app": "web"}))
    apply(state, kind, named("owner", selector))
    owner = {"apiVersion": kind.api_version, "kind": kind.name}
    labels = {"app": "web"}
    assert state.workloads.default_selector(pod(labels, owner)) == equal(app="web", job="1")
    assert state.workloads.default_selector(pod(labels, {**owner, "apiVersion": "x/v1"})) == equal(app="web")
    apply(state, kind, None, named("owner", selector))
    assert state.workloads.default_selector(pod(labels, owner)) == equal(app="web")


@pytest.mark.parametrize("selector", [None, {"matchExpressions": [{"key": "a", "operator": "Near"}]}])
def test_a_controller_without_a_usable_selector_adds_nothing(selector: Any) -> None:
    """As upstream: neither a missing nor an unreadable selector makes the Pod's own selector select nothing."""
    state = ClusterState()
    apply(state, SERVICE, named("a", {"app": "web"}))
    apply(state, REPLICA_SET, named("owner", selector))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    assert state.workloads.default_selector(pod({"app": "web"}, owner)) == equal(app="web")


def test_kinds_of_workloads() -> None:
    """Paths as the API server serves them."""
    assert [kind.path("ns") for kind in WORKLOADS] == [
        "/api/v1/namespaces/ns/services",
        "/api/v1/namespaces/ns/replicationcontrollers",
        "/apis/apps/v1/namespaces/ns/replicasets",
        "/apis/apps/v1/namespaces/ns/statefulsets",
    ]


def test_the_state_tells_the_counts() -> None:
    """Pods assumed, forgotten, bound before their node is known, relabelled and gone: the counts follow each."""
    state = ClusterState()
    match = PodMatch((Condition(None, equal(app="web")),))

    def count() -> dict[str, int]:
        counts = state.topology.counts(match, state.nodes.capacity)
        state.verify()
        return {state.nodes.name_of(row): int(number) for row, number in enumerate(counts.tolist()) if number}

    waiting = pod({"app": "web"})
    state.assume(waiting, "n0")
    assert count() == {"n0": 1}
    state.forget(waiting)
    assert count() == {}
    bound = pod({"app": "web"}, node="n1")
    state.apply(Change(POD, None, bound))
    apply(state, NODE, {"metadata": {"name": "n1"}})
    assert count() == {"n1": 1}
    relabelled = pod({"app": "db"}, node="n1")
    state.apply(Change(POD, bound, relabelled))
    assert count() == {}
    state.apply(Change(POD, relabelled, bound))
    apply(state, NODE, None, {"metadata": {"name": "n1"}})
    assert count() == {"n1": 1}
    state.apply(Change(POD, bound, None))
    assert count() == {}

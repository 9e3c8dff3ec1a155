"""Behaviour of whole attempts that is easily missed, and cases that went wrong elsewhere: see docs/cases.md."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.app.observation import new_cycle, observe, run_attempt
from scheduler.app.whole_case import WholeCase, build_case
from scheduler.cycle.decision import Placed
from scheduler.errors import ConfigError, UserError

Json = dict[str, Any]
NOW = 1_900_000_000.0
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def node(
    name: str, cpu: str = "4", *, labels: Json | None = None, taints: list[Json] | None = None, **spec: Any
) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": {"taints": taints or [], **spec},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    }


def pod(name: str = "p", cpu: str = "", on: str = "", *, labels: Json | None = None, **spec: Any) -> Json:
    requests = {"cpu": cpu} if cpu else {}
    body = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}], **spec}
    if on:
        body["nodeName"] = on
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    status = {"startTime": "2026-01-01T00:00:00Z"} if on else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body, "status": status}


def case(objects: list[Json], waiting: Json | None = None, config: Json | None = None) -> WholeCase:
    return build_case(objects, waiting or pod(), config, NOW)


def answer(objects: list[Json], waiting: Json | None = None) -> Json:
    return observe(case(objects, waiting))


def terms(kind: str, app: str, key: str = HOST) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_ks1_no_node_at_all() -> None:
    """No PostFilter, a message of its own, and still the reason Unschedulable."""
    found = answer([])
    assert (found["reason"], found["message"]) == ("Unschedulable", "no nodes available to schedule pods")
    assert "preemption" not in found


def test_ks2_one_node_is_not_scored() -> None:
    """Neither is a nominated node that fits."""
    one = case([node("a")])
    decision, _ = run_attempt(one, one.profile)
    assert isinstance(decision, Placed)
    assert decision.scores is None
    waiting = pod()
    waiting["status"] = {"nominatedNodeName": "b"}
    two = case([node("a", "64"), node("b")], waiting)
    decision, _ = run_attempt(two, two.profile)
    assert isinstance(decision, Placed)
    assert (decision.node, decision.scores) == ("b", None)


def test_ks4_constant_offsets() -> None:
    """Without taints TaintToleration gives everybody 100, so does spread where nobody counts yet."""
    spread = [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway",
               "labelSelector": {"matchLabels": {"app": "x"}}}]  # fmt: skip
    found = answer([node("a"), node("b")], pod(topologySpreadConstraints=spread))
    for scores in found["scores"].values():
        assert (scores["TaintToleration"], scores["PodTopologySpread"]) == (100, 100)
        assert scores.get("VolumeBinding", 0) == 0


def test_ks5_a_skipped_score_counts_nothing() -> None:
    """NodeAffinity without preferences has no part in the total."""
    found = answer([node("a"), node("b")], pod(cpu="1"))
    scores = found["scores"]["a"]
    assert "NodeAffinity" not in scores
    weighted = sum(value * found["weights"][name] for name, value in scores.items() if name != "total")
    assert scores["total"] == weighted


def test_ks6_more_than_the_node_has_is_no_matter_of_preemption() -> None:
    """The node is unresolvable and no candidate, though every Pod on it could go."""
    found = answer([node("a", "2"), pod("victim", "1", "a")], pod(cpu="3", priority=10))
    assert found["nodes"]["a"]["code"] == "UnschedulableAndUnresolvable"
    assert found["preemption"]["candidates"] == {}
    assert "1 Preemption is not helpful for scheduling" in found["message"]


def test_ks7_who_honors_pod_level_requests() -> None:
    """The filter and BalancedAllocation do, the score of Fit looks at the containers."""
    nodes = [node("a"), node("b")]
    plain, whole = answer(nodes, pod(cpu="1")), answer(nodes, pod(cpu="1", resources={"requests": {"cpu": "3"}}))
    for name in ("a", "b"):
        one, other = plain["raw_scores"][name], whole["raw_scores"][name]
        assert one["NodeResourcesFit"] == other["NodeResourcesFit"]
        assert one["NodeResourcesBalancedAllocation"] != other["NodeResourcesBalancedAllocation"]
    refused = answer(nodes, pod(cpu="1", resources={"requests": {"cpu": "5"}}))
    assert refused["nodes"]["a"]["plugin"] == "NodeResourcesFit"


def test_ks8_an_empty_selector_of_spread() -> None:
    """It counts nobody and yet the Pod itself; without domains the minimum is 0."""
    spread = [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]
    crowded = [node("a"), node("b"), *(pod(f"on{number}", "", "a") for number in range(3))]
    assert answer(crowded, pod(topologySpreadConstraints=spread))["nodes"]["a"]["code"] == "Success"
    elsewhere = pod(topologySpreadConstraints=spread, nodeSelector={HOST: "nowhere"})
    assert answer(crowded, elsewhere)["failures"]["a"].keys() == {"NodeAffinity"}


def test_ks9_the_first_of_its_kind() -> None:
    """A Pod that wants its own kind near is let in only while there is none in the whole cluster."""
    mine = pod(labels={"app": "x"}, affinity=terms("podAffinity", "x"))
    assert answer([node("a"), node("b")], mine)["selected"] in ("a", "b")
    taken = [node("a", "1"), pod("first", "1", "a", labels={"app": "x"}), node("b")]
    found = answer(taken, pod(cpu="1", labels={"app": "x"}, affinity=terms("podAffinity", "x")))
    assert found["nodes"]["b"]["reasons"] == ["node(s) didn't match pod affinity rules"]


def test_ks13_the_text_after_a_preemption() -> None:
    """The failed attempt's message ends with what was found."""
    found = answer([node("a", "2"), pod("victim", "2", "a")], pod(cpu="1", priority=10))
    assert found["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, "
        "preempting 1 victims"
    )
    assert found["preemption"]["victims"] == ["default/victim"]


def test_b105_pods_of_every_scheduler_count() -> None:
    """ks 15 too: room is what all assigned Pods leave, whoever bound them."""
    others = [
        pod(f"on{place}", "1", "a", schedulerName=name) for place, name in enumerate(("x", "default-scheduler", ""))
    ]
    assert answer([node("a"), *others], pod(cpu="1"))["selected"] == "a"
    found = answer([node("a"), *others], pod(cpu="2"))
    assert found["nodes"]["a"]["reasons"] == ["Insufficient cpu"]


@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("taint", [False, True])
def test_b112_cordoned_nodes(field: bool, taint: bool) -> None:
    """The field and the taint each keep Pods away; the toleration of the taint lifts both."""
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}] if taint else []
    cordoned = node("a", taints=taints, unschedulable=field)
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert ("selected" in answer([cordoned])) == (not field and not taint)
    assert answer([cordoned], tolerant)["selected"] == "a"


def test_b113_nodes_that_are_not_ready() -> None:
    """The tolerations every Pod gets are for NoExecute: the NoSchedule taint beside it keeps the Pod away."""
    key = "node.kubernetes.io/not-ready"
    taints = [{"key": key, "effect": "NoSchedule"}, {"key": key, "effect": "NoExecute"}]
    usual = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]
    assert "selected" not in answer([node("a", taints=taints)], pod(tolerations=usual))
    assert answer([node("a", taints=taints[1:])], pod(tolerations=usual))["selected"] == "a"


def test_b115_overhead_comes_last() -> None:
    """A Pod that would fit without its overhead does not, also beside pod-level requests."""
    assert answer([node("a")], pod(cpu="4"))["selected"] == "a"
    for whole in ({}, {"requests": {"cpu": "4"}}):
        found = answer([node("a")], pod(cpu="4", overhead={"cpu": "1m"}, resources=whole))
        assert found["nodes"]["a"]["reasons"] == ["Insufficient cpu"]


def test_objects_are_completed_and_refused() -> None:
    """What an API server fills in may be missing; a kind nobody reads and a foreign profile are told."""
    found = case(
        [node("a")], {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    )
    assert (found.pod.uid, found.pod.key) == ("pod/default/p", "default/p")
    assert new_cycle(found).profile_name == found.profile.name == "default-scheduler"
    with pytest.raises(UserError, match="not a kind"):
        case([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}])
    with pytest.raises(UserError, match="no profile 'x'"):
        case([], pod(schedulerName="x"))
    with pytest.raises(ConfigError):
        case([], None, {"apiVersion": "v1", "kind": "KubeSchedulerConfiguration"})


def test_an_error_on_one_node_is_told_beside_the_others() -> None:
    """The attempt ends with it; what other nodes would have said is answered all the same."""
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [
                    {"name": "r", "exactly": {"deviceClassName": "k", "allocationMode": "ExactCount", "count": 1}}
                ]
            }
        },
    }
    selector = {"cel": {"expression": "device.attributes['d.io'].missing > 1"}}
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "k"},
        "spec": {"selectors": [selector]},
    }
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.io",
            "nodeName": "a",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}],
        },
    }
    waiting = pod(resourceClaims=[{"name": "u", "resourceClaimName": "c"}])
    found = answer([node("a"), node("b"), claim, device_class, slice_], waiting)
    assert {name: status["code"] for name, status in found["nodes"].items()} == {
        "a": "Error",
        "b": "UnschedulableAndUnresolvable",
    }
    assert found["reason"] == "SchedulerError"
    assert found["message"] == found["nodes"]["a"]["reasons"][0]

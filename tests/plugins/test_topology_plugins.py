"""Spread, inter-Pod affinity and declared features: maintained answers, pretended Pods, wake-up rules."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from plugins.node_declared_features import required_features
from plugins.pod_topology_spread.scoring import rounded
from scheduler.api.changes import Change
from scheduler.api.core import Node, Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.framework.events import Action, ClusterEvent, Registration, Resource
from scheduler.framework.status import Code
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info
from tests.plugins.topology_cases import Cases
from tests.plugins.topology_world import CLASSES, cycle_of, plugin_of, rejections, scores, state_of

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def answers(state: ClusterState, pod: Pod) -> Json:
    """Everything the plugins say about ``pod``, over all nodes."""
    found: Json = {}
    names = [state.nodes.name_of(row) for row in state.nodes.order().tolist()]
    for name in CLASSES:
        plugin, cycle = plugin_of(name, state), cycle_of(state, pod)
        status = plugin.pre_filter(cycle).status
        filtered = rejections(plugin, cycle) if status.code is Code.SUCCESS else status
        found[name] = (filtered, scores(plugin, cycle, names) if hasattr(plugin, "score") else None)
    return found


@pytest.mark.parametrize("seed", range(25))
def test_maintained_answers_equal_fresh_ones(seed: int) -> None:
    """After nodes were relabelled, Pods came, moved and left, with questions in between, nothing old is left over."""
    source, dice = Cases(seed), random.Random(seed)
    case = source.case("c")
    pod = convert(POD, case["pod"])
    live = {(item["kind"], item["metadata"]["name"]): item for item in case["objects"]}
    state = state_of(live.values())
    for step in range(30):
        kind, struct_kind = dice.choice((("Node", NODE), ("Pod", POD), ("Pod", POD)))
        if kind == "Node":
            new = source.node(f"n{dice.randint(0, 11)}")
        else:
            nodes = [name for of_kind, name in live if of_kind == "Node"]
            new = source.placed(f"on{dice.randint(0, 30)}", dice.choice([*nodes, "gone"]))
        key = (kind, new["metadata"]["name"])
        old = live.pop(key, None)
        before = convert(struct_kind, old) if old else None
        if old is not None and dice.random() < 0.3:
            state.apply(Change(struct_kind, before, None))
        else:
            live[key] = new
            state.apply(Change(struct_kind, before, convert(struct_kind, new)))
        if step % 5 == 0:
            answers(state, pod)
    state.verify()
    assert answers(state, pod) == answers(state_of(live.values()), pod)


@pytest.mark.parametrize("seed", range(60))
def test_pretended_pods_equal_real_ones(seed: int) -> None:
    """add_pod gives the verdicts of the Pod really being there, remove_pod takes it back, a clone stays apart."""
    source = Cases(seed)
    case = source.case("c")
    placed = [item for item in case["objects"] if item["kind"] == "Pod" and item["spec"]["nodeName"] != "gone"]
    # Deliberately different for pretended Pods (spec 3.11.2): those being deleted, and selectors that are empty.
    extra = next((item for item in placed if "deletionTimestamp" not in item["metadata"]), None)
    if extra is None:
        return
    for constraint in case["pod"]["spec"].get("topologySpreadConstraints", ()):
        if constraint.get("labelSelector") == {}:
            constraint["labelSelector"] = {"matchLabels": {"app": "web"}}
    pod, info = convert(POD, case["pod"]), pod_info(convert(POD, extra))
    with_extra = state_of(case["objects"])
    without = state_of([item for item in case["objects"] if item is not extra])
    for name in ("PodTopologySpread", "InterPodAffinity"):
        plugin, cycle, real = plugin_of(name, without), cycle_of(without, pod), cycle_of(with_extra, pod)
        if plugin.pre_filter(cycle).status.code is Code.SKIP:
            continue
        plugin_of(name, with_extra).pre_filter(real)
        row = without.nodes.row_of(extra["spec"]["nodeName"])
        before, kept = rejections(plugin, cycle), cycle.data[name]
        cycle.data[name] = kept.clone()
        plugin.add_pod(cycle, info, row)
        assert rejections(plugin, cycle) == rejections(plugin_of(name, with_extra), real)
        plugin.remove_pod(cycle, info, row)
        assert rejections(plugin, cycle) == before
        cycle.data[name] = kept
        assert rejections(plugin, cycle) == before


def test_rounding_is_away_from_zero() -> None:
    """Halves go away from zero, and the largest double below a half goes to 0."""
    assert rounded(np.array([0.5, 1.5, 2.4999, 0.49999999999999994])).tolist() == [1, 2, 2, 0]


def test_required_features() -> None:
    """Each of the three features follows from its field; empty mount options and other rules need nothing."""

    def features(spec: Json) -> frozenset[str]:
        return required_features(convert(POD, {"metadata": {"name": "p"}, "spec": spec}))

    def mounts(options: Any) -> Json:
        return {"name": "c", "volumeMounts": [{"name": "v", "bindMountOptions": options}]}

    assert features({"hostNetwork": True, "hostUsers": False}) == {"UserNamespacesHostNetworkSupport"}
    assert features({"hostNetwork": True}) == features({"hostUsers": False}) == frozenset()
    for place in ("containers", "initContainers", "ephemeralContainers"):
        assert features({place: [mounts(["noexec"])]}) == {"VolumeBindMountOptions"}
    assert features({"containers": [mounts([]), mounts(None), {"name": "d"}]}) == frozenset()
    rules = {"name": "c", "restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}
    assert features({"initContainers": [rules]}) == {"RestartAllContainersOnContainerExits"}
    assert features({"ephemeralContainers": [rules]}) == frozenset()


def a_pod(labels: Json | None = None, node: str = "n", namespace: str = "default", **spec: Any) -> Pod:
    found: Pod = convert(
        POD,
        {
            "metadata": {"name": "p", "uid": "p", "namespace": namespace, "labels": labels or {}},
            "spec": {"nodeName": node, **spec},
        },
    )
    return found


def a_node(labels: Json, taints: Any = (), features: Any = ()) -> Node:
    found: Node = convert(
        NODE,
        {
            "metadata": {"name": "n", "labels": labels},
            "spec": {"taints": list(taints)},
            "status": {"declaredFeatures": list(features)},
        },
    )
    return found


def woken(name: str, pod: Pod, event: ClusterEvent) -> bool:
    """True when ``event`` wakes ``pod``, rejected by plugin ``name``, keys included."""
    registrations: list[Registration] = plugin_of(name, ClusterState()).events()
    for registration in registrations:
        if not registration.matches(event):
            continue
        if registration.pod_keys is not None and registration.event_keys is not None:
            keys = registration.event_keys(event.old, event.new)
            if keys is not None and not set(keys) & set(registration.pod_keys(pod)):
                continue
        if registration.hint is None or registration.hint(pod, event.old, event.new):
            return True
    return False


def pod_event(action: Action, old: Pod | None, new: Pod | None) -> ClusterEvent:
    return ClusterEvent(Resource.ASSIGNED_POD, action, old, new)


def node_event(action: Action, old: Node | None, new: Node | None) -> ClusterEvent:
    return ClusterEvent(Resource.NODE, action, old, new)


def constraint(key: str = "zone", action: str = "DoNotSchedule", **more: Any) -> Json:
    selector = {"matchLabels": {"app": "web"}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector, **more}


SPREAD = a_pod({"app": "web"}, "", topologySpreadConstraints=[constraint(), constraint("rack")])
WEB, DB = a_pod({"app": "web"}), a_pod({"app": "db"})


@pytest.mark.parametrize(
    ("event", "wakes"),
    [
        (pod_event(Action.ADD, None, WEB), True),
        (pod_event(Action.DELETE, WEB, None), True),
        (pod_event(Action.ADD, None, DB), False),
        (pod_event(Action.DELETE, a_pod({"app": "web"}, namespace="other"), None), False),
        (pod_event(Action.DELETE, a_pod({"app": "web"}, ""), None), False),
        (pod_event(Action.UPDATE_POD_LABEL, DB, WEB), True),
        (pod_event(Action.UPDATE_POD_LABEL, WEB, a_pod({"app": "web", "x": "y"})), False),
        (pod_event(Action.UPDATE_POD_SCALE_DOWN, WEB, WEB), False),
        (ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL, WEB, DB), True),
        (ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL, WEB, WEB), False),
        (ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, WEB, WEB), False),
        (node_event(Action.ADD, None, a_node({"zone": "a", "rack": "1"})), True),
        (node_event(Action.ADD, None, a_node({"zone": "a"})), False),
        (node_event(Action.DELETE, a_node({"zone": "a", "rack": "1"}), None), True),
        (node_event(Action.DELETE, a_node({"rack": "1"}), None), False),
        (node_event(Action.UPDATE_NODE_LABEL, a_node({"zone": "a"}), a_node({"zone": "a", "rack": "1"})), True),
        (
            node_event(
                Action.UPDATE_NODE_LABEL, a_node({"zone": "a", "rack": "1"}), a_node({"zone": "b", "rack": "1"})
            ),
            True,
        ),
        (
            node_event(
                Action.UPDATE_NODE_LABEL,
                a_node({"zone": "a", "rack": "1"}),
                a_node({"zone": "a", "rack": "1", "x": ""}),
            ),
            False,
        ),
        (
            node_event(
                Action.UPDATE_NODE_TAINT,
                a_node({"zone": "a", "rack": "1"}, [{"key": "k", "effect": "NoSchedule"}]),
                a_node({"zone": "a", "rack": "1"}),
            ),
            True,
        ),
        (node_event(Action.UPDATE_NODE_TAINT, a_node({}, [{"key": "k", "effect": "NoSchedule"}]), a_node({})), False),
    ],
)
def test_spread_hints(event: ClusterEvent, wakes: bool) -> None:
    """A Pod that spread rejected is woken by fellows, domains and its own change, and by nothing else (spec 4.8)."""
    assert woken("PodTopologySpread", SPREAD, event) is wakes


def test_spread_hint_for_tolerations() -> None:
    """More tolerations matter only to a constraint that honours taints; soft constraints reject nothing."""
    event = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, WEB, WEB)
    honouring = a_pod({"app": "web"}, "", topologySpreadConstraints=[constraint(nodeTaintsPolicy="Honor")])
    soft = a_pod(
        {"app": "web"}, "", topologySpreadConstraints=[constraint("zone", "ScheduleAnyway", nodeTaintsPolicy="Honor")]
    )
    assert woken("PodTopologySpread", honouring, event)
    assert not woken("PodTopologySpread", soft, event)
    assert not woken("PodTopologySpread", soft, pod_event(Action.DELETE, WEB, None))


def term(app: str, key: str = "zone", **more: Any) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


NEAR = a_pod({"app": "new"}, "", affinity={"podAffinity": {REQUIRED: [term("web"), term("web", "rack")]}})
AWAY = a_pod({"app": "new"}, "", affinity={"podAntiAffinity": {REQUIRED: [term("web")]}})
REPELLED = a_pod({"app": "new"}, "")
REPELLING = a_pod({}, affinity={"podAntiAffinity": {REQUIRED: [term("new")]}})


@pytest.mark.parametrize(
    ("pod", "event", "wakes"),
    [
        (NEAR, pod_event(Action.ADD, None, WEB), True),
        (NEAR, pod_event(Action.ADD, None, DB), False),
        (NEAR, pod_event(Action.DELETE, WEB, None), False),
        (NEAR, pod_event(Action.UPDATE_POD_LABEL, DB, WEB), True),
        (NEAR, pod_event(Action.UPDATE_POD_LABEL, WEB, DB), False),
        (AWAY, pod_event(Action.DELETE, WEB, None), True),
        (AWAY, pod_event(Action.DELETE, a_pod({"app": "web"}, ""), None), False),
        (AWAY, pod_event(Action.ADD, None, WEB), False),
        (AWAY, pod_event(Action.UPDATE_POD_LABEL, WEB, DB), True),
        (REPELLED, pod_event(Action.DELETE, REPELLING, None), True),
        (REPELLED, pod_event(Action.DELETE, WEB, None), False),
        (REPELLED, pod_event(Action.ADD, None, REPELLING), False),
        (REPELLED, node_event(Action.ADD, None, a_node({})), True),
        (NEAR, ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL, NEAR, NEAR), True),
        (NEAR, node_event(Action.ADD, None, a_node({"rack": "1"})), True),
        (NEAR, node_event(Action.ADD, None, a_node({"x": "1"})), False),
        (NEAR, node_event(Action.UPDATE_NODE_LABEL, a_node({"zone": "a"}), a_node({"zone": "b"})), True),
        (NEAR, node_event(Action.UPDATE_NODE_LABEL, a_node({"zone": "a"}), a_node({})), False),
        (AWAY, node_event(Action.ADD, None, a_node({"x": "1"})), True),
        (AWAY, node_event(Action.UPDATE_NODE_LABEL, a_node({"zone": "a"}), a_node({})), True),
        (AWAY, node_event(Action.UPDATE_NODE_LABEL, a_node({}), a_node({"zone": "a"})), False),
        (AWAY, node_event(Action.DELETE, a_node({"zone": "a"}), None), False),
    ],
)
def test_affinity_hints(pod: Pod, event: ClusterEvent, wakes: bool) -> None:
    """A Pod that inter-Pod affinity rejected is woken by what can change that (spec 4.8)."""
    assert woken("InterPodAffinity", pod, event) is wakes


def test_affinity_hints_do_not_know_namespace_labels() -> None:
    """A term that relies on a namespaceSelector wakes nobody; one for all namespaces does."""
    selected = term("web", namespaceSelector={"matchLabels": {"team": "red"}})
    everywhere = term("web", namespaceSelector={})
    event = pod_event(Action.ADD, None, WEB)
    for wanted, wakes in ((selected, False), (everywhere, True)):
        pod = a_pod({}, "", affinity={"podAffinity": {REQUIRED: [wanted]}})
        assert woken("InterPodAffinity", pod, event) is wakes


def test_declared_feature_hints() -> None:
    """A node that came or declares something else wakes, whatever it declares; so does another requirement."""
    pod = a_pod({}, "", hostNetwork=True, hostUsers=False)
    name, action = "NodeDeclaredFeatures", Action.UPDATE_NODE_DECLARED_FEATURE
    assert woken(name, pod, node_event(Action.ADD, None, a_node({})))
    assert woken(name, pod, node_event(action, a_node({}), a_node({}, (), ["X"])))
    assert not woken(name, pod, node_event(action, a_node({}, (), ["X"]), a_node({}, (), ["X"])))
    assert woken(name, pod, ClusterEvent(Resource.TARGET_POD, Action.UPDATE_OTHER, pod, a_pod({}, "")))
    assert not woken(name, pod, ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL, pod, pod))

"""Explanations as a whole: folding, bound Pods, foreign profiles, and a state that stays as it was."""

from __future__ import annotations

import hashlib
from collections import deque
from itertools import islice
from pathlib import Path

import msgspec

from scheduler.app.snapshot import Snapshot, from_items
from scheduler.config import load_config
from scheduler.explain.hints import find_hints, hint_steps
from scheduler.explain.pods import explain_pod, explain_steps
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, NOW, Object, device, explained, held, request, slice_of, snapshot, want


def cluster(count: int) -> list[Object]:
    """Nodes of three devices: one held, one of another model, one tainted."""
    items = [gpu_class()]
    for number in range(count):
        name = f"n{number}"
        taint = [{"key": "broken", "value": "", "effect": "NoExecute"}]
        devices = [device("d0"), device("d1", model="H100"), device("d2", taints=taint)]
        items += [node(name), slice_of(name, devices), held(f"h{number}", name, "d0", pod=f"user{number}")]
        items.append(pod(f"user{number}", claim=f"h{number}", nodeName=name))
    selector = f'device.attributes["{DRIVER}"].model == "A100"'
    return [*items, want(request("r", 1, selector)), pod("p", claim="want")]


def digest(snap: Snapshot) -> str:
    """A hash over every object that the state holds, and over the ledger."""
    state = snap.state
    nodes = [state.nodes.node(row) for row in state.nodes.order().tolist()]
    objects = [*nodes, *state.pods.values(), *state.devices.claims.values()]
    objects += [info.slice for info in state.devices.slices.infos()]
    lines = sorted(msgspec.json.encode(item) for item in objects)
    ledger = repr(sorted((str(key), repr(value)) for key, value in state.devices.ledger.state().items()))
    return hashlib.sha256(b"\n".join([*lines, ledger.encode()])).hexdigest()


def test_equal_nodes_and_equal_devices_are_folded() -> None:
    """Thirty alike nodes are one group with one line of counts; the holders of all of them are summed."""
    found, text = explained(cluster(30))
    (group,) = found.nodes
    assert len(group.nodes) == 30
    (request_report,) = group.claims[0].requests
    assert {part.reason: part.count for part in request_report.refused} == {
        "in use by claim": 1,
        "selector false": 1,
        "tainted": 1,
    }
    assert sum(request_report.refused[0].holders.values()) == 30
    assert "30 nodes: n0, n1, n2, … n29" in text
    assert "3 devices: 1 in use, 1 selector false, 1 tainted" in text
    assert len(text.splitlines()) < 20


def test_a_state_is_as_before_after_explaining_and_trying_hints() -> None:
    """Simulation exchanges objects and brings them back: every object and every hold hashes to the same."""
    snap = snapshot(cluster(5))
    before, version = digest(snap), snap.state.version
    waiting = snap.pod("default", "p")
    profile, own = snap.profile_for(waiting)
    assert own
    found = explain_pod(profile, waiting, snap.state, snap.now)
    assert find_hints(profile, waiting, snap.state, snap.now, found)
    assert found.hints
    explain_pod(profile, snap.pod("default", "user3"), snap.state, snap.now)
    assert snap.state.version > version, "the simulation did change the state in between"
    assert digest(snap) == before
    snap.state.verify()


def test_two_snapshots_of_one_input_share_nothing() -> None:
    """Changing one state leaves the other and the input as they were."""
    items = cluster(3)
    given = msgspec.json.encode(items)
    one, other = snapshot(items), snapshot(items)
    before = digest(other)
    claim = one.state.devices.claims["default/h1"]
    assert claim is not other.state.devices.claims["default/h1"]
    one.state.nodes.node(0).metadata.labels["changed"] = "yes"
    assert digest(other) == before
    assert msgspec.json.encode(items) == given


def test_a_bound_pod_is_told_its_devices_and_scores() -> None:
    """Where it is, what it holds, and how nodes would score now, the Pod itself not counted."""
    items = [*cluster(2), node("empty")]
    items[0]["spec"]["selectors"] = [{"cel": {"expression": "true"}}]
    found, text = explained(items, "user1")
    assert (found.phase, found.node) == ("scheduled", "n1")
    assert found.held[0].devices == [f"r: {DRIVER}/n1/d0"]
    assert found.message.startswith("placed again now it would go to")
    assert {row.node for row in found.scores} <= {"n0", "n1", "empty"}
    assert "NodeResourcesFit ×1" in text


def test_a_pod_that_fits_now_is_told_so() -> None:
    """No blame where nothing is wrong, and the nodes it cannot use are still told."""
    items = [*cluster(1), node("free"), slice_of("free", [device("a")])]
    found, text = explained(items)
    assert (found.phase, found.node) == ("fits", "free")
    assert "node free fits" in text
    assert "node n0" in text
    items += [node("also"), slice_of("also", [device("a")])]
    assert "2 nodes: free, also fit\n" in explained(items)[1]


def test_a_pod_of_another_scheduler_is_judged_by_our_profile() -> None:
    """The answer names the profile that was used instead."""
    items = [node("n1"), pod("p", scheduler="default-scheduler")]
    snap = snapshot(items)
    profile, own = snap.profile_for(snap.pod("default", "p"))
    assert (profile.name, own) == ("dra-scheduler", False)


def test_an_ended_pod_needs_no_explanation() -> None:
    """It uses nothing and waits for nothing."""
    ended = pod("p") | {"status": {"phase": "Succeeded"}}
    found, text = explained([node("n1"), ended])
    assert found.phase == "ended"
    assert "has ended" in text


def test_the_same_input_gives_the_same_answer() -> None:
    """Explanations are deterministic, hints included."""
    answers = [explained(cluster(4), hints=True)[0] for _ in range(2)]
    assert msgspec.json.encode(answers[0]) == msgspec.json.encode(answers[1])


def test_the_demo_explains_itself() -> None:
    """The files of the demo: the Pod that never fits, and what would help it."""
    import yaml

    folder = Path(__file__).parents[2] / "scheduler/cli/data"
    items = [item for file in sorted(folder.glob("*.yaml")) for item in yaml.safe_load_all(file.read_text()) if item]
    snap = from_items(items, load_config(""), {}, NOW)
    waiting = snap.pod("demo", "too-big")
    profile, _ = snap.profile_for(waiting)
    found = explain_pod(profile, waiting, snap.state, snap.now)
    find_hints(profile, waiting, snap.state, snap.now, found)
    assert {hint.change for hint in found.hints} == {"fewer devices", "drop constraint"}


def test_a_pod_that_may_preempt_is_told_where() -> None:
    """Nothing is evicted by asking; the node where others would have to go is named."""
    low = pod("low", cpu="2", nodeName="n1", priority=1)
    items = [node("n1", cpu="2"), low, pod("p", cpu="2", priority=100)]
    snap = snapshot(items)
    before = digest(snap)
    found, text = explained(items)
    assert (found.phase, found.node) == ("waiting", "n1")
    assert "it may preempt less important Pods on node n1" in text
    waiting = snap.pod("default", "p")
    explain_pod(snap.profile_for(waiting)[0], waiting, snap.state, snap.now)
    assert digest(snap) == before


def test_extended_resources_served_by_devices_are_explained() -> None:
    """A Pod without claims whose container asks for a class's extended resource."""
    backed = gpu_class()
    backed["spec"]["extendedResourceName"] = "example.com/gpu"
    waiting = pod("p")
    waiting["spec"]["containers"][0]["resources"] = {
        "requests": {"example.com/gpu": "2"},
        "limits": {"example.com/gpu": "2"},
    }
    items = [node("n1"), backed, slice_of("n1", [device("a"), device("b")]), held("h", "n1", "a"), waiting]
    found, text = explained(items, hints=True)
    assert found.phase == "waiting"
    assert "in use" in text, text
    assert {hint.change for hint in found.hints} >= {"claim ends", "add node"}


def test_a_claims_name_with_a_typing_error_is_told() -> None:
    """The claim that exists beside the one that does not; one of another namespace when nothing is alike here."""
    found, text = explained([node("n1"), want(request(), name="training"), pod("p", claim="trainng")])
    assert found.phase == "held back"
    assert "note: there is no claim default/trainng, but there is default/training" in text
    other = want(request(), name="x")
    other["metadata"]["namespace"] = "team"
    _, text = explained([node("n1"), other, pod("p", claim="x")])
    assert "but there is team/x" in text


def test_devices_the_search_took_itself_are_not_summed_over_nodes() -> None:
    """One device per node, two requests: on each node one is taken by the Pod's own first request."""
    nodes = [item for n in range(3) for item in (node(f"n{n}"), slice_of(f"n{n}", [device("a")]))]
    _, text = explained([*nodes, gpu_class(), want(request("r"), request("s")), pod("p", claim="want")])
    assert "3 nodes: n0, n1, n2" in text
    assert "1 taken for this Pod itself" in text


def test_a_device_that_would_not_do_anyway_is_not_told_as_in_use() -> None:
    """Waiting for the claim that holds it would be in vain: the selector is the reason, and no hint names the claim."""
    items = [node("n1"), gpu_class(), slice_of("n1", [device("a"), device("b", model="H100")])]
    selector = request("r", 2, f'device.attributes["{DRIVER}"].model == "H100"')
    items += [held("h", "n1", "a"), held("g", "n1", "b"), want(selector), pod("p", claim="want")]
    found, text = explained(items, hints=True)
    assert "2 devices: 1 selector false, 1 in use" in text
    assert list(found.users) == ["default/g"]


def test_an_in_use_device_on_which_a_selector_fails_is_told_as_in_use() -> None:
    """The search never asks it, so the failing selector is not what stops the Pod."""
    selector = request("r", 1, f'device.attributes["{DRIVER}"].model == "A100"')
    items = [node("n1"), gpu_class(), slice_of("n1", [{"name": "bare"}, device("a")])]
    items += [held("h", "n1", "bare"), held("g", "n1", "a"), want(selector), pod("p", claim="want")]
    found, text = explained(items)
    assert "cannot allocate all claims" in found.message
    assert "2 devices: 2 in use" in text


def test_an_explanation_comes_in_many_small_steps() -> None:
    """At least one pause per node, so that a running scheduler can do everything else in between."""
    snap = snapshot(cluster(30))
    waiting = snap.pod("default", "p")
    profile, _ = snap.profile_for(waiting)
    steps = list(explain_steps(profile, waiting, snap.state, snap.now))
    assert len(steps) >= 30
    assert set(steps) == {None}


def test_giving_up_half_way_leaves_the_state_as_it_was() -> None:
    """Whoever asked may go away at any step: each change of a simulation is taken back all the same."""
    snap = snapshot(cluster(3))
    before = digest(snap)
    waiting, bound = snap.pod("default", "p"), snap.pod("default", "user1")
    profile, _ = snap.profile_for(waiting)
    found = explain_pod(profile, waiting, snap.state, snap.now)
    for make in (
        lambda: hint_steps(profile, waiting, snap.state, snap.now, found),
        lambda: explain_steps(profile, bound, snap.state, snap.now),
    ):
        total = len(list(make()))
        for stop_after in range(1, total, max(1, total // 20)):
            steps = make()
            deque(islice(steps, stop_after), maxlen=0)
            steps.close()
            assert digest(snap) == before
    snap.state.verify()


def test_a_plugin_that_breaks_while_it_explains_costs_its_numbers_only() -> None:
    """Foreign code: the verdict is told, and that it cannot say more."""
    snap = snapshot([node("n1", cpu="1"), pod("p", cpu="2")])
    waiting = snap.pod("default", "p")
    profile, _ = snap.profile_for(waiting)

    def breaks(*_: object) -> None:
        raise ZeroDivisionError("oh")

    profile.plugins["NodeResourcesFit"].because = breaks
    found = explain_pod(profile, waiting, snap.state, snap.now)
    (verdict,) = found.nodes[0].verdicts
    assert verdict.reasons == ["Insufficient cpu"]
    assert [cause.text for cause in verdict.because] == ["it cannot say more: ZeroDivisionError: oh"]


def test_the_runner_up_and_the_points_are_told() -> None:
    """Why this node: by how many points, and which plugins gave them; raw scores beside the scaled ones."""
    found, text = explained([node("n1", cpu="8"), node("n2", cpu="4"), pod("p", cpu="1")])
    choice = found.choice
    assert choice is not None
    assert (choice.node, choice.runner_up, choice.feasible) == ("n1", "n2", 2)
    assert choice.ahead_by == choice.total - choice.runner_up_total == sum(choice.by_plugin.values()) > 0
    assert f"{choice.ahead_by} more than n2, the next best of 2 nodes that fit: NodeResourcesFit +" in text
    by_node = {row.node: row for row in found.scores}
    for row in by_node.values():
        assert row.total == sum(score * found.weights[plugin] for plugin, score in row.scores.items())
        assert row.raw.keys() == row.scores.keys()


def test_a_tie_is_called_a_tie() -> None:
    """Nothing is made up where points are equal."""
    found, text = explained([node("n1"), node("n2"), node("n3"), pod("p")])
    assert found.choice is not None
    assert (found.choice.ahead_by, found.choice.ties, found.choice.by_plugin) == (0, 2, {})
    assert "as many as" in text
    assert "the tie is broken by the order of nodes" in text


def test_devices_that_were_passed_over_are_told_with_their_reason() -> None:
    """The first that suit in pool order; those before them by reason, those after them by number."""
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    devices = [device("a"), device("b", taints=[taint]), device("c", model="H100"), device("d"), device("e")]
    model = f'device.attributes["{DRIVER}"].model == "A100"'
    items = [node("n1"), gpu_class(), slice_of("n1", devices), held("h", "n1", "a"), want(request("r", 1, model)),
             pod("p", claim="want")]  # fmt: skip
    found, text = explained(items)
    (choice,) = found.devices
    assert (choice.devices, choice.later, choice.now) == (["n1/d"], 1, [])
    assert {(part.reason, *part.devices) for part in choice.passed} == {
        ("in use by claim", "n1/a"),
        ("tainted", "n1/b"),
        ("selector false", "n1/c"),
    }
    assert "passed over: 1 tainted broken=yes:NoSchedule  [n1/b]" in text
    assert "not needed: 1 device of the node that came later" in text


def test_a_bound_pod_that_would_get_other_devices_now_is_told_so() -> None:
    """What it has stays what it has; a device that came free since then is named."""
    mine = held("want", "n1", "b", pod="p")
    items = [node("n1"), gpu_class(), slice_of("n1", [device("a"), device("b")]), mine,
             pod("p", claim="want", nodeName="n1")]  # fmt: skip
    found, text = explained(items)
    (choice,) = found.devices
    assert (choice.devices, choice.now) == (["n1/b"], ["n1/a"])
    assert "decided now it would be n1/a" in text


def test_a_pod_that_is_being_deleted_waits_for_nothing() -> None:
    """The scheduler does not look at it any more, however well it would fit."""
    going = pod("p")
    going["metadata"] |= {"deletionTimestamp": "2027-01-15T07:00:00Z", "finalizers": ["x"]}
    found, text = explained([node("n1"), going])
    assert (found.phase, found.node) == ("ended", "")
    assert "it is not scheduled any more" in text


def test_binding_conditions_that_are_awaited_are_told() -> None:
    """The claim has its device, but the Pod is bound only when the driver has reported it ready; or it failed."""
    claim = held("want", "n1", "a", pod="p", bindingConditions=["ready"], bindingFailureConditions=["failed"])
    items = [node("n1"), gpu_class(), slice_of("n1", [device("a")]), claim, pod("p", claim="want")]
    found, text = explained(items)
    assert found.held[0].awaits.startswith("its driver has not reported all of the conditions ready")
    assert found.held[0].awaits in text
    status = {"driver": DRIVER, "pool": "n1", "device": "a"}
    failed = {"type": "failed", "status": "True", "reason": "Broken", "message": "no cable"}
    claim["status"]["devices"] = [{**status, "conditions": [failed]}]
    assert "reason=Broken" in explained(items)[1]
    claim["status"]["devices"] = [{**status, "conditions": [{"type": "ready", "status": "True"}]}]
    assert explained(items)[0].held[0].awaits == ""


OWN_PLUGIN = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: dra-scheduler
  plugins:
    filter: {enabled: [{name: "tests.explain.own_plugins:ColdNodes"}]}
    preEnqueue: {enabled: [{name: "tests.explain.own_plugins:ColdNodes"}]}
"""


def test_a_plugin_of_ones_own_explains_itself() -> None:
    """Under the name it was enabled by, with a check per node: the nearest node first."""
    warm, warmer = node("n1"), node("n2")
    warm["metadata"]["labels"]["degrees"], warmer["metadata"]["labels"]["degrees"] = "55", "41"
    found, text = explained([warm, warmer, pod("p"), pod("hot")], config=OWN_PLUGIN)
    (verdict,) = found.nodes[0].verdicts
    assert (verdict.plugin, verdict.reasons) == ("ColdNodes", ["node(s) were too warm"])
    assert [(cause.facts, cause.node) for cause in verdict.because] == [
        ({"degrees": "41"}, "n2"),
        ({"degrees": "55"}, "n1"),
    ]
    assert "41 degrees, 40 at most (n2)" in text
    found, text = explained([warm, pod("hot")], "hot", config=OWN_PLUGIN)
    assert (found.phase, found.culprit) == ("held back", "ColdNodes")
    assert "the Pod has 90 degrees" in text


def test_devices_of_two_drivers_are_told_apart() -> None:
    """Pools and devices of one name on one node: the driver is part of the name then."""
    other = slice_of("n1", [device("a")], name="other", driver="other.example.com")
    items = [node("n1"), gpu_class(), slice_of("n1", [device("a")]), other, held("h", "n1", "a"), want(request()),
             pod("p", claim="want")]  # fmt: skip
    found, _ = explained(items)
    names = {part.reason: part.devices for part in found.nodes[0].claims[0].requests[0].refused}
    assert names == {"in use by claim": [f"{DRIVER}/n1/a"], "selector false": ["other.example.com/n1/a"]}


def test_a_device_that_many_nodes_see_has_one_holder() -> None:
    """Seen from three nodes it is still one device, held once."""
    items = [*(node(f"n{number}") for number in range(3)), gpu_class(), slice_of(None, [device("a")]),
             held("h", "net", "a"), want(request()), pod("p", claim="want")]  # fmt: skip
    found, text = explained(items)
    (group,) = found.nodes
    assert group.claims[0].requests[0].refused[0].holders == {"default/h": 1}
    assert "1 by claim default/h" in text

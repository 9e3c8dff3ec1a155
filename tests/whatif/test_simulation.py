"""The imagined scheduler: attempts, preemption, Permit, groups and volumes as the real one does them."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.app.profiles import build_profiles, queue_hooks
from scheduler.app.snapshot import imagined_ids, objects_of
from scheduler.config import load_config
from scheduler.dra.features import Features
from scheduler.framework.permit import PermitResult, WaitingPods
from scheduler.framework.status import Code, Status
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.whatif.build import state_of
from scheduler.whatif.controllers import evict
from scheduler.whatif.simulation import Simulation
from scheduler.whatif.store import Store
from scheduler.whatif.world import World
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template
from tests.whatif.worlds import NOW, Object, add, ask, by_pod, held, placed, places

GANGS = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}


def important(name: str, priority: int, **fields: str) -> Object:
    """A Pod of a priority."""
    return pod(name, priority=priority, **fields)  # type: ignore[arg-type]  # spec fields


def test_preemption_is_told_and_with_until_stable_carried_out() -> None:
    """Without: who would have to go and where. With: the victim is gone, the preemptor has its room."""
    items = [node("n1", cpu="1"), placed(important("low", 0, cpu="800m"), "n1")]
    edit = add(important("high", 10, cpu="500m"))
    told = by_pod(ask(items, edit))["high"].after
    assert told is not None
    assert (told.state, told.preempts, told.nominated) == ("waits", ("default/low",), "n1")
    found = ask(items, edit, until_stable=True)
    assert places(found) == {"low": "gone", "high": "n1"}
    assert by_pod(found)["low"].cause == "preempted for pod default/high"
    assert found.troubled


def test_a_victim_comes_back_and_waits_or_goes_elsewhere() -> None:
    """The ReplicaSet makes a new Pod for the one that was preempted."""
    victim = placed(important("web-1", 0, cpu="800m"), "n1", "ReplicaSet/web")
    edit = add(pod("high", priority=10, cpu="500m", nodeSelector={"kubernetes.io/hostname": "n1"}))
    full = ask([node("n1", cpu="1"), victim], edit, until_stable=True)
    assert places(full) == {"web-1": "gone", "web-1-new": "", "high": "n1"}
    assert full.troubled
    roomy = ask([node("n1", cpu="1"), node("n2", cpu="1"), victim], edit, until_stable=True)
    assert places(roomy) == {"web-1": "gone", "web-1-new": "n2", "high": "n1"}
    assert not roomy.troubled


def test_a_budget_is_used_up_by_evictions() -> None:
    """Whoever is evicted counts against the budgets that speak of it, down to nothing; others do not."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "spared"}}},
        "status": {"disruptionsAllowed": 1},
    }
    pods = [placed(pod(f"p-{number}"), "n1") for number in range(3)]
    for one, app in zip(pods, ("other", "spared", "spared"), strict=True):
        one["metadata"]["labels"] = {"app": app}
    store = Store(objects_of([node("n1"), budget, *pods], Features(), live=False), NOW)
    allowed = []
    for one in list(store.pods()):
        evict(store, one)
        allowed += [found.status.disruptionsAllowed for found in store.of("PodDisruptionBudget")]
    assert allowed == [1, 0, 0]


def test_displacing_goes_on_until_nobody_is_below() -> None:
    """Three priorities on one slot, each Pod with a controller: the highest stays, the others wait, and it ends."""
    items = [
        node("n1", cpu="1"),
        placed(important("a-1", 1, cpu="900m"), "n1", "ReplicaSet/a"),
        important("b-1", 2, cpu="900m"),
    ]
    found = ask(items, add(important("c-1", 3, cpu="900m")), until_stable=True)
    assert found.stable
    assert {name: node for name, node in places(found).items() if node == "n1"} == {"c-1": "n1"}


def test_pods_are_tried_in_order_of_priority_then_age() -> None:
    """As the queue of a running scheduler has them: not in the order of the dump."""
    young, old, late = pod("young", template="one"), pod("old", template="one"), important("urgent", 5)
    late["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    young["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    late["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z"
    items = [node("n1"), gpu_class(), gpu_slice("n1", 2), template("one"), young, old, late]
    assert places(ask(items)) == {"urgent": "n1", "old": "n1", "young": ""}


def test_a_pod_that_waits_for_another_is_woken() -> None:
    """Affinity to a Pod that comes later: once it is placed, the first is tried again."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    first = pod("first", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    second = pod("second")
    second["metadata"]["labels"] = {"app": "db"}
    assert places(ask([node("n1")], add(first), add(second))) == {"first": "", "second": "n1"}
    assert places(ask([node("n1")], add(first), add(second), until_stable=True)) == {"first": "n1", "second": "n1"}


def test_pods_held_back_say_why() -> None:
    """Scheduling gates and claims that do not exist."""
    gated = pod("gated", schedulingGates=[{"name": "wait/for-me"}])
    found = by_pod(ask([node("n1")], add(gated, pod("no-claim", claim="nope")), until_stable=True))
    assert found["gated"].after.state == found["no-claim"].after.state == "held back"  # type: ignore[union-attr]
    assert "wait/for-me" in found["gated"].after.reason  # type: ignore[union-attr]
    assert found["no-claim"].after.reason == 'could not find ResourceClaim "default/nope"'  # type: ignore[union-attr]


def test_pods_that_are_being_deleted_go_in_the_end() -> None:
    """Only with until_stable: their room is free then."""
    going = placed(pod("going", cpu="900m"), "n1")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    items = [node("n1", cpu="1"), going]
    assert places(ask(items, add(pod("p", cpu="500m")))) == {"p": ""}
    found = ask(items, add(pod("p", cpu="500m")), until_stable=True)
    assert places(found)["p"] == "n1"
    assert "Pods that were being deleted have gone: 1" in found.assumptions


def gang(name: str, count: int) -> Object:
    """A PodGroup with the gang policy."""
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def test_gangs_are_placed_whole_or_not_at_all() -> None:
    """Four devices: the gang of three fits, the one of five waits with the group's reason."""
    items = [node("n1"), node("n2"), gpu_class(), gpu_slice("n1", 2), gpu_slice("n2", 2), template("one")]
    members = [pod(f"{g}-{n}", template="one", schedulingGroup={"podGroupName": g}) for g, size in (("a", 3), ("b", 5))
               for n in range(size)]  # fmt: skip
    found = ask(items, add(gang("a", 3), gang("b", 5), *members), gates=GANGS, until_stable=True)
    assert sorted(name for name, where in places(found).items() if where) == ["a-0", "a-1", "a-2"]
    reasons = {change.after.reason for name, change in by_pod(found).items() if name[0] == "b" and change.after}
    assert "pod group is unschedulable, minCount (5) cannot be satisfied: 1 scheduled, 3 remaining" in reasons


def test_a_gang_that_lacks_members_is_held_back() -> None:
    """As the queue holds it back."""
    member = pod("m", schedulingGroup={"podGroupName": "a"})
    found = ask([node("n1")], add(gang("a", 2), member), gates=GANGS, until_stable=True)
    after = by_pod(found)["m"].after
    assert after is not None
    assert (after.state, "waiting for minCount pods" in after.reason) == ("held back", True)


def test_a_claim_of_the_group_is_shared_by_its_members() -> None:
    """One claim is made from the template for all of them."""
    entry = {"name": "gpu", "resourceClaimTemplateName": "one"}
    group = gang("a", 2)
    group["spec"]["resourceClaims"] = [entry]
    members = [pod(f"m-{n}", template="one", schedulingGroup={"podGroupName": "a"}) for n in range(2)]
    items = [node("n1"), gpu_class(), gpu_slice("n1", 1), template("one")]
    found = by_pod(ask(items, add(group, *members), gates=GANGS, until_stable=True))
    assert [found[name].after.devices for name in ("m-0", "m-1")] == [{"a-gpu": ("gpu.example.com/n1/gpu-0",)}] * 2  # type: ignore[union-attr]


def volumes(node_name: str = "n1") -> list[Object]:
    """A class that waits for its consumer, one volume of it, and two claims."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}]}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "late",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}  # fmt: skip
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "late",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claims = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
         "spec": asked, "status": {"phase": "Pending"}} for name in ("one", "two")
    ]  # fmt: skip
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec,
              "status": {"phase": "Available"}}  # fmt: skip
    return [storage_class, volume, *claims]


def with_volume(name: str, claim_name: str) -> Object:
    """A Pod that mounts a claim."""
    return pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}])


def test_a_volume_is_given_once() -> None:
    """The first Pod binds the only volume; for the second there is none left."""
    edit = add(with_volume("a", "one"), with_volume("b", "two"))
    found = ask([node("n0"), node("n1"), *volumes()], edit, until_stable=True)
    assert places(found) == {"a": "n1", "b": ""}
    assert "didn't find available persistent volumes to bind" in by_pod(found)["b"].after.reason  # type: ignore[union-attr]


def test_a_provisioner_is_taken_at_its_word() -> None:
    """A volume is made where the scheduler asks; the answer says that this was taken for granted."""
    items = [node("n0"), *volumes()[:1], volumes()[2]]
    items[1]["provisioner"] = "csi.example.com"
    found = ask(items, add(with_volume("a", "one")), until_stable=True)
    assert places(found) == {"a": "n0"}
    assert found.assumptions == ["volumes are provisioned wherever the scheduler asks for them"]


def test_binding_conditions_are_met() -> None:
    """The driver is taken at its word, and the answer says so."""
    slice_ = gpu_slice("n1", 1)
    slice_["spec"]["devices"][0] |= {
        "bindsToNode": True,
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["bad"],
    }
    found = ask([node("n1"), gpu_class(), slice_, template("one")], add(pod("p", template="one")))
    assert places(found) == {"p": "n1"}
    assert found.assumptions == ["binding conditions of devices are met as soon as they are waited for"]


def test_extended_resources_get_a_claim() -> None:
    """The claim that the scheduler makes itself is shown with its device."""
    gpu = gpu_class()
    gpu["spec"]["extendedResourceName"] = "example.com/gpu"
    consumer = pod("p")
    consumer["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    found = ask([node("n1"), gpu, gpu_slice("n1", 1)], add(consumer, count=2))
    assert places(found) == {"p-1": "n1", "p-2": ""}
    (devices,) = by_pod(found)["p-1"].after.devices.values()  # type: ignore[union-attr]
    assert devices == ("gpu.example.com/n1/gpu-0",)


def test_one_claim_for_two_pods() -> None:
    """The second follows the first to its node."""
    items = [node("n1"), node("n2"), gpu_class(), gpu_slice("n1", 1), gpu_slice("n2", 1), claim("c")]
    assert places(ask(items, add(pod("p", claim="c"), count=2))) == {"p-1": "n1", "p-2": "n1"}


class Breaking:
    """A plugin that raises."""

    name = "Breaking"

    def __init__(self, handle: object) -> None: ...

    def check(self, cycle: object, node: object) -> None:
        raise RuntimeError("boom")


class Holding:
    """A Permit plugin that waits and never lets go."""

    name = "Holding"

    def __init__(self, handle: object) -> None: ...

    def permit(self, cycle: object, node: object) -> PermitResult:
        return PermitResult(Status(Code.WAIT, ("hold",)), 30.0)


def with_plugin(point: str, name: str) -> str:
    """A configuration with one of the two."""
    return f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {{{point}: {{enabled: [{{name: "tests.whatif.test_simulation:{name}"}}]}}}}
"""


def test_a_plugin_that_breaks_costs_its_pods_their_attempts_only() -> None:
    """It is told, and it is not tried for ever."""
    found = ask([node("n1")], add(pod("p"), pod("q")), config=with_plugin("filter", "Breaking"), until_stable=True)
    assert {change.after.reason for change in found.changes if change.after} == {
        'running Filter plugin "Breaking" on node n1: RuntimeError: boom'
    }
    assert (found.stable, found.attempts) == (True, 4)


def test_a_pod_that_waits_at_permit() -> None:
    """Tried once, its node is kept; until stable its time runs out."""
    config = with_plugin("permit", "Holding")
    once = by_pod(ask([node("n1")], add(pod("p")), config=config))["p"].after
    assert once is not None
    assert (once.state, once.reason) == ("waits", "node n1 is kept for it")
    found = ask([node("n1")], add(pod("p")), config=config, until_stable=True)
    after = by_pod(found)["p"].after
    assert after is not None
    assert after.reason.startswith(
        "0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin Holding."
    )
    assert found.stable


def test_an_empty_cluster_is_no_error() -> None:
    """Everything waits, and the kinds that the input lacks are named."""
    found = ask([{"kind": "PodList", "apiVersion": "v1", "items": []}], add(pod("p")), until_stable=True)
    assert by_pod(found)["p"].after.reason == "no nodes available to schedule pods"  # type: ignore[union-attr]
    assert found.caveats[0] == "no Node in the input: no Pod fits anywhere without nodes"


def test_progress_is_told() -> None:
    """Both runs, with the attempts made and the Pods left."""
    told: list[tuple[str, int, int]] = []
    ask([node("n1")], add(pod("p"), count=50), progress=lambda *words: told.append(words))
    assert ("with the edits", 20, 30) in told
    assert ("without the edits", 0, 0) in told


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Object], list[Object]]:
    """Nodes with devices, Pods on them and waiting ones, and edits that can all be carried out."""
    count = draw(st.integers(1, 4))
    names = [f"n{number}" for number in range(1, count + 1)]
    sizes = [draw(st.integers(0, 3)) for _ in names]
    items: list[Object] = [gpu_class(), template("one"), template("two", 2), claim("shared")]
    for name, size in zip(names, sizes, strict=True):
        items += [node(name, cpu=draw(st.sampled_from(["1", "2"]))), *([gpu_slice(name, size)] if size else [])]
    for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
        owner = draw(st.sampled_from(["", "ReplicaSet/web", "StatefulSet/db"]))
        if size and draw(st.booleans()):
            items += [placed(pod(f"old-{number}", claim=f"c-{number}"), name, owner),
                      held(claim(f"c-{number}"), name, f"old-{number}", "gpu-0")]  # fmt: skip
        elif draw(st.booleans()):
            items.append(placed(pod(f"old-{number}", cpu="700m"), name, owner))
    new = [
        pod(
            f"new-{number}",
            cpu=draw(st.sampled_from(["100m", "700m"])),
            priority=draw(st.integers(0, 2)),
            **draw(st.sampled_from([{}, {"template": "one"}, {"template": "two"}, {"claim": "shared"}])),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    edits = [add(*new)] if new else []
    edits += draw(st.lists(st.sampled_from([
        {"drain": {"node": "n1"}}, {"cordon": {"node": "n1"}}, {"addNodes": {"like": "n1", "count": 2}},
        {"taintNode": {"node": names[-1], "key": "k", "effect": "NoExecute"}}, {"delete": {"claim": "shared"}},
    ]), max_size=3, unique_by=str))  # fmt: skip
    return items, edits


@settings(max_examples=60, deadline=None)
@given(clusters(), st.booleans())
def test_any_cluster_and_any_edits(case: tuple[list[Object], list[Object]], until_stable: bool) -> None:
    """Equal input gives equal output, the input is left as it was, no device is given twice, nobody is forgotten."""
    items, edits = case
    before = copy.deepcopy(items)
    first = ask(items, *edits, until_stable=until_stable)
    assert items == before
    again = ask(items, *edits, until_stable=until_stable)
    assert msgspec.json.encode(again) == msgspec.json.encode(first)
    taken: dict[str, set[str]] = {}
    for change in first.changes:
        for name, devices in change.after.devices.items() if change.after else ():
            for device in devices:
                taken.setdefault(device, set()).add(name)
    assert all(len(claims) == 1 for claims in taken.values()), taken
    assert first.stable


@settings(max_examples=40, deadline=None)
@given(clusters())
def test_every_sum_of_the_state_can_be_recomputed(case: tuple[list[Object], list[Object]]) -> None:
    """After a whole run, and after every Pod was evicted as well, columns, indexes and ledger are what they must be."""
    items, edits = case
    features = Features()
    documents = [*items, *(item for edit in edits if "add" in edit for item in edit["add"]["objects"])]
    store = Store(objects_of(documents, features, live=False), NOW)
    state = state_of(store.entries(), features, [])
    waiting = WaitingPods()
    profiles = build_profiles(load_config(""), state, imagined_ids(), features, waiting)
    profile = next(iter(profiles.values()))
    queue = SchedulingQueue(queue_hooks(profiles), profile.queue_sort.sort_key)
    world = World(store, state, queue, profiles, groups=False)
    world.start()
    for _ in Simulation(world, profiles, waiting, True).run():
        state.verify()
        queue.check()
    for one in list(store.pods()):
        evict(store, one)
        state.verify()
        queue.check()
    assert not state.placements
    assert [claim.key for claim in state.devices.allocated() if claim.consumers] == []


@pytest.mark.parametrize("template_name", ["one", "missing"])
def test_a_template_that_does_not_exist_makes_no_claim(template_name: str) -> None:
    """Then the Pod is held back, as by a controller that finds none; and the input is said to lack templates."""
    items = [node("n1"), gpu_class(), gpu_slice("n1", 1), *([template("one")] if template_name == "one" else [])]
    found = ask(items, add(pod("p", template=template_name)))
    assert places(found) == {"p": "n1" if template_name == "one" else ""}
    lacking = "no ResourceClaimTemplate in the input: Pods wait for claims that nobody makes"
    assert (lacking in found.caveats) == (template_name == "missing")

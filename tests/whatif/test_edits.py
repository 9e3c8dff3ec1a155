"""Edits: what each does to a cluster, and what is said about those that cannot be carried out."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.errors import UserError
from scheduler.whatif.edits import AddNodes, Drain, decode_edits
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template
from tests.whatif.worlds import Object, add, ask, by_pod, held, placed, places


def gpu_nodes(count: int, devices: int = 1) -> list[Object]:
    """Nodes n1, n2 … with devices, the class, and a template for one device."""
    names = [f"n{number}" for number in range(1, count + 1)]
    made = [node(name) for name in names] + [gpu_slice(name, devices) for name in names]
    return [*made, gpu_class(), template("one")]


def named(kind: str, version: str = "v1") -> Object:
    """An object that is nothing but a name."""
    return {"kind": kind, "apiVersion": version, "metadata": {"name": "x"}}


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ("drain", "edits: a list is needed, not 'drain'"),
        ({"drain": {}}, "edits: a list is needed"),
        ([7], "edit 1: one field that names the edit is needed"),
        ([{"drain": {"node": "n1"}}, {}], "edit 2: one field that names the edit is needed"),
        ([{"drian": {}}], "edit 1: drian: is no edit; known are add, delete"),
        ([{"drain": "n1"}], "edit 1 (drain): drain: an object is needed, not 'n1'"),
        ([{"drain": {}}], "edit 1 (drain): drain.node: is missing"),
        ([{"drain": {"node": 3}}], "edit 1 (drain): drain.node: a text is needed, not 3"),
        ([{"drain": {"node": "n", "hard": True}}], "edit 1 (drain): drain.hard: unknown field; known are node"),
        ([{"add": {}}], "edit 1 (add): add: either file or objects is needed"),
        ([{"add": {"file": "x", "objects": [1]}}], "edit 1 (add): add: either file or objects is needed"),
        ([{"add": {"file": "x", "count": 0}}], "edit 1 (add): add.count: a number from 1 to 100000 is needed, not 0"),
        ([{"add": {"file": "x", "count": True}}], "add.count: a number from 1 to 100000 is needed, not True"),
        ([{"delete": {}}], "edit 1 (delete): delete: what is to be deleted is missing"),
        ([{"delete": {"secret": "s"}}], "edit 1 (delete): delete.secret: cannot be deleted here; known are pod"),
        ([{"addNodes": {"like": "n", "count": 2, "names": ["a"]}}], "addNodes.names: 1 names for 2 nodes"),
        ([{"addNodes": {"like": "n", "labels": {"a": 1}}}], "addNodes.labels: a map of texts is needed"),
        ([{"taintDevice": {"device": "a/b", "key": "k"}}], "taintDevice.device: DRIVER/POOL/DEVICE is needed"),
        (
            [{"taintDevice": {"device": "a/b/c", "key": "k", "effect": "Never"}}],
            "taintDevice.effect: 'Never' is not one of NoSchedule, NoExecute, None",
        ),
        ([{"weight": {"plugin": "NodeResourcesFit"}}], "edit 1 (weight): weight.weight: is missing"),
        ([{"weight": {"plugin": "X", "weight": -1}}], "weight.weight: a number from 0 to 2147483647 is needed, not -1"),
    ],
)
def test_mistakes_are_named_by_position_and_field(edits: Any, said: str) -> None:
    """Nobody has to count the entries of a long file."""
    with pytest.raises(UserError) as caught:
        decode_edits(edits)
    assert said in str(caught.value)


def test_edits_are_decoded_in_order() -> None:
    """The subject says where each was written."""
    first, second = decode_edits([{"drain": {"node": "a"}}, {"addNodes": {"like": "b", "names": ["c", "d"]}}])
    assert (first.subject, first.edit) == ("edit 1 (drain)", Drain("a"))
    assert second.edit == AddNodes("b", 2, ("c", "d"))
    assert decode_edits(None) == []


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"drain": {"node": "n9"}}, "edit 1 (drain): node: 'n9' does not exist; there are n1, n2"),
        ({"delete": {"pod": "p"}}, "Pod: 'default/p' does not exist; there is other/p"),
        ({"delete": {"claim": "c"}}, "ResourceClaim: 'default/c' does not exist; there are none"),
        ({"addNodes": {"like": "n1", "names": ["n2"]}}, "addNodes: names: node n2 exists already"),
        (
            {"taintDevice": {"device": "gpu.example.com/n1/gpu-7", "key": "k"}},
            "'gpu.example.com/n1/gpu-7' is not published; that pool has gpu-0",
        ),
        ({"taintDevice": {"device": "x/y/z", "key": "k"}}, "there are pools gpu.example.com/n1, gpu.example.com/n2"),
        ({"add": {"file": "nowhere.yaml"}}, "edit 1 (add): add.file: nowhere.yaml: No such file or directory"),
        ({"config": {"file": "nowhere.yaml"}}, "edit 1 (config): config.file: nowhere.yaml: No such file"),
        ({"weight": {"plugin": "NodeName", "weight": 2}}, "edit 1 (weight): weight.plugin: "),
        ({"weight": {"plugin": "Nothing", "weight": 2}}, "edit 1 (weight): weight.plugin: "),
        ({"weight": {"plugin": "NodeAffinity", "weight": 2, "profile": "x"}}, "weight.profile: 'x' is not among"),
        ({"serve": {"schedulerName": "default-scheduler", "profile": "x"}}, "'x' is not among the profiles"),
        (add({"kind": "Pod", "apiVersion": "v1"}), "document 1 (Pod): metadata.name: is missing"),
        (add({"apiVersion": "v1"}), "document 1: kind: is missing"),
        (add("text"), "document 1: kind: is missing"),
        (add(named("Pod")), "Pod default/x: spec.containers: is missing"),
        (add(pod("x", priorityClassName="nope")), "Pod default/x: spec.priorityClassName: no PriorityClass nope"),
        (add(named("Frob")), "Frob x: kind: is not a kind that decides"),
        (add(named("CronJob", "batch/v1")), "CronJob default/x: spec: is missing"),
        (add({**named("Job", "batch/v1"), "spec": {"template": 3}}), "Job default/x: spec.template.spec: is missing"),
        (add({**named("Job", "batch/v1"), "spec": {"template": {"spec": {}, "metadata": 3}}}), "Job x: does not have"),
        (
            add({**named("Job", "batch/v1"), "spec": {"template": {"spec": pod("x")["spec"]}, "parallelism": "2"}}),
            "Job default/x: spec.parallelism: '2' is not a number of at least 0",
        ),
        (add({**named("Pod"), "spec": []}), "Pod default/x"),
        (add({**pod("x"), "metadata": {"name": "x", "labels": 3}}), "Pod default/x"),
        (add(named("DaemonSet", "apps/v1")), "DaemonSet default/x: kind: a DaemonSet is not taken apart into"),
        (
            add({**named("CronJob", "batch/v1"), "spec": {"schedule": "@daily"}}),
            "CronJob default/x: spec.jobTemplate.spec: is missing",
        ),
        (
            add({**named("CronJob", "batch/v1"), "spec": {"jobTemplate": {"spec": {}}}}),
            "CronJob default/x: spec.jobTemplate.spec.template.spec: is missing",
        ),
        (add({**pod("x"), "spec": {"containers": [{"name": "c", "resources": {"requests": 3}}]}}), "Pod default/x"),
        (add({**claim("c"), "spec": {"devices": 3}}), "ResourceClaim default/c"),
    ],
)  # fmt: skip
def test_edits_that_cannot_be_carried_out(edit: Object, said: str) -> None:
    """Position, field, and what there is instead; never a traceback."""
    elsewhere = pod("p")
    elsewhere["metadata"]["namespace"] = "other"
    known = {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": "high"}, "value": 7}
    with pytest.raises(UserError) as caught:
        ask([*gpu_nodes(2), elsewhere, known], edit)
    assert said in str(caught.value)
    assert str(caught.value).startswith("edit 1 (")


def test_pods_are_added_and_told_why_they_wait() -> None:
    """Two devices, three Pods: claims are made from the template as the controller does."""
    found = ask(gpu_nodes(2), add(pod("p", template="one"), count=3))
    assert places(found) == {"p-1": "n1", "p-2": "n2", "p-3": ""}
    after = by_pod(found)["p-3"].after
    assert after is not None
    assert (after.state, found.troubled) == ("waits", True)
    assert after.reason.startswith("0/2 nodes are available: 2 cannot allocate all claims.")
    assert after.summary == "Devices: gpu: 2 devices: 2 in use (2 of 2 nodes)."
    assert by_pod(found)["p-1"].after.devices == {"p-1-gpu": ("gpu.example.com/n1/gpu-0",)}  # type: ignore[union-attr]


def test_a_pod_that_is_deleted_frees_its_device() -> None:
    """The claim made for it goes with it, and who waited is placed: that is good news."""
    items = [*gpu_nodes(1), placed(pod("a", claim="c"), "n1"), held(claim("c"), "n1", "a", "gpu-0"),
             pod("w", template="one")]  # fmt: skip
    found = ask(items, {"delete": {"pod": "a"}})
    assert places(found) == {"a": "gone", "w": "n1"}
    assert not found.troubled


def test_a_claim_in_use_is_only_marked() -> None:
    """As the API server does it: the devices stay taken, and the answer says until when."""
    items = [*gpu_nodes(1), placed(pod("a", claim="c"), "n1"), held(claim("c"), "n1", "a", "gpu-0"),
             pod("w", template="one")]  # fmt: skip
    found = ask(items, {"delete": {"claim": "c"}})
    assert found.changes == []
    assert found.assumptions == ["claim default/c is in use by a: it is only marked, and keeps its devices till then"]


def test_a_claim_that_leaks_is_freed() -> None:
    """Its consumer is gone: deleting it frees the device."""
    items = [*gpu_nodes(1), held(claim("c"), "n1", "ghost", "gpu-0"), pod("w", template="one")]
    assert places(ask(items, {"delete": {"claim": "c"}})) == {"w": "n1"}


def test_nodes_like_another_bring_copies_of_its_slices() -> None:
    """Names go on counting, labels are the node's own, taints that a cordon left are not copied."""
    items = [*gpu_nodes(1, 2), pod("a", template="one"), pod("b", template="one"), pod("c", template="one")]
    items[0]["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    found = ask(items, {"addNodes": {"like": "n1", "count": 2, "labels": {"new": "yes"}}})
    assert found.edits == ["2 nodes like n1 added (n2, n3), with 2 slices"]
    assert sorted(places(found).values()) == ["n2", "n2", "n3"]
    selected = ask(
        items, {"addNodes": {"like": "n1", "labels": {"new": "yes"}}}, add(pod("d", nodeSelector={"new": "yes"}))
    )
    assert places(selected)["d"] == "n2"
    own = ask(items, {"addNodes": {"like": "n1"}}, add(pod("d", nodeSelector={"kubernetes.io/hostname": "n2"})))
    assert places(own)["d"] == "n2"


def test_a_drained_node_loses_its_pods_and_controllers_make_new_ones() -> None:
    """Pods of DaemonSets stay, bare ones are lost, those of a ReplicaSet come back elsewhere."""
    items = [*gpu_nodes(2), placed(pod("web-1"), "n1", "ReplicaSet/web"), placed(pod("agent"), "n1", "DaemonSet/agent"),
             placed(pod("bare"), "n1"), placed(pod("db-0"), "n1", "StatefulSet/db")]  # fmt: skip
    found = ask(items, {"drain": {"node": "n1"}})
    assert places(found) == {"web-1": "gone", "bare": "gone", "web-1-new": "n2", "db-0": "n2"}
    changes = by_pod(found)
    assert (changes["web-1"].cause, changes["web-1"].replacement) == ("node n1 is drained", "default/web-1-new")
    assert changes["web-1-new"].cause == "in place of pod default/web-1"
    assert found.troubled, "the bare Pod is lost"
    assert not ask(items[:-2], {"drain": {"node": "n1"}}).troubled


def test_a_drain_tells_of_budgets() -> None:
    """The eviction API would refuse it for now."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    web = placed(pod("web-1"), "n1", "ReplicaSet/web")
    web["metadata"]["labels"] = {"app": "web"}
    found = ask([*gpu_nodes(2), budget, web], {"drain": {"node": "n1"}})
    assert found.assumptions == ["a PodDisruptionBudget would make the eviction of pod default/web-1 wait"]


def test_cordon_and_uncordon() -> None:
    """A cordoned node takes nothing; uncordoned, it does again."""
    items = [*gpu_nodes(1)]
    assert places(ask(items, {"cordon": {"node": "n1"}}, add(pod("p")))) == {"p": ""}
    assert places(ask(items, {"cordon": {"node": "n1"}}, {"uncordon": {"node": "n1"}}, add(pod("p")))) == {"p": "n1"}


def test_taints_of_nodes_keep_away_and_drive_out() -> None:
    """NoSchedule leaves who is there, NoExecute does not."""
    items = [*gpu_nodes(2), placed(pod("web-1"), "n1", "ReplicaSet/web")]
    soft = {"taintNode": {"node": "n1", "key": "k", "value": "v"}}
    assert places(ask(items, soft, add(pod("p")))) == {"p": "n2"}
    found = ask(items, {"taintNode": {"node": "n1", "key": "k", "effect": "NoExecute"}})
    assert places(found) == {"web-1": "gone", "web-1-new": "n2"}
    assert by_pod(found)["web-1"].cause == "node n1 is tainted k:NoExecute"


@pytest.mark.parametrize("as_rule", [False, True], ids=["driver", "rule"])
def test_taints_of_devices_keep_away_and_drive_out(as_rule: bool) -> None:
    """Whether the driver taints or a DeviceTaintRule: the Pod that uses the device goes with NoExecute."""

    def taint(effect: str) -> Object:
        if not as_rule:
            return {"taintDevice": {"device": "gpu.example.com/n1/gpu-0", "key": "bad", "effect": effect}}
        selector = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
        spec = {"deviceSelector": selector, "taint": {"key": "bad", "effect": effect}}
        return add(
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}
        )

    items = [*gpu_nodes(2), placed(pod("a", claim="c"), "n1"), held(claim("c"), "n1", "a", "gpu-0")]
    assert places(ask(items, taint("NoSchedule"), add(pod("p", template="one")))) == {"p": "n2"}
    found = ask(items, taint("NoExecute"))
    assert places(found) == {"a": "gone"}
    assert by_pod(found)["a"].cause == "device gpu.example.com/n1/gpu-0 is tainted bad:NoExecute"


def test_weights_and_configurations_change_where_pods_go() -> None:
    """Weight 0 leaves a plugin out; a new file may pack instead of spread."""
    items = [*gpu_nodes(2), placed(pod("a", cpu="4"), "n1")]
    assert places(ask(items, add(pod("p")))) == {"p": "n2"}
    packing = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""
    assert places(ask(items, {"config": {"file": "new"}}, add(pod("p")), files={"new": [packing]})) == {"p": "n1"}
    nothing = [
        {"weight": {"plugin": name, "weight": 0}} for name in ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
    ]
    assert places(ask(items, *nothing, add(pod("p")))) == {"p": "n1"}


def test_pods_of_another_scheduler_can_be_served() -> None:
    """What if these Pods were ours? Without the edit they are left alone, and said to be."""
    items = [*gpu_nodes(1), pod("p", scheduler="default-scheduler")]
    left = ask(items, {"cordon": {"node": "n1"}})
    assert (left.changes, left.troubled) == ([], False)
    found = ask(items, {"serve": {"schedulerName": "default-scheduler"}})
    (change,) = found.changes
    assert (change.change, change.before.state, change.after.node) == ("placed now", "not served", "n1")  # type: ignore[union-attr]
    added = ask(gpu_nodes(1), add(pod("q", scheduler="other")))
    assert "it waits for scheduler other, which has no profile here" in by_pod(added)["q"].after.reason  # type: ignore[union-attr]


def test_an_added_pod_that_names_another_scheduler_has_no_place() -> None:
    """The usual mistake, a manifest without schedulerName, is trouble; with serve behind it, it is not."""
    lost = ask(gpu_nodes(1), add(pod("q", scheduler="default-scheduler")))
    assert lost.troubled
    assert by_pod(lost)["q"].after.scheduler == "default-scheduler"  # type: ignore[union-attr]
    assert not ask(
        gpu_nodes(1), add(pod("q", scheduler="default-scheduler")), {"serve": {"schedulerName": "default-scheduler"}}
    ).troubled


def test_pods_that_must_go_and_are_another_schedulers_are_no_trouble() -> None:
    """Where they come again is not decided here."""
    items = [*gpu_nodes(2), placed(pod("web-1", scheduler="default-scheduler"), "n1", "ReplicaSet/web"),
             placed(pod("db-0", scheduler="default-scheduler"), "n1", "StatefulSet/db")]  # fmt: skip
    found = ask(items, {"drain": {"node": "n1"}})
    assert places(found) == {"web-1": "gone", "web-1-new": "", "db-0": ""}
    assert not found.troubled


@pytest.mark.parametrize("edits", [[], [{"uncordon": {"node": "n1"}}]], ids=["now", "without the edits"])
def test_pods_of_another_scheduler_count_alike_on_both_sides(edits: list[Object]) -> None:
    """They are neither placed nor waiting here, and nothing changes about them."""
    found = ask([*gpu_nodes(1), pod("p", scheduler="default-scheduler")], *edits)
    assert found.before == found.after
    assert (found.after.waiting, found.changes, found.unchanged) == (0, [], 1)


def test_a_node_that_is_deleted_takes_slices_and_pods_along() -> None:
    """Its devices are gone, its Pods come back where there is room."""
    items = [*gpu_nodes(2), placed(pod("web-1", template="one"), "n1", "ReplicaSet/web")]
    found = ask(items, {"delete": {"node": "n1"}}, add(pod("p", template="one")))
    assert places(found) == {"web-1": "gone", "web-1-new": "n2", "p": ""}


def test_what_has_no_part_is_left_out_of_a_manifest() -> None:
    """A ConfigMap beside a Pod is no mistake."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
    found = ask(gpu_nodes(1), add(config_map, pod("p")))
    assert places(found) == {"p": "n1"}
    assert found.assumptions == ["ConfigMap default/c has no part in where Pods go: left out"]

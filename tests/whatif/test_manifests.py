"""Manifests as people apply them: what their controllers and the API server's admission make of them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core import Pod
from scheduler.app.snapshot import objects_of, readable_kinds
from scheduler.dra.features import Features
from scheduler.errors import UserError
from scheduler.whatif.manifests import apply_manifests
from scheduler.whatif.store import Store
from tests.app.objects import gpu_class, gpu_slice, node, pod, template
from tests.explain.clusters import quota
from tests.explain.situations_plugins import gang
from tests.whatif.worlds import NOW, Object, add, ask, by_pod, places


def applied(*documents: Object, items: tuple[Object, ...] = (), count: int = 1) -> tuple[list[Pod], Store]:
    """The Pods that come of it, and the store."""
    features = Features()
    store = Store(objects_of(items, features, live=True), NOW)
    return apply_manifests(store, readable_kinds(features), documents, count, "team"), store


def workload(kind: str, version: str, **spec: Any) -> Object:
    """A workload named w."""
    body = {"template": {"metadata": {"labels": {"app": "w"}}, "spec": pod("x")["spec"]}, **spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": body}


@pytest.mark.parametrize(
    ("item", "names"),
    [
        (workload("Job", "batch/v1"), ["w-0"]),
        (workload("Job", "batch/v1", parallelism=3), ["w-0", "w-1", "w-2"]),
        (workload("Job", "batch/v1", parallelism=3, completions=2), ["w-0", "w-1"]),
        (workload("Job", "batch/v1", parallelism=2, completions=9), ["w-0", "w-1"]),
        (workload("Job", "batch/v1", parallelism=0), []),
        (workload("Job", "batch/v1", suspend=True), []),
        (workload("ReplicaSet", "apps/v1", replicas=2), ["w-0", "w-1"]),
        (workload("Deployment", "apps/v1", replicas=2), ["w-new-0", "w-new-1"]),
        (workload("StatefulSet", "apps/v1", replicas=2), ["w-0", "w-1"]),
        (workload("ReplicationController", "v1", selector={"app": "w"}), ["w-0"]),
    ],
)
def test_workloads_become_pods(item: Object, names: list[str]) -> None:
    """As many as run at once, in the manifest's namespace, with labels and owner."""
    pods, _ = applied(item)
    assert [one.metadata.name for one in pods] == names
    for one in pods:
        owner = one.metadata.controller()
        assert (one.metadata.namespace, one.metadata.labels["app"]) == ("team", "w")
        assert owner is not None
        assert owner.kind == item["kind"].replace("Deployment", "ReplicaSet")


def test_several_jobs_have_names_of_their_own() -> None:
    """Job times two: each with its Pods, in order."""
    pods, _ = applied(workload("Job", "batch/v1", parallelism=2), count=2)
    assert [one.metadata.name for one in pods] == ["w-1-0", "w-1-1", "w-2-0", "w-2-1"]


def test_what_is_told_of_several_jobs_is_told_once() -> None:
    """Their numbers are ours: notes and mistakes name the object that stands in the file."""
    _, store = applied(workload("Job", "batch/v1", parallelism=2, completions=5), count=3)
    assert list(store.notes) == ["Job team/w: 2 of its 5 Pods run at the same time"]
    with pytest.raises(UserError, match=r"Job team/w: spec\.parallelism"):
        applied(workload("Job", "batch/v1", parallelism="2"), count=3)


def cron_job(**spec: Any) -> Object:
    """A CronJob named w of two Pods at a time."""
    job = workload("Job", "batch/v1", parallelism=2)["spec"]
    body = {"schedule": "@daily", "jobTemplate": {"spec": job}, **spec}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "w"}, "spec": body}


def test_a_cron_job_is_one_run_of_its_job() -> None:
    """The Pods of that Job, and a sentence that says so; a suspended one makes none."""
    pods, store = applied(cron_job())
    assert [one.metadata.name for one in pods] == ["w-run-0", "w-run-1"]
    owner = pods[0].metadata.controller()
    assert owner is not None
    assert (owner.kind, owner.name) == ("Job", "w-run")
    assert list(store.notes) == ["CronJob team/w is taken as one run of its Job, whatever its schedule"]
    assert applied(cron_job(suspend=True))[0] == []


def test_an_indexed_job_says_the_index() -> None:
    """Its label is what Pods are told apart by."""
    pods, _ = applied(workload("Job", "batch/v1", parallelism=2, completions=2, completionMode="Indexed"))
    assert [one.metadata.labels["batch.kubernetes.io/job-completion-index"] for one in pods] == ["0", "1"]


def test_a_stateful_set_has_volume_claims() -> None:
    """One of each template for each Pod, named as the controller names them."""
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    templates = [{"metadata": {"name": "data"}, "spec": asked}]
    pods, store = applied(workload("StatefulSet", "apps/v1", replicas=2, volumeClaimTemplates=templates))
    assert [claim.key for claim in store.of("PersistentVolumeClaim")] == ["team/data-w-0", "team/data-w-1"]
    assert [one.spec.volumes[0].claim_name(one.metadata.name) for one in pods] == ["data-w-0", "data-w-1"]


def test_an_ephemeral_volume_gets_its_claim() -> None:
    """Named after Pod and volume, and owned by the Pod."""
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": asked}}}
    (one,), store = applied(pod("p", volumes=[volume]))
    (claim,) = store.of("PersistentVolumeClaim")
    assert (claim.key, claim.metadata.controller().uid) == ("default/p-tmp", one.uid)


def test_a_file_may_hold_what_its_pods_need_in_any_order() -> None:
    """The template stands behind the Pod that uses it."""
    found = ask([node("n1"), gpu_class(), gpu_slice("n1", 1)], add(pod("p", template="one"), template("one")))
    assert places(found) == {"p": "n1"}


def test_lists_are_taken_apart() -> None:
    """As kubectl get writes them."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b")]}
    assert [one.metadata.name for one in applied(listed)[0]] == ["a", "b"]


def test_an_object_that_exists_is_replaced_and_keeps_its_identity() -> None:
    """A Node manifest without a status keeps what the node offers; Pods and claims cannot be replaced."""
    fresh = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"new": "yes"}}}
    _, store = applied(fresh, items=(node("n1"),))
    found = store.get("Node", "n1")
    assert (found.metadata.labels, found.metadata.uid, found.status.allocatable["cpu"]) == (
        {"new": "yes"},
        "node//n1",
        "8",
    )
    twice = add(pod("p"), pod("p"))
    with pytest.raises(Exception, match=r"Pod default/p: metadata\.name: exists already"):
        ask([node("n1")], twice)


PRIORITIES = (
    {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": "high"}, "value": 9,
     "preemptionPolicy": "Never"},
    {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": "usual"}, "value": 3,
     "globalDefault": True},
)  # fmt: skip


def test_priorities_come_from_their_class() -> None:
    """Also the default one, and those that every cluster has."""
    items = PRIORITIES
    pods, _ = applied(
        pod("a", priorityClassName="high"), pod("b"), pod("c", priorityClassName="system-node-critical"), items=items
    )
    assert [(one.priority, one.spec.preemptionPolicy) for one in pods] == [
        (9, "Never"),
        (3, None),
        (2_000_001_000, None),
    ]


def test_an_unknown_class_is_told_where_classes_are_not_in_the_input() -> None:
    """Its priority cannot be judged; with the classes there it would be a mistake."""
    _, store = applied(pod("a", priorityClassName="high"))
    assert list(store.notes) == ["PriorityClass high is not in the input: Pods that name it have priority 0"]


def test_requests_are_filled_in() -> None:
    """From limits, and from a LimitRange of the namespace."""
    limited = pod("a")
    limited["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    bare = pod("b")
    bare["spec"]["containers"][0]["resources"] = {}
    limit = {"type": "Container", "defaultRequest": {"cpu": "500m"}, "default": {"cpu": "1", "memory": "1Gi"}}
    ranges = {"kind": "LimitRange", "apiVersion": "v1", "metadata": {"name": "r", "namespace": "default"},
              "spec": {"limits": [limit]}}  # fmt: skip
    pods, _ = applied(limited, bare, items=(ranges,))
    requests = [one.spec.containers[0].resources.requests for one in pods]
    assert requests[0] is not None
    assert requests[0]["cpu"] == "2"
    assert requests[1] == {"cpu": "500m"}


def test_nodes_that_stop_answering_are_tolerated_for_a_while() -> None:
    """As the admission plugin adds it, unless the Pod says something about it itself."""
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    pods, _ = applied(pod("a"), pod("b", tolerations=[own]), pod("c", tolerations=[{"operator": "Exists"}]))
    assert [len(one.spec.tolerations) for one in pods] == [2, 2, 1]


def test_ports_of_the_host_network_are_host_ports() -> None:
    """Two such Pods do not fit on one node."""
    served = pod("p", hostNetwork=True)
    served["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    found = ask([node("n1")], add(served, count=2))
    assert places(found) == {"p-1": "n1", "p-2": ""}
    assert "free ports" in by_pod(found)["p-2"].after.reason  # type: ignore[union-attr]


def test_a_quota_lets_only_so_many_claims_be_made() -> None:
    """Pods beyond it wait for theirs, and it is noted; a quota that comes with the edit counts, too."""
    limit = quota("tenant", **{"gpu.deviceclass.resource.k8s.io/devices": ("2", "0")})
    cluster = (node("n1"), gpu_class(), gpu_slice("n1", 4), template("t"))
    new = add(pod("p", template="t"), count=3)
    words = "ResourceQuota default/tenant: gpu.deviceclass.resource.k8s.io/devices: 1 asked, 2 of 2 used"
    for found in (ask([*cluster, limit], new), ask(cluster, add(limit), new)):
        assert places(found) == {"p-1": "n1", "p-2": "n1", "p-3": ""}
        note = f"the claim of template default/t for Pod default/p-3 is not made: {words}"
        assert note in found.assumptions


def test_members_of_a_group_share_a_claim_that_a_quota_counts_once() -> None:
    """The first makes it, the others find it."""
    limit = quota("tenant", **{"count/resourceclaims.resource.k8s.io": ("1", "0")})
    shared = {"name": "gpu", "resourceClaimTemplateName": "t"}
    group = gang(2)
    group["spec"]["resourceClaims"] = [shared]
    member = pod("p", template="t")
    member["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    cluster = [node("n1"), gpu_class(), gpu_slice("n1", 4), template("t"), limit, group]
    found = ask(cluster, add(member, count=2), gates={"GenericWorkload": True, "DRAWorkloadResourceClaims": True})
    assert not [note for note in found.assumptions if "is not made" in note], found.assumptions


def test_what_of_a_quota_is_not_imagined_is_said() -> None:
    """It limits claims alone here."""
    _, store = applied(quota("q", "team", **{"pods": ("0", "0"), "count/resourceclaims.resource.k8s.io": ("1", "0")}))
    assert list(store.notes) == ["ResourceQuota team/q: its limits on pods are not imagined"]

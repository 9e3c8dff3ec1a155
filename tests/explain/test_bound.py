"""A bound Pod is told what is wrong with it, as data and as a line of its own."""

from __future__ import annotations

from dataclasses import replace

from scheduler.explain.facts import Cause, Explanation
from scheduler.explain.pods import explain_pod
from scheduler.explain.redaction import redact_explanation
from scheduler.explain.sight import EVERYTHING, names_of, own_of
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, NOW, Object, device, explained, held, slice_of, snapshot

TAINT = {"key": "broken", "value": "yes", "effect": "NoExecute"}
WORDS = (
    f"device {DRIVER}/n1/a of claim default/mine is tainted broken=yes:NoExecute, which its request does not tolerate"
)


def cluster(*devices: Object, **result: object) -> list[Object]:
    """Pod p on n1 with device a, and the devices that are published now."""
    claim = held("mine", "n1", "a", pod="p", **result)
    return [node("n1"), gpu_class(), slice_of("n1", list(devices)), claim, pod("p", claim="mine", nodeName="n1")]


def told(items: list[Object]) -> list[str]:
    """The warnings, which are lines of the text as well."""
    found, text = explained(items)
    for warning in found.warnings:
        assert f"\n  warning: {warning.text}\n" in text
    return [warning.text for warning in found.warnings]


def test_a_healthy_pod_has_no_warning() -> None:
    """Its node and device are there, and a taint that only keeps new Pods away is no trouble for it."""
    assert told(cluster(device("a", taints=[{**TAINT, "effect": "NoSchedule"}]))) == []


def test_a_device_that_nobody_publishes_any_more() -> None:
    """Told with claim and device; not when no slices were read at all."""
    items = cluster(device("b"))
    assert told(items) == [f"device {DRIVER}/n1/a of claim default/mine is not published any more"]
    assert told([item for item in items if item["kind"] != "ResourceSlice"]) == []


def test_a_taint_that_drives_it_out() -> None:
    """NoExecute, unless the request tolerates it."""
    (text,) = told(cluster(device("a", taints=[TAINT])))
    assert text == f"{WORDS}: the Pod is to be evicted"
    assert told(cluster(device("a", taints=[TAINT]), tolerations=[{"operator": "Exists"}])) == []


def test_a_taint_by_rule_counts_as_well() -> None:
    """As the taint eviction controller sees it."""
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": DRIVER, "pool": "n1", "device": "a"}, "taint": TAINT},
    }
    (text,) = told([*cluster(device("a")), rule])
    assert text.startswith(WORDS)


def test_a_node_that_does_not_exist() -> None:
    """Not said when no Node was read at all."""
    items = cluster(device("a"))
    items[0] = node("n2")
    assert told(items) == ["node n1 does not exist"]
    assert told(items[1:]) == []


def test_a_pod_that_is_being_deleted() -> None:
    """It keeps its devices until it is gone."""
    items = cluster(device("a"))
    items[-1]["metadata"]["deletionTimestamp"] = "2027-01-15T07:30:00Z"
    assert told(items) == ["the Pod is being deleted"]


def test_who_may_not_list_slices_is_told_of_no_taint() -> None:
    """What slices say stays hidden; that the device is gone can be read in the Pod's own claim."""
    sees_all_but_slices = replace(EVERYTHING, slices=False)

    def seen(items: list[Object]) -> list[Cause]:
        snap = snapshot(items)
        mine = snap.pod("default", "p")
        found: Explanation = explain_pod(snap.profile_for(mine)[0], mine, snap.state, NOW)
        return redact_explanation(found, sees_all_but_slices, names_of(snap.state), own_of(snap.state, mine)).warnings

    assert seen(cluster(device("a", taints=[TAINT]))) == []
    assert len(seen(cluster(device("b")))) == 1

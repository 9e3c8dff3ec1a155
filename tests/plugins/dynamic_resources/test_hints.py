"""Which events wake a Pod that waits for devices."""

from __future__ import annotations

from collections.abc import Sequence

from plugins.dynamic_resources.hints import claim_keys, event_keys
from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.state.events import ClusterEvent

from .device_world import DeviceWorld, allocation_of


def woken(world: DeviceWorld, pod: Pod, events: Sequence[ClusterEvent]) -> bool:
    """Whether any of the plugin's registrations queues ``pod`` for any of ``events``."""
    for event in events:
        for registration in world.plugin.events():
            if registration.matches(event) and (
                registration.hint is None or registration.hint(pod, event.old, event.new)
            ):
                return True
    return False


def test_devices_that_come_free_wake_everybody() -> None:
    """An allocation that goes, with its claim or without, concerns every waiting Pod."""
    world = DeviceWorld()
    world.claim("mine")
    other = world.claim("other")
    pod = world.pod("p", "mine")
    world.allocate(other, allocation_of("gpu-0"), "x")
    allocated = world.state.devices.claims["default/other"]
    world.revision += 1
    metadata = {"name": "other", "namespace": "default", "uid": "other"}
    assert woken(world, pod, world.put(RESOURCE_CLAIM, {"metadata": metadata}))
    assert event_keys(allocated, world.state.devices.claims["default/other"]) is None
    world.allocate(other, allocation_of("gpu-0"), "x")
    assert woken(world, pod, world.remove(RESOURCE_CLAIM, "default/other"))


def test_other_claims_changes_wake_nobody() -> None:
    """A claim that is not the Pod's does not matter unless devices come free."""
    world = DeviceWorld()
    world.claim("mine")
    pod = world.pod("p", "mine")
    metadata = {"name": "other", "namespace": "default"}
    assert not woken(world, pod, world.put(RESOURCE_CLAIM, {"metadata": metadata}))
    assert not woken(world, pod, world.remove(RESOURCE_CLAIM, "default/other"))


def test_own_claims_changes_wake_the_pod() -> None:
    """The Pod's claim appears, or its status changes; a change of metadata alone is nothing."""
    world = DeviceWorld()
    pod = world.pod("p", "mine")
    metadata = {"name": "mine", "namespace": "default"}
    assert woken(world, pod, world.put(RESOURCE_CLAIM, {"metadata": metadata}))
    assert not woken(world, pod, world.put(RESOURCE_CLAIM, {"metadata": metadata | {"labels": {"a": "b"}}}))
    status = {"allocation": allocation_of("gpu-0")}
    assert woken(world, pod, world.put(RESOURCE_CLAIM, {"metadata": metadata, "status": status}))


def test_a_pod_whose_other_claims_are_missing_sleeps_on() -> None:
    """A hint that cannot resolve all claims skips: the Pod could not be tried anyway."""
    world = DeviceWorld()
    pod = world.pod("p", "mine", "missing")
    assert not woken(world, pod, world.put(RESOURCE_CLAIM, {"metadata": {"name": "mine", "namespace": "default"}}))


def test_nodes_classes_and_slices_wake_and_a_slice_that_goes_does_not() -> None:
    """Node, class and slice events always queue; slice deletion never; declared features do, unlike upstream."""
    world = DeviceWorld()
    world.claim("mine")
    pod = world.pod("p", "mine")
    assert woken(world, pod, world.put(NODE, {"metadata": {"name": "n"}}))
    assert woken(world, pod, world.put(NODE, {"metadata": {"name": "n"}, "status": {"declaredFeatures": ["F"]}}))
    assert woken(world, pod, world.put(DEVICE_CLASS, {"metadata": {"name": "new"}}))
    spec = {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"}
    assert woken(world, pod, world.put(RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": spec}))
    assert not woken(world, pod, world.remove(RESOURCE_SLICE, "s"))


def test_b62_a_pod_waits_for_the_names_of_its_generated_claims() -> None:
    """B62: without a status entry the Pod waits; an entry without a name means that no claim is needed."""
    world = DeviceWorld()
    world.claim("made", ownerReferences=[{"controller": True, "uid": "p", "name": "p", "kind": "Pod"}])
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("a", "b", "c")]

    def pod(*statuses: dict[str, str]) -> Pod:
        data = {
            "metadata": {"name": "p", "namespace": "default", "uid": "p"},
            "spec": {"resourceClaims": entries},
            "status": {"resourceClaimStatuses": list(statuses)},
        }
        found: Pod = convert(POD, data)
        return found

    waiting = pod({"name": "a", "resourceClaimName": "made"})
    status = world.plugin.pre_enqueue(waiting)
    assert status.reasons == ('pod "default/p": ResourceClaim not created yet',)
    assert list(claim_keys(waiting)) == ["default/made"]
    ready = pod({"name": "a", "resourceClaimName": "made"}, {"name": "b"}, {"name": "c", "resourceClaimName": "made"})
    assert world.plugin.pre_enqueue(ready).code == 0


def test_b59_and_owner_texts() -> None:
    """A claim being deleted, missing, or made for another Pod holds the Pod back with upstream's words."""
    world = DeviceWorld()
    world.claim("gone", deletionTimestamp="2026-01-01T00:00:00Z")
    world.claim("foreign", ownerReferences=[{"controller": True, "uid": "q", "name": "q", "kind": "Pod"}])
    assert world.plugin.pre_enqueue(world.pod("p", "gone")).reasons == ('resourceclaim "gone" is being deleted',)
    assert world.plugin.pre_enqueue(world.pod("p", "none")).reasons == ('could not find ResourceClaim "default/none"',)
    data = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "foreign"}]},
    }
    status = world.plugin.pre_enqueue(convert(POD, data))
    assert status.reasons == ("ResourceClaim default/foreign was not created for Pod default/p (Pod is not owner)",)
    nothing = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"resourceClaims": [{"name": "a"}]}}
    assert world.plugin.pre_enqueue(convert(POD, nothing)).reasons == (
        'pod "default/p", spec.resourceClaim "a": none of the supported fields are set',
    )

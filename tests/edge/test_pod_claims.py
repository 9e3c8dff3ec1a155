"""Claims of our own against the embedded server: creation with lost answers, deletion, the Pod's status."""

from __future__ import annotations

import random

import pytest

from scheduler.api.kinds import RESOURCE_CLAIM
from scheduler.api.resource import DeviceRequest, ExactDeviceRequest
from scheduler.dra.extended import special_claim, special_owner, with_requests
from scheduler.edge.claim_errors import ClaimUnknownError
from scheduler.edge.claims import ClaimWriter
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import ApiError, NotFound
from scheduler.edge.pod_claims import PodClaims
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action
from scheduler.framework.instructions import PatchPodStatus

from .objects import consumer, devices, load_pod, read_claim, read_pod
from .scripted import Sleeps


@pytest.fixture
def pod_claims(api: ApiClient, sleeps: Sleeps) -> PodClaims:
    writer = ClaimWriter(api, now=lambda: "2026-11-29T10:00:00Z", sleep=sleeps)
    return PodClaims(api, writer, sleep=sleeps, rng=random.Random(7))


async def claim_count(api: ApiClient) -> int:
    """Claims on the server."""
    body = (await api.call("GET", RESOURCE_CLAIM.path())).body
    return body.count(b"/extended-resource-claim")


async def test_a_claim_is_created_as_its_pods_own(
    embedded: EmbeddedServer, api: ApiClient, pod_claims: PodClaims
) -> None:
    """B75: the stored claim has a real name, the annotation and the Pod as controller; no placeholder is sent."""
    pod = load_pod(embedded)
    created = await pod_claims.create(special_claim(pod, "temporary"))
    assert created.metadata.name.startswith("p-extended-resources-")
    assert len(created.metadata.name) == len("p-extended-resources-") + 5
    assert created.uid != "temporary"
    assert special_owner(created) == pod.uid
    (owner,) = created.metadata.ownerReferences
    assert (owner.apiVersion, owner.kind, owner.name, owner.controller) == ("v1", "Pod", "p", True)


@pytest.mark.parametrize("action", [Action.DROP_BEFORE, Action.DROP_AFTER])
async def test_a_lost_answer_makes_no_second_claim(
    embedded: EmbeddedServer, api: ApiClient, pod_claims: PodClaims, action: Action
) -> None:
    """Whether the creation took effect or not, there is exactly one claim afterwards."""
    pod = load_pod(embedded)
    embedded.faults.add(Fault(action, verb="create", kind="resourceclaims", times=1))
    created = await pod_claims.create(special_claim(pod, "temporary"))
    assert await read_claim(api, created.metadata.name)
    assert await claim_count(api) == 1


async def test_a_long_pod_name_is_cut(embedded: EmbeddedServer, pod_claims: PodClaims) -> None:
    """The name has 63 characters at most, as with generated names."""
    pod = load_pod(embedded, "x" * 60)
    created = await pod_claims.create(special_claim(pod, "temporary"))
    assert len(created.metadata.name) == 63


async def test_deletion_takes_the_finalizer_off_first(
    embedded: EmbeddedServer, api: ApiClient, pod_claims: PodClaims, sleeps: Sleeps
) -> None:
    """An allocated and reserved claim is gone after delete, known in whatever version; a second delete is nothing."""
    pod = load_pod(embedded)
    asked = DeviceRequest("r", ExactDeviceRequest("gpu", allocationMode="ExactCount", count=1))
    created = await pod_claims.create(with_requests(special_claim(pod, "temporary"), [asked]))
    writer = ClaimWriter(api, now=lambda: "2026-11-29T10:00:00Z", sleep=sleeps)
    await writer.allocate(created, devices("gpu-0"), consumer("p"))
    await pod_claims.delete(created)
    with pytest.raises(NotFound):
        await read_claim(api, created.metadata.name)
    await pod_claims.delete(created)


async def test_a_deletion_that_is_never_answered_is_unknown(embedded: EmbeddedServer, pod_claims: PodClaims) -> None:
    """After four tries without an answer the caller learns that it cannot know."""
    created = await pod_claims.create(special_claim(load_pod(embedded), "temporary"))
    embedded.faults.add(Fault(Action.DROP_BEFORE, verb="delete", kind="resourceclaims", times=99))
    with pytest.raises(ClaimUnknownError):
        await pod_claims.delete(created)


def status_patch(pod: object) -> PatchPodStatus:
    """Some status."""
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}}
    return PatchPodStatus(pod, lambda: status, "update pod default/p ExtendedResourceClaimStatus")  # type: ignore[arg-type]  # a Pod


async def test_the_pods_status_is_merged_also_after_a_lost_answer(
    embedded: EmbeddedServer, api: ApiClient, pod_claims: PodClaims
) -> None:
    """The fields arrive and nothing else changes; a lost answer is repeated."""
    pod = load_pod(embedded)
    embedded.faults.add(Fault(Action.DROP_AFTER, verb="patch", kind="pods", times=1))
    await pod_claims.patch_status(status_patch(pod))
    found = await read_pod(api)
    assert found.status.extendedResourceClaimStatus is not None
    assert found.status.extendedResourceClaimStatus.resourceClaimName == "c"
    assert found.status.phase == pod.status.phase


async def test_a_refused_status_says_what_was_tried(
    embedded: EmbeddedServer, api: ApiClient, pod_claims: PodClaims
) -> None:
    """The message of a refusal begins with upstream's words."""
    pod = load_pod(embedded)
    await api.call("DELETE", f"/api/v1/namespaces/default/pods/{pod.metadata.name}")
    with pytest.raises(ApiError, match=r"^update pod default/p ExtendedResourceClaimStatus: ."):
        await pod_claims.patch_status(status_patch(pod))

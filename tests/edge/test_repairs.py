"""The doctor's repairs: never on what was touched or is used, dry first, and sure about lost answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.api.kinds import POD, RESOURCE_CLAIM, convert
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.resource import ResourceClaim
from scheduler.edge.client import ApiClient, Response
from scheduler.edge.repairs import ACCEPTED, DONE, FAILED, LEFT, Outcome, Repairer
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action
from scheduler.explain.doctor_facts import Repair
from scheduler.explain.doctor_heal import release, unreserve, without_finalizers
from tests.explain.clusters import held

from .objects import load_pod, read_claim


def leaked(server: EmbeddedServer, pod: str = "gone", uid: str = "") -> ResourceClaim:
    """A claim with a device, reserved for a Pod."""
    item = held("c", "n1", "d0", pod=pod)
    if uid:
        item["status"]["reservedFor"][0]["uid"] = uid
    claim: ResourceClaim = convert(RESOURCE_CLAIM, server.load([item])[0].obj)
    return claim


async def carry_out(api: ApiClient, repair: Repair, *, dry: bool = False) -> Outcome:
    return await Repairer(api, RESOURCE_CLAIM).carry_out(repair, dry=dry)


async def test_a_dry_run_asks_the_server_and_stores_nothing(embedded: EmbeddedServer, api: ApiClient) -> None:
    """The server judges the write; the claim keeps its devices until it is meant."""
    repair = release(leaked(embedded))
    before = embedded.store.revision
    assert (await carry_out(api, repair, dry=True)).result == ACCEPTED
    assert len(embedded.audit.writes()) == 1
    assert embedded.store.revision == before
    assert (await read_claim(api)).status.allocation is not None
    assert (await carry_out(api, repair)).result == DONE
    assert len(embedded.audit.writes()) == 3, "the write itself comes after a dry run of its own"
    now = await read_claim(api)
    assert (now.status.allocation, now.status.reservedFor) == (None, ())


@pytest.mark.parametrize("verb", ["list", "patch"])
async def test_an_answer_lost_before_anything_was_to_be_stored_is_a_failure(
    embedded: EmbeddedServer, api: ApiClient, verb: str
) -> None:
    """That the claim is gone by then is no work of ours: nothing is said to be done, or changed by us."""
    repair = release(leaked(embedded))
    kind = "pods" if verb == "list" else "resourceclaims"
    embedded.faults.add(Fault(Action.DROP_AFTER, verb=verb, kind=kind, times=None))
    outcome = await carry_out(api, repair)
    assert outcome.result == FAILED
    assert "perhaps" not in outcome.why
    assert (await read_claim(api)).status.allocation is not None


async def test_a_claim_that_was_touched_is_left_alone(embedded: EmbeddedServer, api: ApiClient) -> None:
    """Any write since the look: nobody knows what it means."""
    repair = release(leaked(embedded))
    body = msgspec.json.encode({"metadata": {"labels": {"new": "yes"}}})
    await api.call("PATCH", RESOURCE_CLAIM.path("default", "c"), body, "application/merge-patch+json")
    outcome = await carry_out(api, repair)
    assert (outcome.result, outcome.why) == (LEFT, "the claim has been changed since it was looked at")
    assert (await read_claim(api)).status.allocation is not None


HEALS: dict[str, Callable[[ResourceClaim], Repair]] = {
    "release": release,
    "unreserve": lambda claim: unreserve(claim, ["pod/default/gone"]),
    "without_finalizers": lambda claim: without_finalizers(claim, ["x/y"]),
}


@pytest.mark.parametrize("heal", HEALS)
async def test_a_write_between_the_last_look_and_ours_wins(embedded: EmbeddedServer, api: ApiClient, heal: str) -> None:
    """The preconditions stand in the patch itself: a check before it would not be enough."""
    repair = HEALS[heal](leaked(embedded))
    body = msgspec.json.encode({"metadata": {"labels": {"new": "yes"}}})
    await api.call("PATCH", RESOURCE_CLAIM.path("default", "c"), body, "application/merge-patch+json")
    now = await read_claim(api)

    class Late(Repairer):
        async def _version(self, repair: Repair) -> tuple[str, str]:
            return repair.uid, repair.version

    outcome = await Late(api, RESOURCE_CLAIM).carry_out(repair, dry=False)
    assert outcome.result == LEFT
    assert "changed meanwhile" in outcome.why
    assert await read_claim(api) == now or (await read_claim(api)).metadata == now.metadata


async def test_a_pod_that_lives_keeps_its_claim(embedded: EmbeddedServer, api: ApiClient) -> None:
    """The doctor's LIST did not show it, the Pod itself does."""
    pod = load_pod(embedded)
    repair = release(leaked(embedded, "p", pod.uid))
    outcome = await carry_out(api, repair)
    assert (outcome.result, outcome.why) == (LEFT, "Pod default/p uses it")
    assert embedded.audit.writes() == []


async def test_a_pod_that_has_ended_keeps_nothing(embedded: EmbeddedServer, api: ApiClient) -> None:
    """It is still there, under the name and uid of the reservation, and on its node: it uses nothing any more."""
    pod = load_user(embedded, phase="Succeeded")
    assert (await carry_out(api, release(leaked(embedded, "p", pod["metadata"]["uid"])))).result == DONE
    assert (await read_claim(api)).status.allocation is None


def load_user(server: EmbeddedServer, phase: str = "Running", *, status: Any = None, **spec: Any) -> dict[str, Any]:
    """Pod p on a node, that names claim c."""
    item = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "r", "resourceClaimName": "c"}],
            **spec,
        },
        "status": {"phase": phase, **(status or {})},
    }
    return server.load([item])[0].obj


@pytest.mark.parametrize("heal", ["release", "without_finalizers"])
@pytest.mark.parametrize(
    "naming",
    [
        {},
        {
            "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
            "status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}]},
        },
        {
            "resourceClaims": [],
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}},
        },
    ],
)
async def test_a_bound_pod_that_names_the_claim_keeps_it(
    embedded: EmbeddedServer, api: ApiClient, heal: str, naming: dict[str, Any]
) -> None:
    """Reserved for it or not, by whichever field it names it, and although the look did not show it."""
    repair = HEALS[heal](leaked(embedded))
    load_user(embedded, **naming)
    outcome = await carry_out(api, repair)
    assert (outcome.result, outcome.why) == (LEFT, "Pod default/p uses it")
    assert embedded.audit.writes() == []


@pytest.mark.parametrize("other", [{"nodeName": None}, {"resourceClaims": []}, {"phase": "Failed"}])
async def test_only_who_runs_with_the_claim_keeps_it(
    embedded: EmbeddedServer, api: ApiClient, other: dict[str, Any]
) -> None:
    """Not a Pod that waits for a node, names other claims or has ended."""
    repair = release(leaked(embedded))
    load_user(embedded, **other)
    assert (await carry_out(api, repair)).result == DONE


async def test_entries_of_the_dead_go_from_a_claim_in_use(embedded: EmbeddedServer, api: ApiClient) -> None:
    """No device is freed by that: the Pod that runs with the claim keeps its own entry."""
    pod = load_user(embedded)
    item = held("c", "n1", "d0", pod="gone")
    alive = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    item["status"]["reservedFor"].append(alive)
    claim: ResourceClaim = convert(RESOURCE_CLAIM, embedded.load([item])[0].obj)
    assert (await carry_out(api, unreserve(claim, ["pod/default/gone"]))).result == DONE
    now = await read_claim(api)
    assert now.status.allocation is not None
    assert [msgspec.json.decode(entry) for entry in now.status.reservedFor] == [alive]


@pytest.mark.parametrize("heal", HEALS)
async def test_an_entry_under_another_name_is_found_by_its_uid(
    embedded: EmbeddedServer, api: ApiClient, heal: str
) -> None:
    """The kubelet compares uids; nobody checks the name in a reservation."""
    pod = load_pod(embedded)
    claim = leaked(embedded, "other-name", pod.uid)
    repair = unreserve(claim, [pod.uid]) if heal == "unreserve" else HEALS[heal](claim)
    assert (await carry_out(api, repair)).why == "Pod default/p uses it"


@pytest.mark.parametrize("heal", HEALS)
async def test_a_pod_that_cannot_be_read_ends_repairs_in_its_namespace(
    embedded: EmbeddedServer, api: ApiClient, heal: str
) -> None:
    """It may be the one that runs with the claim."""
    repair = HEALS[heal](leaked(embedded))
    load_user(embedded)["spec"]["priority"] = "oops"  # not by a request: the server takes no such Pod
    outcome = await carry_out(api, repair)
    assert outcome.result == LEFT
    assert outcome.why.startswith(
        "a Pod of its namespace may use it and cannot be read: Pod default/p: $.spec.priority"
    )
    assert embedded.audit.writes() == []


@pytest.mark.parametrize(
    "fault",
    [
        lambda: Fault(Action.ANSWER, verb="list", kind="pods", code=403, reason="Forbidden", message="no"),
        lambda: Fault(Action.DROP_AFTER, verb="list", kind="pods", times=9),
    ],
)
async def test_without_the_list_of_pods_nothing_is_written(
    embedded: EmbeddedServer, api: ApiClient, fault: Callable[[], Fault]
) -> None:
    """Whoever may not look, or gets no answer, does not know who uses the claim."""
    repair = release(leaked(embedded))
    embedded.faults.add(fault())
    assert (await carry_out(api, repair)).result == FAILED
    assert embedded.audit.writes() == []


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"items": [null]}', b"oops"])
async def test_an_answer_that_is_no_list_of_pods_frees_nothing(
    embedded: EmbeddedServer, api: ApiClient, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """A proxy's page is not an empty namespace."""
    repair, call = release(leaked(embedded)), api.call

    async def answered(method: str, path: str, *more: Any, **named: Any) -> Response:
        answer = await call(method, path, *more, **named)
        return Response(answer.status, body) if path == POD.path("default") else answer

    monkeypatch.setattr(api, "call", answered)
    assert (await carry_out(api, repair)).result == LEFT
    assert embedded.audit.writes() == []


def group_claim(server: EmbeddedServer, uid: str, **reference: str) -> ResourceClaim:
    """A claim with a device, reserved for PodGroup g."""
    item = held("c", "n1", "d0")
    named = {"apiGroup": POD_GROUP.group, "resource": "podgroups", "name": "g", "uid": uid}
    item["status"]["reservedFor"] = [{**named, **reference}]
    claim: ResourceClaim = convert(RESOURCE_CLAIM, server.load([item])[0].obj)
    return claim


def load_group(server: EmbeddedServer) -> dict[str, Any]:
    """PodGroup g."""
    metadata = {"name": "g", "namespace": "default"}
    return server.load([{"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "metadata": metadata}])[0].obj


async def test_a_pod_group_that_lives_keeps_its_claim(embedded: EmbeddedServer, api: ApiClient) -> None:
    """The doctor's LIST did not show it."""
    uid = load_group(embedded)["metadata"]["uid"]
    outcome = await carry_out(api, release(group_claim(embedded, uid)))
    assert (outcome.result, outcome.why) == (LEFT, "PodGroup default/g uses it")
    assert embedded.audit.writes() == []


@pytest.mark.parametrize("again", [True, False])
async def test_a_pod_group_that_is_gone_keeps_nothing(embedded: EmbeddedServer, api: ApiClient, again: bool) -> None:
    """Nor does one that was made again under its name."""
    if again:
        load_group(embedded)
    assert (await carry_out(api, release(group_claim(embedded, "an older one")))).result == DONE


async def test_a_pod_group_that_cannot_be_read_is_not_called_gone(embedded: EmbeddedServer, api: ApiClient) -> None:
    """Nothing is written, and the object is named."""
    group = load_group(embedded)
    group["spec"] = "oops"
    outcome = await carry_out(api, release(group_claim(embedded, group["metadata"]["uid"])))
    assert (outcome.result, "PodGroup default/g" in outcome.why) == (FAILED, True)
    assert embedded.audit.writes() == []


async def test_a_consumer_of_which_nothing_is_known_keeps_its_claim(embedded: EmbeddedServer, api: ApiClient) -> None:
    """Whoever made the repair."""
    outcome = await carry_out(api, release(group_claim(embedded, "u", apiGroup="scheduling.x-k8s.io")))
    assert (outcome.result, outcome.why) == (LEFT, "it cannot be looked up whether podgroups g uses it")


async def test_a_claim_that_is_gone_is_left_alone(embedded: EmbeddedServer, api: ApiClient) -> None:
    """Nothing to repair any more."""
    repair = release(leaked(embedded))
    await api.call("DELETE", RESOURCE_CLAIM.path("default", "c"))
    assert (await carry_out(api, repair)).result == LEFT


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (lambda: Fault(Action.DROP_AFTER, verb="patch", skip=1), FAILED),
        (lambda: Fault(Action.DROP_AFTER, verb="patch"), FAILED),
        (lambda: Fault(Action.DROP_BEFORE, verb="patch"), FAILED),
        (lambda: Fault(Action.ANSWER, verb="patch", code=403, reason="Forbidden", message="no"), FAILED),
        (lambda: Fault(Action.ANSWER, verb="get", kind="pods", code=403, reason="Forbidden", message="no"), FAILED),
    ],
)
async def test_what_is_not_sure_is_not_called_done(
    embedded: EmbeddedServer, api: ApiClient, fault: Callable[[], Fault], result: str
) -> None:
    """Lost answers and refusals are failures with their reason; whoever may not look at the Pod does not write."""
    repair = release(leaked(embedded))
    embedded.faults.add(fault())
    outcome = await carry_out(api, repair)
    assert (outcome.result, bool(outcome.why)) == (result, True)

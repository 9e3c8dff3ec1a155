"""The doctor's repairs: never on what was touched or is used, dry first, and sure about lost answers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from scheduler.api.kinds import RESOURCE_CLAIM, convert
from scheduler.api.resource import ResourceClaim
from scheduler.edge.client import ApiClient
from scheduler.edge.repairs import ACCEPTED, DONE, FAILED, LEFT, Outcome, Repairer
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action
from scheduler.explain.doctor_facts import Repair
from scheduler.explain.doctor_heal import release
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


async def test_a_claim_that_was_touched_is_left_alone(embedded: EmbeddedServer, api: ApiClient) -> None:
    """Any write since the look: nobody knows what it means."""
    repair = release(leaked(embedded))
    body = msgspec.json.encode({"metadata": {"labels": {"new": "yes"}}})
    await api.call("PATCH", RESOURCE_CLAIM.path("default", "c"), body, "application/merge-patch+json")
    outcome = await carry_out(api, repair)
    assert (outcome.result, outcome.why) == (LEFT, "the claim has been changed since it was looked at")
    assert (await read_claim(api)).status.allocation is not None


async def test_a_write_between_the_last_look_and_ours_wins(embedded: EmbeddedServer, api: ApiClient) -> None:
    """The preconditions stand in the patch itself: a check before it would not be enough."""
    repair = release(leaked(embedded))
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

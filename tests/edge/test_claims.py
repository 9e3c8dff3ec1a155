"""The claim writer against the embedded server: order of writes, conflicts, lost answers, shared claims."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from scheduler.api.bodies import claim_allocation_patch
from scheduler.api.kinds import RESOURCE_CLAIM
from scheduler.api.resource import FINALIZER, AllocationResult, ConsumerReference, OpaqueDeviceConfiguration
from scheduler.api.resource import DeviceAllocationConfiguration as Configuration
from scheduler.edge.claim_errors import (
    ClaimConflictError,
    ClaimFreedError,
    ClaimFullError,
    ClaimGoneError,
    ClaimInUseError,
    ClaimRefusedError,
    ClaimTakenError,
    ClaimUnguardedError,
    ClaimUnknownError,
)
from scheduler.edge.claims import ClaimWriter
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import Forbidden, Invalid
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action
from scheduler.framework.instructions import WriteClaim

from .objects import consumer, devices, load_claim, read_claim
from .scripted import Sleeps


@pytest.fixture
def writer(api: ApiClient, sleeps: Sleeps) -> ClaimWriter:
    return ClaimWriter(api, now=lambda: "2026-11-29T10:00:00Z", sleep=sleeps)


def patches(server: EmbeddedServer) -> list[str]:
    """Sub-resource and code of each patch of a claim, in order."""
    return [f"{entry.call.subresource or 'main'} {entry.code}" for entry in server.audit.writes(kind="resourceclaims")]


async def test_allocation_is_finalizer_then_one_status_write(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter
) -> None:
    """The finalizer comes first, then allocation, reservation and timestamp in one patch; nothing else changes."""
    claim = load_claim(embedded)
    written = await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    assert patches(embedded) == ["main 200", "status 200"]
    stored = await read_claim(api)
    assert stored.metadata.finalizers == ("x/y", FINALIZER)
    assert stored.metadata.labels == {"keep": "me"}
    assert stored.status.allocation is not None
    assert stored.status.allocation.allocationTimestamp == "2026-11-29T10:00:00Z"
    assert [device.device for device in stored.status.allocation.devices.results] == ["gpu-0"]
    assert stored.consumers == (ConsumerReference(resource="pods", name="p", uid="uid-p"),)
    assert written.metadata.resourceVersion == stored.metadata.resourceVersion
    assert writer.lanes == 0


def configured(parameters: bytes) -> AllocationResult:
    """One device with opaque driver parameters."""
    config = Configuration("FromClaim", ("r",), OpaqueDeviceConfiguration("d.example", msgspec.Raw(parameters)))
    given = devices("gpu-0")
    return msgspec.structs.replace(given, devices=msgspec.structs.replace(given.devices, config=(config,)))


async def test_configuration_travels_as_it_is(embedded: EmbeddedServer, writer: ClaimWriter) -> None:
    """Opaque driver parameters arrive as they were."""
    parameters = b'{"apiVersion":"x/v1","kind":"P","n":1.5,"list":[1,{"a":"b"}]}'
    written = await writer.allocate(load_claim(embedded), configured(parameters), consumer("p"))
    assert written.status.allocation is not None
    opaque = written.status.allocation.devices.config[0].opaque
    assert opaque is not None
    assert msgspec.json.decode(opaque.parameters) == msgspec.json.decode(parameters)


async def test_parameters_with_nulls_are_written(embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter) -> None:
    """They take another kind of patch (a merge patch loses nulls); its preconditions hold just as well."""
    claim = load_claim(embedded)
    allocation = configured(b'{"apiVersion":"x/v1","kind":"P","no":null,"list":[1,null]}')
    body, content_type = claim_allocation_patch(claim, allocation, [consumer("p")])
    assert content_type == "application/json-patch+json"
    assert b'"no":null,"list":[1,null]' in body
    label = b'{"metadata":{"labels":{"new":"1"}}}'
    await api.call("PATCH", RESOURCE_CLAIM.path("default", "c"), label, "application/merge-patch+json")
    written = await writer.allocate(claim, allocation, consumer("p"))
    assert written.reserved_for("uid-p")
    assert written.metadata.labels == {"keep": "me", "new": "1"}


async def test_foreign_change_meanwhile_is_read_and_respected(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter
) -> None:
    """A label written since the decision costs a conflict and a second try, and survives."""
    claim = load_claim(embedded)
    await api.call(
        "PATCH",
        RESOURCE_CLAIM.path("default", "c"),
        b'{"metadata":{"labels":{"new":"1"}}}',
        "application/merge-patch+json",
    )
    await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    stored = await read_claim(api)
    assert stored.metadata.labels == {"keep": "me", "new": "1"}
    assert patches(embedded) == ["main 200", "main 409", "main 200", "status 200"]


async def test_allocated_elsewhere_meanwhile(embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter) -> None:
    """Another allocation stored first is a lost race with upstream's text; an equal one is shared."""
    claim = load_claim(embedded)
    await writer.allocate(claim, devices("gpu-0"), consumer("other"))
    with pytest.raises(ClaimTakenError, match=r"^claim default/c got allocated elsewhere in the meantime$") as caught:
        await writer.allocate(claim, devices("gpu-1"), consumer("p"))
    assert caught.value.lost_race
    await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    assert [c.name for c in (await read_claim(api)).consumers] == ["other", "p"]


async def test_deleted_meanwhile(embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter) -> None:
    """A claim being deleted, gone, or replaced under its name is told with upstream's text."""
    claim = load_claim(embedded)
    path = RESOURCE_CLAIM.path("default", "c")
    await api.call("DELETE", path)  # its finalizer holds it
    with pytest.raises(ClaimGoneError, match=r"^claim default/c got deleted in the meantime$"):
        await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    await api.call("PATCH", path, b'{"metadata":{"finalizers":null}}', "application/merge-patch+json")
    with pytest.raises(ClaimGoneError):
        await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    load_claim(embedded)
    with pytest.raises(ClaimGoneError):
        await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    assert (await read_claim(api)).status.allocation is None


@pytest.mark.parametrize("action", [Action.DROP_BEFORE, Action.DROP_AFTER])
@pytest.mark.parametrize("subresource", ["", "status"])
async def test_lost_answers_are_read_back(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter, action: Action, subresource: str
) -> None:
    """An answer lost before or after the effect ends in exactly one allocation and one reservation."""
    claim = load_claim(embedded)
    fault = embedded.faults.add(Fault(action, verb="patch", kind="resourceclaims", subresource=subresource))
    written = await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    assert fault.hits == 1
    assert len(written.consumers) == 1
    assert (await read_claim(api)).metadata.resourceVersion == written.metadata.resourceVersion


async def test_undecodable_answer_is_read_back(embedded: EmbeddedServer, writer: ClaimWriter, api: ApiClient) -> None:
    """A 504 that hides an effect is not taken for a failure."""
    claim = load_claim(embedded)
    embedded.faults.add(Fault(Action.ANSWER, verb="patch", kind="resourceclaims", code=504, reason="Timeout"))
    written = await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    assert written.reserved_for("uid-p")


async def test_outcome_that_stays_unknown(embedded: EmbeddedServer, api: ApiClient, sleeps: Sleeps) -> None:
    """When reading back fails for two minutes too, the error says that the outcome is unknown."""
    writer = ClaimWriter(api, sleep=sleeps)
    claim = load_claim(embedded)
    embedded.faults.add(Fault(Action.DROP_AFTER, verb="patch", kind="resourceclaims", subresource="status"))
    embedded.faults.add(Fault(Action.ANSWER, verb="get", kind="resourceclaims", code=503, times=None))
    with pytest.raises(ClaimUnknownError):
        await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    assert sum(sleeps.pauses_s) >= 120
    embedded.faults.clear()
    assert (await read_claim(api)).reserved_for("uid-p")
    assert (await writer.deallocate(claim, "uid-p")) is not None
    assert (await read_claim(api)).status.allocation is None


@pytest.mark.parametrize("times", [30, None])
async def test_after_a_conflict_that_cannot_be_read_back_the_outcome_is_unknown(
    embedded: EmbeddedServer, api: ApiClient, sleeps: Sleeps, times: int | None
) -> None:
    """The write may have been sent twice on the way, the first time with effect: read back as after a lost answer."""
    writer = ClaimWriter(api, sleep=sleeps)
    claim = load_claim(embedded)
    embedded.faults.add(Fault(Action.ANSWER, verb="patch", kind="resourceclaims", subresource="status", code=409))
    embedded.faults.add(Fault(Action.ANSWER, verb="get", kind="resourceclaims", code=503, times=times))
    if times is not None:
        assert (await writer.allocate(claim, devices("gpu-0"), consumer("p"))).reserved_for("uid-p")
        return
    with pytest.raises(ClaimUnknownError, match=r"^get updated claim default/c after conflict: "):
        await writer.allocate(claim, devices("gpu-0"), consumer("p"))


async def test_endless_conflicts_end_after_five_tries(
    embedded: EmbeddedServer, writer: ClaimWriter, sleeps: Sleeps
) -> None:
    """Five conflicts in a row are the end, 10 ms +-10 % apart."""
    claim = load_claim(embedded)
    fault = embedded.faults.add(Fault(Action.ANSWER, verb="patch", kind="resourceclaims", code=409, times=None))
    with pytest.raises(ClaimConflictError):
        await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    assert fault.hits == 5
    assert len(sleeps.pauses_s) == 5
    assert all(0.009 <= pause_s <= 0.011 for pause_s in sleeps.pauses_s)


async def test_refused_allocation_is_not_repeated(embedded: EmbeddedServer, writer: ClaimWriter) -> None:
    """A 422 about the content is told at once, with what was being done."""
    claim = load_claim(embedded)
    fault = embedded.faults.add(
        Fault(Action.ANSWER, verb="patch", kind="resourceclaims", subresource="status", code=422, times=None)
    )
    with pytest.raises(Invalid, match=r"^add allocation and reservation to claim default/c: "):
        await writer.allocate(claim, devices("gpu-0"), consumer("p"))
    assert fault.hits == 1


async def test_waiting_reservations_become_one_write(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter
) -> None:
    """Fifty Pods reserving one claim at once cost far fewer writes than Pods, and all are in."""
    claim = await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("first"))
    before = len(patches(embedded))
    answers = await asyncio.gather(*(writer.reserve(claim, consumer(f"p{i}")) for i in range(50)))
    assert len(patches(embedded)) - before <= 3
    stored = await read_claim(api)
    assert {c.name for c in stored.consumers} == {"first", *(f"p{i}" for i in range(50))}
    assert all(answer.reserved_for(f"uid-p{i}") for i, answer in enumerate(answers))
    assert writer.lanes == 0


async def test_cancelled_reservation_takes_nobody_along(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter
) -> None:
    """The one that holds the lane is cancelled in mid-write; the others are served by the next."""
    claim = await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("first"))
    embedded.faults.add(Fault(Action.DELAY, verb="patch", kind="resourceclaims", delay_s=0.2))
    tasks = [asyncio.create_task(writer.reserve(claim, consumer(f"p{i}"))) for i in range(4)]
    await asyncio.sleep(0.05)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert not any(isinstance(result, BaseException) for result in results[1:])
    assert {"p1", "p2", "p3"} <= {c.name for c in (await read_claim(api)).consumers}
    assert writer.lanes == 0


async def test_reservation_checks_what_was_filtered_on(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter
) -> None:
    """Freed or given other devices since the filter: no reservation; the same devices: reserved."""
    claim = await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("a"))
    await writer.deallocate(claim, "uid-a")
    with pytest.raises(ClaimFreedError, match=r"^claim default/c got deallocated elsewhere in the meantime$"):
        await writer.reserve(claim, consumer("b"))
    await writer.allocate(await read_claim(api), devices("gpu-1"), consumer("c"))
    with pytest.raises(ClaimTakenError):
        await writer.write(WriteClaim(claim, consumer("b"), expected=claim.status.allocation))
    await writer.write(WriteClaim(await read_claim(api), consumer("b"), expected=devices("gpu-1")))
    assert [c.name for c in (await read_claim(api)).consumers] == ["c", "b"]


async def test_no_more_than_256_consumers(embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter) -> None:
    """The 257th reservation is refused without a write, also when it waits in one batch with others."""
    claim = await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("p0"))
    results = await asyncio.gather(
        *(writer.reserve(claim, consumer(f"p{i}")) for i in range(1, 258)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 2
    assert all(isinstance(error, ClaimFullError) for error in refused)
    assert len((await read_claim(api)).consumers) == 256


async def test_unreserve_removes_one_and_keeps_fields_we_do_not_know(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter
) -> None:
    """The allocation stays, other consumers stay, a second call changes nothing, a missing claim is None."""
    claim = await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("a"))
    claim = await writer.reserve(claim, consumer("b"))
    left = await writer.unreserve(claim, "uid-a")
    assert left is not None
    assert [c.name for c in left.consumers] == ["b"]
    assert left.status.allocation is not None
    again = await writer.unreserve(claim, "uid-a")
    assert again is not None
    assert again.metadata.resourceVersion == left.metadata.resourceVersion
    gone = msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, name="none"))
    assert await writer.unreserve(gone, "uid-a") is None


@pytest.mark.parametrize("action", [Action.DROP_BEFORE, Action.DROP_AFTER])
async def test_unreserve_and_deallocate_survive_lost_answers(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter, action: Action
) -> None:
    """Both end in the wanted state, whenever the answer was lost."""
    claim = await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("a"))
    claim = await writer.reserve(claim, consumer("b"))
    embedded.faults.add(Fault(action, verb="patch", kind="resourceclaims"))
    await writer.unreserve(claim, "uid-b")
    assert [c.name for c in (await read_claim(api)).consumers] == ["a"]
    embedded.faults.add(Fault(action, verb="patch", kind="resourceclaims"))
    freed = await writer.deallocate(await read_claim(api), "uid-a")
    assert freed is not None
    assert (await read_claim(api)).status.allocation is None


async def test_deallocation_never_hits_others(embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter) -> None:
    """Reserved by anybody else, or allocated otherwise meanwhile: left alone; ours alone: cleared at once."""
    claim = await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("a"))
    both = await writer.reserve(claim, consumer("b"))
    with pytest.raises(ClaimInUseError, match="reserved for others: pods b"):
        await writer.deallocate(claim, "uid-a")
    await writer.unreserve(both, "uid-b")
    with pytest.raises(ClaimTakenError):
        await writer.deallocate(claim, "uid-a", devices("gpu-7"))
    freed = await writer.deallocate(claim, "uid-a")
    assert freed is not None
    assert freed.status.allocation is None
    assert freed.status.reservedFor == ()
    assert (await writer.deallocate(freed, "uid-a")) is not None


async def test_writes_of_two_schedulers_on_one_claim(embedded: EmbeddedServer, api: ApiClient, sleeps: Sleeps) -> None:
    """Two writers without a common lane: conflicts are resolved, nobody's reservation is lost."""
    claim = await ClaimWriter(api, sleep=sleeps).allocate(load_claim(embedded), devices("gpu-0"), consumer("first"))
    writers = [ClaimWriter(api, sleep=sleeps) for _ in range(2)]
    await asyncio.gather(*(writers[i % 2].reserve(claim, consumer(f"p{i}")) for i in range(20)))
    assert len((await read_claim(api)).consumers) == 21


async def test_cancellation_leaves_no_lane_behind(embedded: EmbeddedServer, writer: ClaimWriter) -> None:
    """A cancelled write frees its lane."""
    embedded.faults.add(Fault(Action.DELAY, verb="patch", kind="resourceclaims", delay_s=5))
    task = asyncio.create_task(writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("p")))
    await asyncio.sleep(0.05)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert writer.lanes == 0


async def test_a_refusal_of_the_guard_is_a_lost_race(
    embedded: EmbeddedServer, api: ApiClient, writer: ClaimWriter
) -> None:
    """The status write is refused by the guard: no second try, its words are kept, nothing is allocated."""
    words = "device d.example/pool/gpu-0 is held by claim ns/other (for pod trainer)"
    message = f'admission webhook "enforce.guard.dra-scheduler" denied the request: {words}'
    embedded.faults.add(
        Fault(Action.ANSWER, verb="patch", kind="resourceclaims", subresource="status", code=403, message=message)
    )
    with pytest.raises(ClaimRefusedError) as refused:
        await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("p"))
    assert refused.value.lost_race
    assert str(refused.value) == f"the guard refused the allocation of claim {refused.value.claim}: {words}"
    assert patches(embedded) == ["main 200", "status 403"]
    assert (await read_claim(api)).status.allocation is None


async def test_other_refusals_stay_what_they_are(embedded: EmbeddedServer, writer: ClaimWriter) -> None:
    """Another webhook's word, or RBAC's, is no lost race."""
    message = 'admission webhook "policy.example.com" denied the request: no devices on Sundays'
    embedded.faults.add(
        Fault(Action.ANSWER, verb="patch", kind="resourceclaims", subresource="status", code=403, message=message)
    )
    with pytest.raises(Forbidden):
        await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("p"))


async def test_without_a_guard_nothing_was_stored(embedded: EmbeddedServer, writer: ClaimWriter) -> None:
    """The API server could not ask the guard: that is certain, so it is not counted as perhaps done."""
    message = (
        'Internal error occurred: failed calling webhook "enforce.guard.dra-scheduler": failed to call webhook: '
        "connection refused"
    )
    fault = Fault(Action.ANSWER, verb="patch", kind="resourceclaims", subresource="status", code=500, message=message)
    fault.times = None
    embedded.faults.add(fault)
    with pytest.raises(ClaimUnguardedError, match=r"no guard answered \(its failurePolicy is Fail\): failed to call"):
        await writer.allocate(load_claim(embedded), devices("gpu-0"), consumer("p"))

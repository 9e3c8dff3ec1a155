"""A Pod with several claims, and somebody else who writes before, between and after our writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.kinds import RESOURCE_CLAIM
from scheduler.embedded.faults import Action
from tests.app.objects import Object, claim, gpu_class, gpu_slice, node, pod, template
from tests.app.race import CONFIG, allocated, create, foreign_claim, idle, results, until_bound
from tests.app.world import World, world

OBJECTS = [gpu_class(), template("one"), node("n1"), gpu_slice("n1", 3)]


def two_claims(name: str) -> Object:
    """A Pod that gets gpu-0 and gpu-1 when nobody disturbs."""
    found = pod(name, template="one")
    found["spec"]["resourceClaims"].append({"name": "more", "resourceClaimTemplateName": "one"})
    return found


def before_write(w: World, number: int, device: str) -> None:
    """Somebody else gives ``device`` away before our write of this number (2: after both)."""
    claims, revisions = w.service.committer.performer.claims, w.service.committer.verification.revisions
    allocate, wait, seen = claims.allocate, revisions.wait_revision, [0]

    async def counted(*arguments: Any) -> Any:
        if seen[0] == number:
            await foreign_claim(w, "foreign", "n1", device)
        seen[0] += 1
        return await allocate(*arguments)

    async def waited(*arguments: Any) -> bool:
        if number == 2 and seen[0] == 2:
            seen[0] += 1
            await foreign_claim(w, "foreign", "n1", device)
        return await wait(*arguments)

    claims.allocate, revisions.wait_revision = counted, waited  # type: ignore[method-assign]


@pytest.mark.parametrize("number", [0, 1])
async def test_of_two_claims_only_the_lost_one_goes_back(number: int) -> None:
    """Before both writes or between them: the device of the second claim is lost, the first claim keeps its own."""
    async with world(OBJECTS, CONFIG) as w:
        before_write(w, number, "gpu-1")
        await create(w, two_claims("p"))
        await until_bound(w, "p")
        await idle(w)
        given = sorted((await results(w)).values())
        assert given == [[("n1", "gpu-0")], [("n1", "gpu-1")], [("n1", "gpu-2")]]
        assert w.counts.seen["deallocate success"] == 1
        assert w.counts.seen["allocate success"] == 3
        assert (w.counts.seen["verified lost"], w.counts.seen["verified won"]) == (1, 1)


async def test_after_both_writes_we_were_first() -> None:
    """Both claims keep their devices, the Pod is bound, the pair is reported."""
    async with world(OBJECTS, CONFIG) as w:
        before_write(w, 2, "gpu-1")
        await create(w, two_claims("p"))
        await until_bound(w, "p")
        await idle(w)
        assert w.counts.seen["lost"] == w.counts.seen["deallocate success"] == 0
        assert w.counts.seen["overlap"] == 1


async def test_both_claims_go_back_when_the_order_is_unknown() -> None:
    """The watch starts anew between our writes and the look at them: who was first cannot be told, so we give way."""
    async with world(OBJECTS, CONFIG) as w:
        claims, revisions = w.service.committer.performer.claims, w.service.committer.verification.revisions
        allocate, wait, done = claims.allocate, revisions.wait_revision, list[str]()
        # The watch is gone before we write; the LIST that follows waits until everything is stored, without order.
        reflector = w.service.reflectors[RESOURCE_CLAIM.name]
        lister, reflector._by_watch = reflector._lister, False
        list_raw, stored, asked = lister.list_raw, asyncio.Event(), asyncio.Event()

        async def listed_late() -> Any:
            asked.set()
            await stored.wait()
            return await list_raw()

        async def allocated_in_the_gap(*arguments: Any) -> Any:
            if not done:
                done.append("gap")
                lister.list_raw = listed_late  # type: ignore[method-assign]
                w.server.break_watches(Action.GONE, "resourceclaims", "dra-scheduler")
                await asked.wait()
            return await allocate(*arguments)

        async def waited(*arguments: Any) -> bool:
            if len(done) == 1:
                done.append("foreign")
                w.server.load([allocated(f"foreign-{device}", "n1", device) for device in ("gpu-0", "gpu-1")])
                stored.set()
            return await wait(*arguments)

        claims.allocate = allocated_in_the_gap  # type: ignore[method-assign]
        revisions.wait_revision = waited  # type: ignore[method-assign]
        await create(w, two_claims("p"))

        async def lost() -> bool:
            return w.counts.seen["verified lost"] == 1

        await w.until(lost, "the verification has ended")
        await idle(w)
        assert await w.bound() == {}
        assert w.counts.seen["deallocate success"] == 2
        assert w.counts.seen["verified pair"] == 0


async def test_a_pod_that_shares_a_claim_does_not_count_on_its_writer() -> None:
    """The first Pod of a shared claim writes its allocation second; before it finds out, another Pod has reserved the
    claim. That one must not be bound with what is about to be lost: both get in with the other device.
    """
    async with world([gpu_class(), node("n1"), gpu_slice("n1", 2), claim("shared")], CONFIG) as w:
        claims, revisions = w.service.committer.performer.claims, w.service.committer.verification.revisions
        allocate, reserve, wait = claims.allocate, claims.reserve, revisions.wait_revision
        reserved, steps = asyncio.Event(), list[str]()

        async def allocated_second(*arguments: Any) -> Any:
            if not steps:
                steps.append("foreign")
                await foreign_claim(w, "foreign", "n1", "gpu-0")
            return await allocate(*arguments)

        async def reserved_in_between(*arguments: Any) -> Any:
            answer = await reserve(*arguments)
            reserved.set()
            return answer

        async def waited(*arguments: Any) -> bool:
            if len(steps) == 1:  # the writer's verification: by now the other Pod may come
                steps.append("second")
                await create(w, pod("second", claim="shared"))
                await reserved.wait()
            return await wait(*arguments)

        claims.allocate, claims.reserve = allocated_second, reserved_in_between  # type: ignore[method-assign]
        revisions.wait_revision = waited  # type: ignore[method-assign]
        await create(w, pod("first", claim="shared"))
        seen: set[tuple[str, str]] = set()

        async def both() -> bool:
            for name in await w.bound():
                assert name in ("first", "second")
                seen.update((await results(w))["shared"])
            return len(await w.bound()) == 2

        await w.until(both, "both Pods are bound", 20)
        assert seen == {("n1", "gpu-1")}
        assert w.counts.seen["verified lost"] >= 1
        assert steps == ["foreign", "second"]

"""Two guards: one answers, the other takes over; certificates are renewed; and no device has two holders meanwhile."""

from __future__ import annotations

import asyncio
import base64
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.api import CLAIMS, LEASES, Api, ApiError
from e2e.controlplane import ControlPlane
from e2e.guard import (
    ELECTION,
    NAME,
    NAMESPACE,
    SECRETS,
    WEBHOOKS,
    Front,
    GuardProcess,
    SlowWebhook,
    account,
    apply,
    called,
    give_back_lease,
    guarded,
    point_at,
    remove,
)
from e2e.objects import claim, device, exactly
from e2e.scheduler import History, record
from e2e.suites.test_guard import CLASS, NS, allocate, free, new_claims, publish, refusal, result
from e2e.waiting import eventually
from scheduler.guard.certificates import Lifetimes, first_set

WRITERS, DEVICES = 6, 3


@asynccontextmanager
async def pair(
    plane: ControlPlane, api: Api, folder: Path, settle_s: float
) -> AsyncIterator[tuple[GuardProcess, GuardProcess]]:
    """Two guards behind one Service; the first is active."""
    await remove(api)
    apply(plane)
    await give_back_lease(api)
    first = GuardProcess(folder, account(plane), name="first", settle_s=settle_s, arguments=ELECTION)
    second = GuardProcess(folder, account(plane), name="second", settle_s=settle_s, arguments=ELECTION)
    async with Front(first, second) as front:
        await point_at(api, front.port)
        try:
            first.start()

            async def active() -> bool:
                return await asyncio.to_thread(first.active)

            await eventually(active, "the first guard answers", timeout_s=60)
            second.start()

            async def stands_by() -> bool:
                return "caches synced" in second.log()

            await eventually(stands_by, "the second guard stands by", timeout_s=60)
            await called(api)
            yield first, second
        finally:
            await remove(api)
            for guard in (first, second):
                await asyncio.to_thread(guard.stop)


class Writers:
    """Schedulers that look at nothing: each gives its claim a device, lets go, and again. Counts the answers."""

    def __init__(self, api: Api) -> None:
        self._api, self.answers = api, Counter[str]()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Writers:
        await new_claims(self._api, *(f"w{index}" for index in range(WRITERS)))
        self._tasks = [asyncio.create_task(self._write(index)) for index in range(WRITERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, index: int) -> None:
        turn = 0
        while True:
            turn += 1
            name = f"w{index}"
            try:
                await allocate(self._api, name, result(f"d{(index + turn) % DEVICES}"))
                self.answers["stored"] += 1
                await asyncio.sleep(0.01)
                await free(self._api, name)
            except ApiError as error:
                word = {403: "refused", 500: "unanswered"}.get(error.status, str(error))
                self.answers[word] += 1
                await asyncio.sleep(0.02)

    async def more(self, word: str, count: int = 5, timeout_s: float = 60.0) -> None:
        """Wait for further answers of one kind."""
        before = self.answers[word]

        async def grown() -> bool:
            return self.answers[word] >= before + count

        await eventually(grown, f"{count} more writes are {word}", timeout_s=timeout_s)


def _judge(history: History, writers: Writers) -> None:
    print(dict(writers.answers), "changes of allocations:", sum(map(len, history.allocations.values())))
    assert set(writers.answers) <= {"stored", "refused", "unanswered"}, writers.answers
    assert history.double_given() == []
    assert writers.answers["stored"] > 0
    assert writers.answers["refused"] > 0


async def test_takeover_while_writes_run(clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    """The active guard is told to stop while writes run: the other answers at once, and no device gets two holders.

    After a crash a takeover would take two minutes here.
    """
    api = clean_cluster
    await publish(api, *(device(f"d{index}") for index in range(DEVICES)))
    async with pair(control_plane, api, tmp_path, settle_s=120.0) as (first, second):
        async with record(api) as history, Writers(api) as writers:
            await writers.more("stored")
            began = time.monotonic()
            assert await asyncio.to_thread(first.stop, 30.0) == 0
            await writers.more("stored")
            print(f"handed over and storing again after {time.monotonic() - began:.1f} s")
            assert second.active()
        _judge(history, writers)


async def test_a_frozen_guard_answers_nothing_when_it_wakes(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """SIGSTOP beyond its lease, SIGCONT: it finds the lease lost and ends with 1; the other has taken over."""
    api = clean_cluster
    await publish(api, *(device(f"d{index}") for index in range(DEVICES)))
    async with pair(control_plane, api, tmp_path, settle_s=1.0) as (first, second):
        async with record(api) as history, Writers(api) as writers:
            await writers.more("stored")
            began = time.monotonic()
            first.signal(signal.SIGSTOP)

            async def taken_over() -> bool:
                return await asyncio.to_thread(second.active)

            await eventually(taken_over, "the other guard answers", timeout_s=60)
            await writers.more("stored")
            print(
                f"frozen, taken over and storing again after {time.monotonic() - began:.1f} s (lease 8 s, settling 1 s)"
            )
            first.signal(signal.SIGCONT)

            async def ended() -> bool:
                return first.pid is None

            await eventually(ended, "the guard that was frozen ends", timeout_s=30)
            await writers.more("stored")
        assert await asyncio.to_thread(first.stop) == 1
        _judge(history, writers)


async def test_what_a_dead_guard_admitted_is_waited_for(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A write is admitted, its guard dies, the write lands seconds later: the successor gives the device to nobody."""
    api = clean_cluster
    await publish(api, device("a"))
    await api.create(
        CLAIMS, {**claim("late", exactly(CLASS)), "metadata": {"name": "late", "labels": {"slow": "yes"}}}, NS
    )
    await new_claims(api, "hasty")
    async with (
        pair(control_plane, api, tmp_path, settle_s=6.0) as (first, second),
        SlowWebhook(control_plane, api) as slow,
        record(api) as history,
    ):
        await slow.hold("late")
        late = asyncio.create_task(allocate(api, "late", result("a")))

        async def admitted() -> bool:
            open_now = await asyncio.to_thread(first.metric, "dra_scheduler_guard_reservations")
            return open_now == 1 and slow.asked == 1

        await eventually(admitted, "the guard has admitted the write")
        await asyncio.to_thread(first.kill)
        answers: Counter[str] = Counter()
        while not await asyncio.to_thread(second.active):
            if "became leader" in second.log():
                slow.go.set()  # the write lands while the successor settles
            try:
                await allocate(api, "hasty", result("a"))
                answers["stored"] += 1
                await free(api, "hasty")
            except ApiError as error:
                answers["unanswered" if error.status == 500 else error.message] += 1
            await asyncio.sleep(0.1)
        assert (await late)["status"]["allocation"]
        await called(api)
        assert (await refusal(api, "hasty", result("a"))).endswith("held by claim default/late")
        print("while nobody answered:", dict(answers))
        await api.delete(CLAIMS, "late", NS)
    assert answers["stored"] == 0
    assert history.double_given() == []


async def test_a_write_that_was_denied_after_its_admission_gives_the_device_back(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Another webhook denies it, so its version never comes: held while it may still be stored, then free again."""
    api = clean_cluster
    await publish(api, device("a"))
    labels = {"metadata": {"name": "denied", "labels": {"slow": "yes"}}}
    await api.create(CLAIMS, {**claim("denied", exactly(CLASS)), **labels}, NS)
    await new_claims(api, "next")
    async with (
        guarded(control_plane, api, tmp_path, settle_s=6.0, handed_over=True) as guard,
        SlowWebhook(control_plane, api) as other,
    ):
        await other.hold("denied")
        other.allows = False
        other.go.set()
        with pytest.raises(ApiError, match="denied the request"):
            await allocate(api, "denied", result("a"))
        assert (await refusal(api, "next", result("a"))).endswith("claim default/denied (being written now)")
        assert await asyncio.to_thread(guard.metric, "dra_scheduler_guard_reservations") == 1

        async def given() -> bool:
            try:
                await allocate(api, "next", result("a"))
            except ApiError as error:
                return error.status != 403
            return True

        await eventually(given, "the device is free again", timeout_s=30)
        assert await asyncio.to_thread(guard.metric, "dra_scheduler_guard_reservations_expired_total") == 1


async def test_only_the_api_server_is_answered_where_callers_are_known(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """With --client-ca-file a stranger on the port cannot reserve a device; without the API server's certificate
    nothing is allocated under failurePolicy Fail."""
    api = clean_cluster
    await publish(api, device("a"))
    await new_claims(api, "first")
    callers = f"--client-ca-file={control_plane.ca_file}"
    await remove(api)
    apply(control_plane)
    await give_back_lease(api)
    guard = GuardProcess(tmp_path, account(control_plane), arguments=[callers])
    await point_at(api, guard.webhook_port)
    try:
        await asyncio.to_thread(guard.start_and_wait)

        async def refused() -> bool:
            with suppress(ApiError):
                await allocate(api, "first", result("a"), dryRun="All")
            name = "dra_scheduler_guard_request_duration_seconds_count"
            return await asyncio.to_thread(guard.metric, name, code="401") > 0

        await eventually(refused, "the API server, which shows no certificate here, is not answered")
        with pytest.raises(ApiError, match="failed calling webhook"):
            await allocate(api, "first", result("a"))
        assert await asyncio.to_thread(guard.metric, "dra_scheduler_guard_reservations") == 0
    finally:
        await remove(api)
        await asyncio.to_thread(guard.stop)


async def test_certificates_are_renewed_under_traffic(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A whole rotation: a second authority beside the first, a new certificate, the first one gone; no write fails."""
    api = clean_cluster
    await publish(api, *(device(f"d{index}") for index in range(DEVICES)))
    # An authority in its last third: its rotation is due at once, and there is time enough on a busy machine.
    ageing = first_set(("127.0.0.1",), Lifetimes(authority_s=900.0), time.time())
    data = {name: base64.b64encode(value).decode() for name, value in ageing.values().items()}
    lifetimes = ("--authority-lifetime=1h", "--authority-overlap=3s")
    bundles: list[str] = []

    async def watch_bundle() -> None:
        while True:
            bundle = (await api.get(WEBHOOKS, NAME))["webhooks"][0]["clientConfig"].get("caBundle", "")
            if bundle and (not bundles or bundles[-1] != bundle):
                bundles.append(bundle)
            await asyncio.sleep(0.2)

    await remove(api)
    apply(control_plane)
    await api.create(SECRETS, {"metadata": {"name": f"{NAME}-certificates"}, "data": data}, NAMESPACE)
    async with guarded(control_plane, api, tmp_path, arguments=lifetimes, fresh=False) as guard:
        watching = asyncio.create_task(watch_bundle())
        async with record(api) as history, Writers(api) as writers:

            async def rotated() -> bool:
                return len(bundles) >= 4

            await eventually(rotated, "one authority, two, the other first, the other alone", timeout_s=60)
            await writers.more("stored")
        watching.cancel()
        _judge(history, writers)
        assert writers.answers["unanswered"] == 0, guard.log()[-2000:]
        secret = await api.get(SECRETS, f"{NAME}-certificates", NAMESPACE)
        assert set(secret["data"]) >= {"ca.crt", "tls.crt", "tls.key"}
        log = guard.log()
        assert "a new authority is published beside the present one" in log
        assert "the new authority signs, the old one is still trusted" in log
        assert "the old authority is not trusted any more" in log
        assert "BEGIN" not in log, "no key in the log"


async def restarted(api: Api, guard: GuardProcess) -> None:
    """Start a guard that was killed; without the Lease it left behind it need not wait for that."""
    await api.delete(LEASES, NAME, NAMESPACE, missing_ok=True)
    await asyncio.to_thread(guard.start_and_wait)


async def test_without_a_guard_only_new_allocations_fail(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """failurePolicy Fail, no guard: allocations fail with words; releases, reservations and status.devices go on.

    A restarted guard knows what is stored and refuses a second holder at once.
    """
    api = clean_cluster
    async with guarded(control_plane, api, tmp_path) as guard:
        await publish(api, device("a"), device("b"))
        await new_claims(api, "one", "two")
        await allocate(api, "one", result("a"))
        await asyncio.to_thread(guard.kill)
        with pytest.raises(ApiError) as failed:
            await allocate(api, "two", result("b"))
        assert failed.value.status == 500
        assert 'failed calling webhook "enforce.guard.dra-scheduler"' in failed.value.message
        consumer = {"apiGroup": "example.com", "resource": "trainings", "name": "big", "uid": "u"}
        await api.patch(CLAIMS, "one", {"status": {"reservedFor": [consumer]}}, NS, "status")
        ready: dict[str, Any] = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        of_driver = {"driver": CLASS, "pool": "pool", "device": "a"}
        ready |= {"reason": "Up", "message": "", "observedGeneration": 1}
        await api.patch(CLAIMS, "one", {"status": {"devices": [{**of_driver, "conditions": [ready]}]}}, NS, "status")
        await restarted(api, guard)
        assert (await refusal(api, "two", result("a"))).endswith("claim default/one (for training big)")
        await asyncio.to_thread(guard.kill)
        await api.patch(
            CLAIMS, "one", {"status": {"allocation": None, "reservedFor": None, "devices": None}}, NS, "status"
        )
        await restarted(api, guard)
        await allocate(api, "two", result("a"))


async def test_without_a_guard_and_with_ignore_all_goes_on(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """failurePolicy Ignore: while no guard runs a second holder is possible; the guard counts both afterwards."""
    api = clean_cluster
    async with guarded(control_plane, api, tmp_path, policy="Ignore") as guard:
        await publish(api, device("a"))
        await new_claims(api, "one", "two", "three")
        await allocate(api, "one", result("a"))
        await asyncio.to_thread(guard.kill)
        await allocate(api, "two", result("a"))
        await restarted(api, guard)
        assert (await refusal(api, "three", result("a"))).endswith("claim default/one, claim default/two")

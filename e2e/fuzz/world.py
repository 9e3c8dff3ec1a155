"""A whole Service on a FeedClient, driven turn by turn: what one mutant does to watch, state and every decision.

A guard stands beside it, on the same watches.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from e2e.fuzz.faults import names_an_error, where
from e2e.fuzz.feed import FeedClient
from e2e.fuzz.guard import GuardBeside
from e2e.fuzz.mutate import Mutant, encode
from e2e.fuzz.samples import Object, cluster, older_shape
from scheduler.api.changes import Change
from scheduler.api.deep import decode_deep
from scheduler.api.kinds import DecodeError, Kind, decode
from scheduler.api.versions import ResourceKinds
from scheduler.app.service import Service
from scheduler.config import load_config
from scheduler.cycle.decision import Placed
from scheduler.edge.commit import unreserved
from scheduler.edge.commit_ports import CommitOutcome
from scheduler.explain.outcome import FailureReport
from scheduler.queue.pod import QueuedPod
from scheduler.state.devices import Promise

ALL_GATES = {
    "DRAFractionalCapacityRange": True,
    "DRAListTypeAttributes": True,
    "DRAOptionalNodeOperations": True,
    "DRADerivedAttributes": True,
    "DRADeviceCompatibilityGroups": True,
    "DRANodeAllocatableResources": True,
    "GenericWorkload": True,
    "DRAWorkloadResourceClaims": True,
}
CPU_BUDGET_S = 30.0
"""CPU of this process for one mutant and all decisions about it; a hang, not a measurement."""
TURNS_MAX = 60
SPINS_MAX = 20_000
_RAW = msgspec.json.Decoder(msgspec.Raw)


class HangError(BaseException):
    """The CPU budget is used up; no handler of the scheduler may swallow this."""


@contextmanager
def cpu_budget(budget_s: float) -> Iterator[None]:
    """Raise HangError once this process has used ``budget_s`` of CPU inside."""

    def used_up(signum: int, frame: object) -> None:
        raise HangError(f"more than {budget_s} s of CPU")

    before = signal.signal(signal.SIGVTALRM, used_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, budget_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


class Ears:
    """The service's log and meter: keeps what may be a fault."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.undecodable: list[tuple[str, str]] = []

    def debug(self, event: str, **fields: Any) -> None:
        """Not looked at."""

    info = warning = debug

    def error(self, event: str, **fields: Any) -> None:
        if event == "undecodable object":
            self.undecodable.append((fields["kind"], fields["object"]))
        else:
            error = fields.pop("exc_info", None)
            self.errors.append(f"{event}: {fields}{where(error)}")

    def __getattr__(self, name: str) -> Any:
        """Every number a Meter takes."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: None


class World:
    """``async with World() as world: faults = await world.meet(kind, body, mutant)``.

    ``gates``: feature gates. ``kinds``: other versions of resource.k8s.io, whose objects are then given in them.
    """

    def __init__(self, gates: Mapping[str, bool] | None = None, kinds: ResourceKinds | None = None) -> None:
        self.client, self.ears = FeedClient(), Ears()
        self._gates, self._older = dict(gates or {}), kinds
        self._kinds = kinds or ResourceKinds()
        self.messages: list[str] = []
        self.now = 1_767_225_600.0
        self._revisions = itertools.count(10)
        self._changes = 0
        self._known: dict[str, Kind] = {}
        self.guard = GuardBeside(self.client, self._kinds, self._gates)

    async def __aenter__(self) -> World:
        for kind, body in cluster():
            served = self.served(kind)
            self.client.objects.setdefault(served.path(), {})[_key(body)] = self.encoded(kind, body)
            meta = body["metadata"]
            place = served.path(meta.get("namespace", ""), meta["name"])
            self.client.places[place] = served.path(), _key(body)
        instance = "fuzz"
        self.service = Service(
            load_config(""),
            self.client,  # type: ignore[arg-type]  # stands for an ApiClient
            self.ears,
            self.ears,
            clock=lambda: self.now,
            instance=lambda name: f"{name}-{instance}",
            feature_gates=self._gates,
            kinds=self._older,
        )
        for reflector in self.service.reflectors.values():
            reflector._sleep = _no_sleep
        # Claims whose allocation is in the way are cleared in mid-cycle; what the server says to that is no answer.
        self.service.committer.performer.claims._sleep = _no_sleep  # type: ignore[attr-defined]  # a ClaimWriter
        self.service.committer.commit = self._commit  # type: ignore[method-assign]  # nothing is ever written
        fail, deliver = self.service.loop.fail, self.service.loop.deliver

        def counting(batch: list[Change], revision: int) -> None:
            self._changes += len(batch)
            deliver(batch, revision)
            self.guard.deliver(batch, revision)

        def listening(queued: QueuedPod, report: FailureReport, started: float) -> None:
            self.messages.append(f"{queued.key}: {report.message}")
            fail(queued, report, started)

        self.service.loop.deliver = counting  # type: ignore[method-assign]  # counted and passed on
        self.service.loop.fail = listening  # type: ignore[method-assign]  # heard and passed on
        self.service.start()
        await self.service.wait_synced()
        await self._settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.service.stop()
        await self.service.close(drain=False)

    def served(self, kind: Kind) -> Kind:
        """The kind in the version that this world's server speaks."""
        ours = self._kinds
        return {one.name: one for one in (ours.claim, ours.slice, ours.device_class, ours.taint_rule)}.get(
            kind.name, kind
        )

    def shaped(self, kind: Kind, body: Object) -> Object:
        """A sample in that version, with a revision of its own."""
        shaped = older_shape(kind, body) if self.served(kind).wire is not None else body
        return {**shaped, "metadata": {**shaped["metadata"], "resourceVersion": str(next(self._revisions))}}

    def encoded(self, kind: Kind, body: Object) -> bytes:
        """``shaped`` as JSON."""
        return encode(self.shaped(kind, body))

    async def _commit(self, placed: Placed, promised: Sequence[Promise]) -> CommitOutcome:
        """Give back what was reserved: the Pod fails as if the API server refused it, and waits again."""
        for plugin in reversed(placed.profile.reserve):
            unreserved(plugin, placed)
        self.service.loop.move(self.service.state.devices.released(promised))
        return CommitOutcome(text="not written")

    async def decide(self) -> None:
        """Let every waiting Pod try once."""
        loop, queue = self.service.loop, self.service.queue
        self.now += 100.0
        queue.activate([uid for uid in self.service.state.pods if queue.get(uid) is not None], self.now)
        for _ in range(TURNS_MAX):
            if not await loop._turn():
                break
        await loop.finish_commits()
        for uid, pod in self.service.state.pods.items():
            if queue.get(uid) is not None and pod.spec.schedulerName in self.service.profiles:
                self.service._summarize(pod)

    async def _settle(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            for _ in range(SPINS_MAX):
                self._alive()
                if self.client.idle():
                    break
                await asyncio.sleep(0)
            else:
                raise RuntimeError("a watch never came back")

    def _alive(self) -> None:
        for task in self.service._tasks:
            if task.done() and not task.cancelled():
                error = task.exception()
                raise RuntimeError(f"a task of the service died: {error!r}{where(error)}") from error

    async def meet(self, kind: Kind, body: Object, mutant: Mutant, *, verify: bool = True) -> list[str]:
        """What is wrong after ``mutant`` took the place of ``body``: by watch, in a new LIST, in every decision.

        The cluster is as it was before when this returns. Empty: nothing is wrong.
        """
        self._changes = 0
        self.messages.clear()
        self.ears.errors.clear()
        self.ears.undecodable.clear()
        self.guard.faults.clear()
        self.guard.texts.clear()
        path = self.served(kind).path()
        found: list[str] = []
        try:
            with cpu_budget(CPU_BUDGET_S):
                await self._shown(path, body, mutant)
                if self.guard.watches(kind):
                    found += await self.guard.meet(self.served(kind), mutant.raw)
                if self._changes:
                    await self.decide()
                if verify:
                    self.service.loop.check()
                    self.guard.book.verify()
                found += self._named_once(kind, mutant)
                self.client.objects[path][_key(body)] = self.encoded(kind, body)
                self.client.relist(path)
                await self._settle()
                self.guard.restore({name: one.store for name, one in self.service.reflectors.items()})
        except (HangError, Exception) as error:  # whatever comes out is what is looked for
            found.append(f"{type(error).__name__}: {error}{where(error)}")
        found += self.ears.errors + self.guard.faults
        found += [message for message in self.messages if names_an_error(message)]
        return found

    async def _shown(self, path: str, body: Object, mutant: Mutant) -> None:
        """First by the watch, then in LISTs of both forms; one that is no JSON is followed by one without it."""
        self.client.revision = next(self._revisions)
        self.client.show(path, "MODIFIED", mutant.raw)
        if readable(mutant.raw):
            self.client.objects[path][_key(body)] = mutant.raw
        await self._settle()
        (reflector,) = (one for one in self.service.reflectors.values() if one.kind.path() == path)
        for by_watch in (False, True):
            if not readable(mutant.raw):
                self.client.torn[path] = mutant.raw
            reflector._by_watch = by_watch
            self.client.relist(path)
            await self._settle()

    def _named_once(self, kind: Kind, mutant: Mutant) -> list[str]:
        """An object that cannot be decoded is named, by its key, one time although it was seen twice."""
        expected: list[tuple[str, str]] = []
        if readable(mutant.raw):
            try:
                decode(self.served(kind), mutant.raw)
            except DecodeError as error:
                name = error.subject.removeprefix(f"{kind.name} ")
                expected = [(kind.name, "" if name == "(unreadable)" else name)]
        told = self.ears.undecodable
        return [] if told == expected else [f"named {told}, expected {expected}"]


def readable(raw: bytes) -> bool:
    """True when a LIST that holds ``raw`` can be taken apart."""
    try:
        decode_deep(_RAW, raw)
    except msgspec.DecodeError:
        return False
    return True


def _key(body: Object) -> str:
    return f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"


async def _no_sleep(pause_s: float) -> None:
    await asyncio.sleep(0)

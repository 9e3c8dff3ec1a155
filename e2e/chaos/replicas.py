"""Replicas of dra-scheduler, each behind its own proxy, started again when they end, as kubelets do."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from e2e.chaos.faults import REQUEST_FAULTS, WATCH_FAULTS, Deck, Fault, FaultPlan
from e2e.chaos.own_faults import FEW_HANDLES, Machine, limit
from e2e.chaos.proxy import FaultProxy
from e2e.controlplane import ControlPlane
from e2e.scheduler import SchedulerProcess

ELECTION = {"leaderElect": True, "leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"}
RESTART_PAUSE_S = 0.3
STOP_MAX_S, HANG_MAX_S, LIMIT_MAX_S = 9.0, 5.0, 4.0
WALL, SLEEP, HANDLES, DISK = (
    "wall clock jumps",
    "suspended: the clock since boot jumps",
    "no file handles left, connections cut",
    "no file may grow: log, audit trail, recording",
)


class Replica:
    """One replica, its proxy and its machine."""

    def __init__(self, process: SchedulerProcess, proxy: FaultProxy, machine: Machine) -> None:
        self.process, self.proxy, self.machine = process, proxy, machine
        self.frozen = False
        self.starts = 0

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.signal(signal.SIGCONT)
        self.frozen = False


class _Decks:
    """What may come next: disturbances by frequency, kinds of watch faults and of request faults."""

    def __init__(self, rng: random.Random) -> None:
        often = {"storm": 6, "watches": len(WATCH_FAULTS), "calm": 2, "all connections cut": 2}
        once = ("API server hangs", "connections refused", "SIGSTOP and SIGCONT", "SIGKILL", WALL, HANDLES, DISK)
        cards = [card for card, times in often.items() for _ in range(times)] + list(once)
        # Both cost a takeover: more of them would leave little time in which somebody leads.
        cards += [card for card in ("SIGTERM", SLEEP) if rng.random() < 0.3]
        self.cards: Deck[str] = Deck(cards, rng)
        self.watches: Deck[Fault] = Deck(WATCH_FAULTS, rng)
        self.requests: Deck[Fault] = Deck(REQUEST_FAULTS, rng)


class Replicas:
    """All of them. ``counts``: what was done to them; ``endings``: exit codes seen."""

    def __init__(self, members: list[Replica], rng: random.Random) -> None:
        self.members, self._rng = members, rng
        self.counts: Counter[str] = Counter()
        self.endings: Counter[int] = Counter()
        self._read: dict[str, int] = {}

    async def supervise(self) -> None:
        """Start what has ended, until cancelled."""
        while True:
            for member in self.members:
                if member.process.pid is None:
                    if member.starts:
                        self.endings[member.process.stop() or 0] += 1
                    member.frozen = False
                    member.starts += 1
                    await asyncio.to_thread(member.process.start)
            await asyncio.sleep(RESTART_PAUSE_S)

    async def disturb(self, pause_s: float) -> None:
        """One disturbance after the other, until cancelled; what lasts goes on beside the next ones."""
        decks = _Decks(self._rng)
        lasting: set[asyncio.Task[None]] = set()
        try:
            while True:
                task = asyncio.create_task(self._one(self._rng.choice(self.members), decks))
                lasting.add(task)
                task.add_done_callback(lasting.discard)
                await asyncio.sleep(self._rng.expovariate(1.0 / pause_s))
        finally:
            left = list(lasting)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _one(self, member: Replica, decks: _Decks) -> None:
        proxy, card = member.proxy, decks.cards.draw()
        if card == "storm":
            kinds = [decks.requests.draw() for _ in range(self._rng.randint(2, 6))]
            proxy.plan.storm(kinds, self._rng.uniform(0.03, 0.25))
        elif card == "watches":
            fault = decks.watches.draw()
            for each in self.members:
                each.proxy.spoil_watches(fault)
        elif card == "calm":
            proxy.plan.calm()
        elif card == "API server hangs":
            await self._for_a_while(card, proxy.stall, proxy.flow, HANG_MAX_S)
        elif card == "SIGSTOP and SIGCONT":
            await self._for_a_while(card, member.freeze, member.thaw, STOP_MAX_S)
        elif card in (HANDLES, DISK):
            await self._limited(member, card)
        elif card == "connections refused":
            self.counts[card] += 1
            await proxy.refuse()
            try:
                await asyncio.sleep(self._rng.uniform(0.2, 2.0))
            finally:
                await proxy.listen()
        else:
            self.counts[card] += 1
            self._at_once(member, card)

    def _at_once(self, member: Replica, card: str) -> None:
        """What happens in a moment."""
        if card == "all connections cut":
            member.proxy.cut_all()
        elif card == WALL:
            member.machine.jump(self._rng)
        elif card == SLEEP:
            member.machine.suspend()
        else:
            member.process.signal(signal.SIGKILL if card == "SIGKILL" else signal.SIGTERM)

    async def _limited(self, member: Replica, card: str) -> None:
        """A process that has not come up yet is left alone: it could not even load its modules."""
        for_s = self._rng.uniform(0.3, LIMIT_MAX_S)
        pid = member.process.pid
        if pid is None or await asyncio.to_thread(member.process.get, "/livez") != "ok" or pid != member.process.pid:
            return
        self.counts[card] += 1
        handles = card == HANDLES
        give_back = limit(pid, *(resource.RLIMIT_NOFILE, FEW_HANDLES) if handles else (resource.RLIMIT_FSIZE, 0))
        if handles:
            member.proxy.cut_all()
        try:
            await asyncio.sleep(for_s)
        finally:
            give_back()

    async def _for_a_while(
        self, name: str, begin: Callable[[], None], end: Callable[[], None], longest_s: float
    ) -> None:
        begin()
        self.counts[name] += 1
        try:
            await asyncio.sleep(self._rng.uniform(0.3, longest_s))
        finally:
            end()

    async def calm(self) -> None:
        """The faults stop: everything passes through, nobody is frozen."""
        for member in self.members:
            member.proxy.plan.calm()
            member.proxy.flow()
            await member.proxy.listen()
            member.thaw()
            member.machine.calm()

    def reseed(self, rng: random.Random) -> None:
        """From now on the disturbances follow this source."""
        self._rng = rng
        for member in self.members:
            member.proxy.plan.rng = random.Random(rng.random())

    def errors(self) -> list[str]:
        """Lines of the logs since the last call that tell of a fault in the scheduler itself."""
        found = []
        for member in self.members:
            text = member.process.log()
            new, self._read[member.process.name] = text[self._read.get(member.process.name, 0) :], len(text)
            found += [line[:600] for line in new.splitlines() if is_fault(line)]
        return found

    def trails(self) -> list[str]:
        """What is wrong with audit trails and recordings; blocks."""
        return [f"{m.process.name}: {problem}" for m in self.members for problem in m.machine.problems()]

    async def ready(self) -> bool:
        """A replica says that it is ready."""
        answers = [await asyncio.to_thread(member.process.get, "/readyz") for member in self.members]
        return "ok" in answers

    def injected(self) -> Counter[str]:
        """Faults by their row in the table, since the start."""
        found: Counter[str] = Counter(self.counts)
        for member in self.members:
            for fault, count in member.proxy.plan.injected.items():
                found[fault.value] += count
        return found

    def logs(self) -> str:
        """The logs of all replicas."""
        return "\n".join(f"--- {m.process.name} ---\n{m.process.log()}" for m in self.members)


def is_fault(line: str) -> bool:
    """A traceback, or an error that is neither the loss of the lease nor another scheduler's second allocation."""
    if "Traceback" in line or "InternalError:" in line:
        return True
    expected = ("Leaderelection lost", "device given twice")
    return ("[error " in line or "[critical" in line) and not any(text in line for text in expected)


@asynccontextmanager
async def replicas(
    plane: ControlPlane, folder: Path, rng: random.Random, count: int = 2, *, verify_caches: bool = True
) -> AsyncIterator[Replicas]:
    """Run so many replicas behind proxies while the block runs; they are not awaited."""
    members = []
    certificate = plane.serving_files("fault-proxy")
    async with AsyncExitStack() as stack:
        for index in range(count):
            plan = FaultPlan(random.Random(rng.random()))
            proxy = await stack.enter_async_context(FaultProxy(plane.url, plane.ca_file, certificate, plan))
            kubeconfig = proxy.kubeconfig(plane.kubeconfig_for(), folder / f"replica-{index}.kubeconfig")
            machine = Machine(folder, f"replica-{index}")
            process = SchedulerProcess(
                folder,
                kubeconfig,
                name=f"replica-{index}",
                config={"leaderElection": ELECTION},
                arguments=machine.arguments(),
                python_path=[machine.clocks.folder],
                verify_caches=verify_caches,
            )
            members.append(Replica(process, proxy, machine))
        group = Replicas(members, rng)
        supervisor = asyncio.create_task(group.supervise())
        try:
            yield group
            if supervisor.done():
                supervisor.result()
        finally:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
            await group.calm()
            await asyncio.gather(*(asyncio.to_thread(m.process.stop) for m in members))

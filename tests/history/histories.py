"""Histories for the checker's tests: written line by line, or by a small world that never breaks a promise."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec

from e2e.history import ClaimFact, Fact, PodFact, Published, SliceFact, Taken

OURS, THEIRS = "dra-scheduler", "kube-scheduler"
DRIVER = "gpu.example.com"


def gpu(device: str, pool: str = "n") -> Taken:
    """An exclusive device."""
    return Taken(DRIVER, pool, device)


def share(device: str, share_id: str, memory: int, pool: str = "n") -> Taken:
    """A share of a device's memory."""
    return Taken(DRIVER, pool, device, share_id=share_id, consumed={"memory": memory})


def pool(revision: int = 1, name: str = "n", generation: int = 1) -> list[SliceFact]:
    """Two exclusive GPUs; one that is shared (10 memory); three partitions of which the counters allow two."""
    partitions = {f"part-{i}": Published(consumes={"whole/memory": 4}) for i in range(3)}
    devices = {"gpu-0": Published(), "gpu-1": Published(), "big": Published(capacity={"memory": 10}), **partitions}
    return [
        SliceFact(revision, f"{name}-devices", DRIVER, name, generation, devices=devices),
        SliceFact(revision, f"{name}-counters", DRIVER, name, generation, counters={"whole/memory": 8}),
    ]


@dataclass
class Story:
    """Writes one fact after the other, each at the next revision."""

    facts: list[Fact] = field(default_factory=lambda: list(pool()))
    claims: dict[str, ClaimFact] = field(default_factory=dict)
    pods: dict[str, PodFact] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    """Uids of the Pods that the teller has deleted."""

    @property
    def next(self) -> int:
        """The next revision."""
        return self.facts[-1].revision + 1 if self.facts else 1

    def claim(self, name: str, *taken: Taken, reserved: tuple[str, ...] = (), by: str = OURS) -> Story:
        """A version of a claim: allocated when it takes something; reserved for Pods by name."""
        allocated = bool(taken)
        writer = by if allocated else ""
        uids = tuple(f"uid-{pod}" for pod in reserved)
        fact = ClaimFact(self.next, f"uid-{name}", "default", name, False, allocated, writer, taken, uids)
        self.claims[name] = fact
        self.facts.append(fact)
        return self

    def no_claim(self, name: str) -> Story:
        """The claim goes."""
        old = self.claims.pop(name)
        self.facts.append(ClaimFact(self.next, old.uid, old.namespace, old.name, gone=True))
        return self

    def pod(self, name: str, *claims: str, by: str = OURS, uid: str = "", **more: object) -> Story:
        """A version of a Pod; ``uid``: of one that has the name of an earlier one."""
        fact = PodFact(self.next, uid or f"uid-{name}", "default", name, by, claims=claims, **more)  # type: ignore[arg-type]  # the caller's keywords
        self.pods[name] = fact
        self.facts.append(fact)
        return self

    def change(self, name: str, **more: object) -> Story:
        """The Pod's next version."""
        fact = msgspec.structs.replace(self.pods[name], revision=self.next, **more)
        self.pods[name] = fact
        self.facts.append(fact)
        return self

    def no_pod(self, name: str) -> Story:
        """The Pod goes, and nobody knows why."""
        return self.change(name, gone=True)

    def delete_pod(self, name: str) -> Story:
        """The teller deletes the Pod."""
        self.deleted.add(self.pods[name].uid)
        return self.no_pod(name)


def good_history(seed: int, steps: int) -> Story:
    """A random history in which every promise is kept; foreign allocations may come second on what is ours."""
    rng = random.Random(seed)
    story = Story()
    bound: dict[str, Taken] = {}
    for index in range(steps):
        name = f"p{index}"
        free = [gpu(f"gpu-{i}") for i in range(2)]
        if sum(t.device.startswith("part") for t in bound.values()) < 2:
            free += [gpu(f"part-{i}") for i in range(3)]
        free = [taken for taken in free if taken not in bound.values()]
        if sum(t.consumed.get("memory", 0) for t in bound.values()) + 5 <= 10:
            free.append(share("big", f"s{index}", 5))
        if free and rng.random() < 0.8:
            taken = rng.choice(free)
            story.pod(name, name).claim(name)
            if rng.random() < 0.3:
                story.change(name, told="Insufficient patience")
            story.claim(name, taken, reserved=(name,)).change(name, node="n", told="")
            bound[name] = taken
            if rng.random() < 0.2 and not taken.share_id:  # kube-scheduler, from a cache that lags
                story.pod(f"f{index}", f"f{index}", by="default-scheduler")
                story.claim(f"f{index}", taken, reserved=(f"f{index}",), by=THEIRS)
                story.no_pod(f"f{index}").no_claim(f"f{index}")
        elif bound:
            name = rng.choice(sorted(bound))
            story.change(name, finished=True).claim(name).delete_pod(name).no_claim(name)
            del bound[name]
    return story

"""``python -m e2e.fuzz.objects``: so many mutants of every kind through watch, state and decision."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from e2e.fuzz.memory import MemoryBound, measurable, peak_mb
from e2e.fuzz.mutate import Mutator
from e2e.fuzz.samples import Object, cluster, older_kinds
from e2e.fuzz.world import ALL_GATES, World
from scheduler.api.kinds import Kind

RUNS = 10_000
SHOWN_MAX = 5
VERIFY_EVERY = 10
VARIANTS = ("default", "gates", "older")


@dataclass
class Outcome:
    """What the mutants of one kind did. ``slowest_s``: CPU of ``slowest``, the slowest one.

    ``spent_s``: CPU of all. ``grown_mb``: what they left behind; ``memory``: a sentence for each bound of it broken.
    """

    kind: str
    runs: int = 0
    undecodable: int = 0
    slowest_s: float = 0.0
    slowest: int = -1
    spent_s: float = 0.0
    grown_mb: float = 0.0
    memory: list[str] = field(default_factory=list)
    faults: list[tuple[int, str, str]] = field(default_factory=list)


def world_of(variant: str) -> World:
    """A world of one of VARIANTS."""
    return World(ALL_GATES if variant == "gates" else None, older_kinds() if variant == "older" else None)


def samples(kind_name: str) -> list[tuple[Kind, Object]]:
    """The samples of a kind."""
    return [(kind, body) for kind, body in cluster() if kind.name == kind_name]


async def run_kind(
    name: str, runs: int, seed: int, variant: str, *, only: int | None = None, verify_every: int = VERIFY_EVERY
) -> Outcome:
    """``runs`` mutants of one kind; ``only``: just that one, to look at a fault."""
    outcome = Outcome(f"{name} ({variant})")
    bodies = samples(name)
    world = world_of(variant)
    mutator = Mutator(world.served(bodies[0][0]), seed)
    async with world:
        bound = MemoryBound(outcome.kind)
        for number in range(runs):
            kind, body = bodies[number % len(bodies)]
            mutant = mutator.mutate(world.shaped(kind, body))
            if only is not None and number != only:
                continue
            if only is not None:
                print(mutant.how, mutant.raw[:3000])
            began_s = time.process_time()
            faults = await world.meet(kind, body, mutant, verify=number % verify_every == 0 or only is not None)
            spent_s = time.process_time() - began_s
            outcome.spent_s += spent_s
            if spent_s > outcome.slowest_s:
                outcome.slowest_s, outcome.slowest = spent_s, number
            outcome.runs += 1
            outcome.undecodable += bool(world.ears.undecodable)
            if faults:
                outcome.faults += [(number, mutant.how, fault) for fault in faults]
                if any("died" in fault or "HangError" in fault for fault in faults):
                    break
        outcome.memory, outcome.grown_mb = bound.faults(outcome.runs), bound.grown_mb
    return outcome


def kinds_of(variant: str) -> list[str]:
    """The kinds that a variant is about."""
    if variant == "older":
        return ["ResourceClaim", "ResourceSlice", "DeviceTaintRule"]
    names = dict.fromkeys(kind.name for kind, _ in cluster())
    if variant == "default":
        names.pop("PodGroup")  # only watched with its gate
    return list(names)


def tell(outcome: Outcome) -> int:
    """Print one line, and the faults; how many there are."""
    pace = outcome.runs / outcome.spent_s if outcome.spent_s else 0.0
    slowest = f"slowest {outcome.slowest_s:6.2f} s of CPU (mutant {outcome.slowest})"
    memory = f"left {outcome.grown_mb:4.0f} MB  peak {peak_mb():5.0f} MB"
    faults = len(outcome.faults) + len(outcome.memory)
    print(
        f"{outcome.kind:32} {outcome.runs:6} mutants {outcome.undecodable:6} undecodable  {pace:5.0f} per s of CPU  "
        f"{slowest}  {memory}  {faults} faults",
        flush=True,
    )
    for number, how, fault in outcome.faults[:SHOWN_MAX]:
        print(f"    mutant {number} ({how}): {fault[:600]}")
    for sentence in outcome.memory:
        print(f"    {sentence}")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per kind; 1 when a fault was found."""
    parser = argparse.ArgumentParser(prog="python -m e2e.fuzz.objects", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="mutants per kind")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal mutants")
    parser.add_argument("--kinds", nargs="*", help="these kinds only")
    parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--only", type=int, help="meet mutant number ONLY alone, and print it")
    parser.add_argument("--verify-every", type=int, default=VERIFY_EVERY, help="recompute the state after every nth")
    chosen = parser.parse_args(arguments)
    failed = 0
    if not measurable():
        print("memory left behind is not measured on this system: a leak is not found")
    for variant in chosen.variants:
        for name in kinds_of(variant):
            if chosen.kinds and name not in chosen.kinds:
                continue
            outcome = asyncio.run(
                run_kind(name, chosen.runs, chosen.seed, variant, only=chosen.only, verify_every=chosen.verify_every)
            )
            failed += tell(outcome)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

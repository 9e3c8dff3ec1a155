"""Conflicts and leaks that are already there: what each means and what heals it. Nothing is changed here.

Two looks are compared, because LISTs of several kinds are not one moment: a claim that was written between the LIST of
Pods and that of claims looks wrong in one look, never in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.explain.doctor_claims import check_claims
from scheduler.explain.doctor_devices import check_devices
from scheduler.explain.doctor_facts import SETTLE_S, SEVERITIES, Diagnosis, DoctorFinding, Look


def examine(look: Look) -> Diagnosis:
    """Everything that is wrong in one look, worst first. Cost: O(objects)."""
    found = Diagnosis()
    found.findings = sorted(
        [*check_devices(look), *check_claims(look)],
        key=lambda one: (SEVERITIES.index(one.severity), list(SETTLE_S).index(one.check), one.subject),
    )
    found.checked = {
        "ResourceClaim": len(look.claims),
        "Pod": len(look.pods),
        "ResourceSlice": sum(map(len, look.pools.values())),
    }
    return found


class Settling:
    """Findings that are told only if they stay, for ``settle_s`` seconds or, with None, as SETTLE_S says.

    What the first look did not show is not taken up later: a busy cluster would always have something new, and the
    next run sees it.
    """

    def __init__(self, first: Diagnosis, settle_s: float | None = None) -> None:
        self._needs_s: dict[tuple[str, ...], float] = {
            one.identity: SETTLE_S[one.check] if settle_s is None else settle_s for one in first.findings
        }
        self._seen_s = 0.0

    def next_look_s(self) -> float | None:
        """When to look next, in seconds since the first look; None when there is nothing left to wait for."""
        waits = [needs for needs in self._needs_s.values() if needs > self._seen_s]
        return min(waits) if waits else None

    def look_again(self, later: Diagnosis, seen_s: float) -> Diagnosis:
        """The findings of ``later``, seen ``seen_s`` after the first look, that were there all the time."""
        there = {one.identity for one in later.findings}
        self._needs_s = {identity: needs for identity, needs in self._needs_s.items() if identity in there}
        self._seen_s = seen_s
        later.findings = [one for one in later.findings if one.identity in self._needs_s]
        return later


def by_check(findings: Iterable[DoctorFinding]) -> Mapping[str, int]:
    """Number of findings per check, in the order of SETTLE_S."""
    counts = dict.fromkeys(SETTLE_S, 0)
    for one in findings:
        counts[one.check] += 1
    return {check: count for check, count in counts.items() if count}

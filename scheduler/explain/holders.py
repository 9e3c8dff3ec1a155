"""Who uses a claim and since when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.api.resource import ResourceClaim
from scheduler.dra.claims import parse_time
from scheduler.explain.facts import ClaimUse
from scheduler.state.cluster import ClusterState


def who_uses(state: ClusterState, claims: Iterable[str]) -> dict[str, ClaimUse]:
    """Who uses each of ``claims`` (``namespace/name``; unknown ones are left out), sorted by name."""
    found = ((key, state.devices.claims.get(key)) for key in sorted(claims))
    return {key: _use(claim, state) for key, claim in found if claim is not None}


def _use(claim: ResourceClaim, state: ClusterState) -> ClaimUse:
    allocation = claim.status.allocation
    use = ClaimUse(since=(allocation.allocationTimestamp or "") if allocation is not None else "")
    for user in claim.consumers:
        pod = state.pods.get(user.uid)
        if pod is None:
            use.gone.append(f"{claim.metadata.namespace}/{user.name}")
        else:
            use.pods.append(pod.key)
            if pod.spec.schedulerName not in use.schedulers:
                use.schedulers.append(pod.spec.schedulerName)
    return use


def use_words(use: ClaimUse, now: float, scheduler: str = "") -> str:
    """``pod default/x, for 3h``. ``now``: Unix seconds; ``scheduler``: others than this are named."""
    users = [*use.pods, *(f"{name}, which is gone" for name in use.gone)]
    since = age(use.since, now)
    others = [name for name in use.schedulers if scheduler and name != scheduler]
    placed_by = f"scheduled by {', '.join(others)}" if others else ""
    return ", ".join(part for part in (_users(users), placed_by, f"for {since}" if since else "") if part)


def _users(users: Sequence[str]) -> str:
    if not users:
        return "no Pod uses it"
    more = f" and {len(users) - 2} more" if len(users) > 2 else ""
    return f"{'pod' if len(users) == 1 else 'pods'} {', '.join(users[:2])}{more}"


def age(timestamp: str | None, now: float) -> str:
    """``3h``, ``5d``, ``20s``; "" without a time, or one in the future."""
    then = parse_time(timestamp) if timestamp else None
    if then is None or then > now:
        return ""
    return duration(now - then)


def duration(seconds: float) -> str:
    """The largest unit that fits, as kubectl shows ages."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"

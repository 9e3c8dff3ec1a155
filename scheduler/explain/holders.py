"""Who uses a claim and since when, in words."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.api.resource import ResourceClaim
from scheduler.dra.claims import parse_time
from scheduler.state.cluster import ClusterState


def who_uses(state: ClusterState, claims: Iterable[str], now: float) -> dict[str, str]:
    """Claim (``namespace/name``, those known) → ``pod default/x, for 3h``, sorted by name."""
    found = ((key, state.devices.claims.get(key)) for key in sorted(claims))
    return {key: _words(claim, state, now) for key, claim in found if claim is not None}


def _words(claim: ResourceClaim, state: ClusterState, now: float) -> str:
    gone = f"{claim.metadata.namespace}/{{}}, which is gone"
    known = [(user, state.pods.get(user.uid)) for user in claim.consumers]
    users = [gone.format(user.name) if pod is None else pod.key for user, pod in known]
    allocation = claim.status.allocation
    since = "" if allocation is None else age(allocation.allocationTimestamp, now)
    return ", ".join(part for part in (_users(users), f"for {since}" if since else "") if part)


def _users(users: Iterable[str]) -> str:
    listed = list(users)
    if not listed:
        return "no Pod uses it"
    more = f" and {len(listed) - 2} more" if len(listed) > 2 else ""
    return f"{'pod' if len(listed) == 1 else 'pods'} {', '.join(listed[:2])}{more}"


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

"""The commands and writes that heal what the doctor finds. Commands are meant to be pasted as they stand."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from scheduler.api import bodies
from scheduler.api.core import Pod
from scheduler.api.resource import FINALIZER, ConsumerReference, ResourceClaim
from scheduler.explain.doctor_facts import Look, Repair


def release(claim: ResourceClaim) -> Repair:
    """Clear allocation and reservations, as kube-controller-manager does for the last user."""
    body = bodies.claim_deallocation_patch(claim).decode()
    return _repair(claim, "status", body, f"clear the allocation of claim {claim.key}", claim.consumers, frees=True)


def unreserve(claim: ResourceClaim, gone: Iterable[str]) -> Repair:
    """Take the consumers with these uids out of status.reservedFor; the others stay byte for byte."""
    gone = set(gone)
    entries = zip(claim.status.reservedFor, claim.consumers, strict=True)
    left = [raw for raw, consumer in entries if consumer.uid not in gone]
    body = _patch(claim, {"status": {"reservedFor": left}})
    does = f"take {len(gone)} consumer{'s' if len(gone) > 1 else ''} out of status.reservedFor of claim {claim.key}"
    return _repair(claim, "status", body, does, [one for one in claim.consumers if one.uid in gone])


def without_finalizers(claim: ResourceClaim, dropped: Iterable[str]) -> Repair:
    """Take finalizers off the claim."""
    dropped = set(dropped)
    left = [finalizer for finalizer in claim.metadata.finalizers if finalizer not in dropped]
    body = _patch(claim, {"metadata": {"finalizers": left or None}})
    does = f"take {', '.join(sorted(dropped))} off claim {claim.key}"
    return _repair(claim, "", body, does, claim.consumers, frees=True)


def _repair(
    claim: ResourceClaim,
    subresource: str,
    body: str,
    does: str,
    consumers: Iterable[ConsumerReference],
    *,
    frees: bool = False,
) -> Repair:
    meta, nobody = claim.metadata, tuple(consumers)
    return Repair(meta.namespace, meta.name, meta.uid, meta.resourceVersion, subresource, body, does, nobody, frees)


def _patch(claim: ResourceClaim, change: dict[str, Any]) -> str:
    metadata = {"uid": claim.uid, "resourceVersion": claim.metadata.resourceVersion, **change.get("metadata", {})}
    return msgspec.json.encode({**change, "metadata": metadata}).decode()


def command(repair: Repair) -> str:
    """The repair as a kubectl command. It fails if anybody has touched the claim since."""
    words = ["kubectl", "patch", "resourceclaim", repair.name, "-n", repair.namespace, "--type=merge"]
    if repair.subresource:
        words.append(f"--subresource={repair.subresource}")
    return shlex.join([*words, "-p", repair.body])


def delete_pods(pods: Iterable[Pod]) -> tuple[str, ...]:
    """One command per namespace."""
    names: dict[str, list[str]] = {}
    for pod in pods:
        names.setdefault(pod.metadata.namespace, []).append(pod.metadata.name)
    return tuple(
        shlex.join(["kubectl", "delete", "pod", "-n", namespace, *sorted(set(found))])
        for namespace, found in sorted(names.items())
    )


def free(look: Look, claims: Sequence[ResourceClaim]) -> tuple[str, ...]:
    """What makes these claims let go of their devices: their Pods go, or, without Pods, the allocation is cleared.

    A consumer that cannot be looked up is left to its owner, and a claim of which it is not known whether it is used to
    whoever finds that out: then there is no command for that claim.
    """
    pods: dict[str, Pod] = {}
    commands: list[str] = []
    for claim in claims:
        users = [*look.pods_of(claim), *(p for p in look.users.get(claim.key, ()) if p.spec.nodeName)]
        pods.update((pod.uid, pod) for pod in users)
        if not users and not look.in_use(claim) and not look.unsure(claim):
            commands.append(command(release(claim)))
    return (*delete_pods(pods.values()), *commands)


def cautions(look: Look, claims: Sequence[ResourceClaim]) -> str:
    """What to think of before ``free``: claims without a command, Pods that nothing will create again; "" for none."""
    doubts = (
        without_command(look.unsure(claim), f"claim {claim.key}")
        for claim in claims
        if not look.in_use(claim) and look.unsure(claim)
    )
    return "; ".join(filter(None, (*doubts, _orphans(look, claims))))


def without_command(why: str, subject: str = "it") -> str:
    """Why nothing is offered that takes devices from a claim."""
    return f"no write for {subject} is offered, because {why}: mend that, see the notes, and look again"


def _orphans(look: Look, claims: Iterable[ResourceClaim]) -> str:
    """A warning about Pods that nothing will create again; "" when a controller stands behind every one."""
    pods = {pod.key for claim in claims for pod in look.pods_of(claim) if pod.metadata.controller() is None}
    if not pods:
        return ""
    shown = ", ".join(sorted(pods)[:3]) + (" and others" if len(pods) > 3 else "")
    return f"no controller creates {shown} again: keep the manifest before you delete"


def foreign(claim: ResourceClaim) -> list[str]:
    """Finalizers that Kubernetes does not put on claims itself."""
    return [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]

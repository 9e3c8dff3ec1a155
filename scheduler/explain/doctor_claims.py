"""The doctor's checks of claims and their Pods: reserved for nobody, allocated for nobody, missing, stuck."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.api.core import Pod
from scheduler.api.resource import FINALIZER, ConsumerReference, ResourceClaim
from scheduler.explain.doctor_facts import DoctorFinding, Look, Repair, claims_of, is_pod
from scheduler.explain.doctor_heal import (
    command,
    delete_pods,
    foreign,
    release,
    unreserve,
    without_command,
    without_finalizers,
)

_CONTROLLER = "kube-controller-manager tidies this up by itself within seconds: see whether it runs"


def check_claims(look: Look) -> Iterator[DoctorFinding]:
    """Everything about claims and who uses them. Cost: O(claims and Pods)."""
    for claim in look.claims:
        yield from _reserved_for_nobody(look, claim)
        yield from _unreserved(look, claim)
        yield from _finalizers(look, claim)
    for pod in sorted(look.pods.values(), key=lambda pod: pod.key):
        yield from _without_claim(look, pod)


def _offered(look: Look, claim: ResourceClaim, healing: Repair) -> tuple[tuple[str, ...], Repair | None, str]:
    """Command, repair and "", or neither and why not: who is not seen may be who was not read."""
    unsure = look.unsure(claim)
    return ((), None, without_command(unsure)) if unsure else ((command(healing),), healing, "")


def _reserved_for_nobody(look: Look, claim: ResourceClaim) -> Iterator[DoctorFinding]:
    nobody = [consumer for consumer in claim.consumers if look.consumer_state(consumer) in ("gone", "ended")]
    if not nobody:
        return
    alone = len(nobody) == len(claim.consumers)
    healing = release(claim) if alone else unreserve(claim, [consumer.uid for consumer in nobody])
    # A Pod that runs with the claim, reserved or not, is a use: then only the entries go, never the devices.
    safe = not alone or not look.in_use(claim)
    if not safe:
        healing = unreserve(claim, [consumer.uid for consumer in nobody])
    commands, repair, doubt = _offered(look, claim, healing)
    seen = "is seen to use" if doubt else "uses"
    means = f"its devices stay taken although nobody {seen} them" if alone else "they count as users of a shared claim"
    yield DoctorFinding(
        "warning", "reserved-for-nobody", f"ResourceClaim {claim.key}",
        f"is reserved for {', '.join(_who(look, claim, one) for one in nobody)}", means, commands, doubt or _CONTROLLER,
        repair if safe else None, ("reserved-for-nobody", claim.uid, *sorted(one.uid for one in nobody)),
    )  # fmt: skip


def _who(look: Look, claim: ResourceClaim, consumer: ConsumerReference) -> str:
    kind = "Pod" if is_pod(consumer) else "PodGroup"
    if look.consumer_state(consumer) == "ended":
        state = "has ended"
    elif look.unread(kind, claim.metadata.namespace):
        state = "is not among those that could be read"
    else:
        state = "does not exist"
    return f"{kind} {consumer.name} (uid {consumer.uid}), which {state}"


def _unreserved(look: Look, claim: ResourceClaim) -> Iterator[DoctorFinding]:
    if claim.status.allocation is None or claim.consumers or claim.metadata.deletionTimestamp is not None:
        return
    if any(pod.spec.nodeName for pod in look.users.get(claim.key, ())):
        return  # told as pod-without-claim; the devices are in use
    waiting = [pod.key for pod in look.users.get(claim.key, ())]
    commands, repair, doubt = _offered(look, claim, release(claim))
    what = "has devices, and is reserved for nobody"
    if waiting:
        what += f"; {', '.join(sorted(waiting)[:3])} may still use it, on the node of these devices only"
    yield DoctorFinding(
        "warning", "allocated-unreserved", f"ResourceClaim {claim.key}", what,
        "its devices are kept from others; nothing in Kubernetes takes them back by itself", commands,
        doubt or "if something other than a scheduler allocated it on purpose, leave it", repair,
        ("allocated-unreserved", claim.uid),
    )  # fmt: skip


def _without_claim(look: Look, pod: Pod) -> Iterator[DoctorFinding]:
    if not pod.spec.nodeName or pod.terminal or pod.metadata.deletionTimestamp is not None:
        return
    lacking = [text for name in claims_of(pod) if (text := _lack(look, pod, name))]
    if not lacking:
        return
    reservable = all("is not reserved" in text for text in lacking)
    what = f"is bound to node {pod.spec.nodeName}, but {'; '.join(lacking)}"
    yield DoctorFinding(
        "error", "pod-without-claim", f"Pod {pod.key}", what,
        "its kubelet does not start it, or a restart fails; others may get its devices", delete_pods([pod]),
        ("kube-controller-manager reserves an allocated claim for a bound Pod within seconds: see whether it runs"
         if reservable else "" if pod.metadata.controller() is not None
         else "no controller creates it again: keep the manifest before you delete"),
        None, ("pod-without-claim", pod.uid),
    )  # fmt: skip


def _lack(look: Look, pod: Pod, name: str) -> str:
    """What is wrong with a bound Pod's claim, "" when nothing is."""
    claim = look.by_key.get(f"{pod.metadata.namespace}/{name}")
    if claim is None:
        unread = look.unread("ResourceClaim", pod.metadata.namespace)
        return "" if unread else f"claim {name} does not exist"
    if claim.status.allocation is None:
        return f"claim {name} has no devices"
    group = pod.spec.schedulingGroup.podGroupName if pod.spec.schedulingGroup is not None else None
    grouped = any(one.resource == "podgroups" and one.name == group for one in claim.consumers)
    return "" if claim.reserved_for(pod.uid) or grouped else f"claim {name} is not reserved for it"


def _finalizers(look: Look, claim: ResourceClaim) -> Iterator[DoctorFinding]:
    strangers, deleting = foreign(claim), claim.metadata.deletionTimestamp is not None
    if strangers:
        healing = without_finalizers(claim, strangers)
        yield DoctorFinding(
            "error" if deleting else "note", "foreign-finalizer", f"ResourceClaim {claim.key}",
            f"carries {', '.join(strangers)}{', and its deletion waits for it' if deleting else ''}",
            "the claim and its devices stay until whoever put it there takes it off" if deleting
            else "once deleted, it stays until whoever put it there takes it off",
            (command(healing),), "ask its owner first: it may stand for a clean-up that is still to be done", None,
            ("foreign-finalizer", claim.uid, str(deleting)),
        )  # fmt: skip
    elif deleting and not look.in_use(claim) and not look.users.get(claim.key):
        free = claim.status.allocation is None and not claim.consumers
        healing = without_finalizers(claim, [FINALIZER]) if free else release(claim)
        commands, repair, doubt = _offered(look, claim, healing)
        if commands and not free:
            commands += (_drop_after(claim),)
        yield DoctorFinding(
            "warning", "deletion-stuck", f"ResourceClaim {claim.key}",
            f"is being deleted, nobody {'is seen to use' if doubt else 'uses'} it, and it does not go",
            "its devices stay taken", commands, doubt or _CONTROLLER, repair if free else None,
            ("deletion-stuck", claim.uid),
        )  # fmt: skip


def _drop_after(claim: ResourceClaim) -> str:
    """The finalizer goes in a second write, whose resourceVersion nobody knows yet: bound to the uid alone."""
    second = without_finalizers(claim, [FINALIZER])
    return command(second).replace(f',"resourceVersion":"{claim.metadata.resourceVersion}"', "")

"""Lint of what makes Pods: the claims that its Pods will ask for, and who will schedule them, before there are any."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from scheduler.api.names import UPSTREAM_SCHEDULER_NAME
from scheduler.explain.findings import Finding
from scheduler.state.cluster import ClusterState

Json = dict[str, Any]
WORKLOADS: Final = {
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Kind → where its Pod template is."""
POD_SPECS: Final = {"Pod": ("spec",)} | {kind: (*path, "spec") for kind, path in WORKLOADS.items()}
"""Kind → where the spec of its Pods is."""
POD, PODS = "the Pod", "its Pods"
TEMPLATE: Final = "ResourceClaimTemplate"
_WORDS = {POD: ("it", "is"), PODS: ("they", "are")}


@dataclass(slots=True)
class Known:
    """The ResourceClaimTemplates there are, by ``namespace/name``. ``all_of_them``: whether the kind was listed at all,
    so that one that is not here does not exist; ``unreadable``: ``Kind namespace/name`` of objects that were left out.
    ``unjudged``: whether anything was asked for that cannot be told.
    """

    templates: Container[str]
    all_of_them: bool
    unreadable: Container[str] = ()
    unjudged: bool = False

    def lacks(self, key: str) -> bool:
        """Whether it is certain that there is no template ``namespace/name``."""
        there = key in self.templates or f"{TEMPLATE} {key}" in self.unreadable
        return self.all_of_them and not there

    def judge(self, key: str) -> bool:
        """As ``lacks``, for one that is needed: notes when it cannot be told."""
        there = key in self.templates or f"{TEMPLATE} {key}" in self.unreadable
        self.unjudged = self.unjudged or not (self.all_of_them or there)
        return self.lacks(key)


def missing_template(subject: str, path: str, template: str, whom: str) -> Finding:
    """A claim template that does not exist. ``whom``: POD or PODS is held back."""
    return Finding(
        "error",
        "template-missing",
        subject,
        path,
        f"there is no ResourceClaimTemplate {template}",
        f"no claim is made for {whom}, so {' '.join(_WORDS[whom])} held back before the queue",
        "create the template in the Pod's namespace, or name another",
    )


def missing_claim(subject: str, path: str, namespace: str, claim: str, state: ClusterState, whom: str) -> Finding:
    """A claim that does not exist, and what may have been meant."""
    prefix = f"{namespace}/"
    known = [key.removeprefix(prefix) for key in state.devices.claims if key.startswith(prefix)]
    near = get_close_matches(claim, known, 1)
    elsewhere = sorted(key for key in state.devices.claims if key.endswith(f"/{claim}"))
    fix = "create the claim in the Pod's namespace, or name another"
    if near:
        fix = f"name {near[0]}"
    elif elsewhere:
        fix = f"there is {elsewhere[0]}, but a claim is used in its own namespace only: create one here"
    return Finding(
        "error",
        "claim-missing",
        subject,
        path,
        f"there is no ResourceClaim {prefix}{claim}",
        f"{whom} {_WORDS[whom][1]} held back before the queue until the claim exists",
        fix,
    )


def lint_workloads(
    raw: Mapping[tuple[str, str], Json],
    state: ClusterState,
    known: Known,
    schedulers: Collection[str],
) -> Iterator[Finding]:
    """``raw``: objects as they were written; whatever has not the shape of its kind is passed over."""
    for (kind, _), item in sorted(raw.items()):
        if kind not in WORKLOADS:
            continue
        spec: Any = item
        for part in (*WORKLOADS[kind], "spec"):
            spec = spec.get(part) if isinstance(spec, dict) else None
        metadata = item.get("metadata")
        if isinstance(spec, dict) and isinstance(metadata, dict):
            namespace = str(metadata.get("namespace") or "default")
            subject = f"{kind} {namespace}/{metadata.get('name')}"
            path = ".".join((*WORKLOADS[kind], "spec"))
            yield from _lint_pods(subject, path, namespace, spec, state, known, schedulers)


def _lint_pods(
    subject: str,
    path: str,
    namespace: str,
    spec: Json,
    state: ClusterState,
    known: Known,
    schedulers: Collection[str],
) -> Iterator[Finding]:
    entries = spec.get("resourceClaims")
    named = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    scheduler = str(spec.get("schedulerName") or UPSTREAM_SCHEDULER_NAME)
    if named and scheduler not in schedulers:
        yield Finding(
            "note",
            "another-scheduler",
            subject,
            f"{path}.schedulerName",
            f"its Pods ask for claims and are left to {scheduler}",
            f"the schedulers here are {', '.join(sorted(schedulers))}",
            "set schedulerName in the Pod template if they should be scheduled here",
        )
    for number, entry in enumerate(named):
        field = f"{path}.resourceClaims[{number}]"
        template, claim = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName")
        if isinstance(template, str) and known.judge(f"{namespace}/{template}"):
            where = f"{field}.resourceClaimTemplateName"
            yield missing_template(subject, where, f"{namespace}/{template}", PODS)
        there = isinstance(claim, str) and state.devices.claim(namespace, claim) is not None
        there = there or f"ResourceClaim {namespace}/{claim}" in known.unreadable
        if isinstance(claim, str) and not there:
            yield missing_claim(subject, f"{field}.resourceClaimName", namespace, claim, state, PODS)

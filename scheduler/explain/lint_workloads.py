"""Lint of what makes Pods: the claims that its Pods will ask for, and who will schedule them, before there are any."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

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
_DEFAULT_SCHEDULER = "default-scheduler"


def lint_workloads(
    raw: Mapping[tuple[str, str], Json],
    state: ClusterState,
    templates: Collection[str],
    schedulers: Collection[str],
) -> Iterator[Finding]:
    """``raw``: objects as they were written; whatever has not the shape of its kind is passed over.

    ``templates``: ResourceClaimTemplates by ``namespace/name``; none given: nothing is said of missing ones.
    """
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
            yield from _lint_pods(subject, path, namespace, spec, state, templates, schedulers)


def _lint_pods(
    subject: str,
    path: str,
    namespace: str,
    spec: Json,
    state: ClusterState,
    templates: Collection[str],
    schedulers: Collection[str],
) -> Iterator[Finding]:
    entries = spec.get("resourceClaims")
    named = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    scheduler = str(spec.get("schedulerName") or _DEFAULT_SCHEDULER)
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
        template, claim = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName")
        if isinstance(template, str) and templates and f"{namespace}/{template}" not in templates:
            yield Finding(
                "error",
                "template-missing",
                subject,
                f"{path}.resourceClaims[{number}].resourceClaimTemplateName",
                f"there is no ResourceClaimTemplate {namespace}/{template}",
                "no claim is made for its Pods, so they are held back before the queue",
                "create the template in the same namespace, or name another",
            )
        if isinstance(claim, str) and state.devices.claim(namespace, claim) is None:
            yield Finding(
                "error",
                "claim-missing",
                subject,
                f"{path}.resourceClaims[{number}].resourceClaimName",
                f"there is no ResourceClaim {namespace}/{claim}",
                "its Pods are held back before the queue until the claim exists",
                "create the claim in the same namespace, or name another",
            )

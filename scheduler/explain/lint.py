"""Lint: claims, templates, classes and taint rules held against what is published, before a Pod has to wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from scheduler.api.resource import DeviceTaintRule, ResourceClaim
from scheduler.dra.devices import rule_matches
from scheduler.dra.selectors import SelectorCache
from scheduler.explain.findings import SEVERITIES, Finding, Findings
from scheduler.explain.lint_requests import Subject, World, lint_claim, lint_class
from scheduler.state.cluster import ClusterState

Json = dict[str, Any]
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_APPLIED_KINDS = ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice", "DeviceTaintRule")


def lint(
    state: ClusterState,
    templates: Mapping[str, ResourceClaim],
    rules: Iterable[DeviceTaintRule],
    raw: Mapping[tuple[str, str], Json],
    schedulers: Iterable[str],
) -> Findings:
    """Look at everything. ``templates``: by ``namespace/name``, the claim each makes; ``raw``: objects as they were
    read, by (kind, ``namespace/name``); ``schedulers``: the schedulerNames that are ours.

    Cost: distinct requests times devices, a microsecond each once an expression is known.
    """
    devices = tuple(device for info in state.devices.slices.infos() for device in info.devices)
    world = World(state, devices, SelectorCache())
    found = Findings()
    if not devices:
        found.caveats.append("no device is published: whether requests match, and how many devices, was not judged")
    classes = [state.devices.classes.get(name) for name in state.devices.classes.names()]
    all_findings: list[Finding] = []
    for one in classes:
        if one is not None:
            all_findings.extend(lint_class(one, world))
    all_findings.extend(_lint_claims(state, templates, world))
    all_findings.extend(_shared_names(state))
    all_findings.extend(taint_reach(rule, state) for rule in rules)
    all_findings.extend(_dropped_fields(raw))
    all_findings.extend(_foreign_pods(state, set(schedulers)))
    all_findings.extend(_missing_templates(state, templates))
    found.findings = sorted(all_findings, key=lambda finding: SEVERITIES.index(finding.severity))
    found.checked = {
        "DeviceClass": len(classes),
        "ResourceClaim": len(state.devices.claims),
        "ResourceClaimTemplate": len(templates),
        "device": len(devices),
    }
    return found


def _lint_claims(state: ClusterState, templates: Mapping[str, ResourceClaim], world: World) -> Iterator[Finding]:
    """Templates first; a claim that asks for the same as a template or claim before it says nothing new.

    Claims that have their devices are left out: what they ask for was there.
    """
    seen: set[tuple[str, bytes]] = set()
    entries = [(f"ResourceClaimTemplate {key}", "spec.spec.devices", claim) for key, claim in templates.items()]
    entries += [
        (f"ResourceClaim {key}", "spec.devices", claim)
        for key, claim in state.devices.claims.items()
        if claim.status.allocation is None
    ]
    for name, prefix, claim in entries:
        shape = claim.metadata.namespace, msgspec.json.encode(claim.spec.devices)
        generated = claim.metadata.controller() is not None
        if not (generated and shape in seen):
            yield from lint_claim(Subject(name, prefix), claim, world)
        seen.add(shape)


def _shared_names(state: ClusterState) -> Iterator[Finding]:
    """Two classes for one extended resource: only one of them serves it."""
    classes = state.devices.classes
    by_name: dict[str, list[str]] = {}
    for name in classes.names():
        one = classes.get(name)
        if one is not None and one.spec.extendedResourceName:
            by_name.setdefault(one.spec.extendedResourceName, []).append(name)
    for resource, names in by_name.items():
        serving = classes.for_extended_resource(resource)
        for name in names if len(names) > 1 and serving is not None else ():
            if serving is not None and name != serving.name:
                yield Finding(
                    "warning",
                    "extended-resource-shared",
                    f"DeviceClass {name}",
                    "spec.extendedResourceName",
                    f"{resource} is also the name of class {serving.name}, which is the one that serves it",
                    "the newest class wins, then the one whose name sorts first; this one is never used for it",
                    "give each class a name of its own",
                )


def taint_reach(rule: DeviceTaintRule, state: ClusterState) -> Finding:
    """How many devices a rule touches and how many Pods use them, whether it is in force already or not."""
    touched = [
        device.key
        for info in state.devices.slices.infos()
        for device in info.devices
        if rule_matches(rule, info.key, device.key.device)
    ]
    ledger = state.devices.ledger
    claims = {holder for key in touched for holder in ledger.holders(key)}
    users = {
        user.uid
        for claim in map(state.devices.claims.get, claims)
        if claim is not None
        for user in claim.consumers
        if user.uid in state.pods
    }
    taint = rule.spec.taint
    evicts = taint.effect == "NoExecute"
    return Finding(
        "warning" if not touched or (evicts and users) else "note",
        "taint-rule-reach",
        f"DeviceTaintRule {rule.metadata.name}",
        "spec.deviceSelector",
        f"touches {len(touched)} devices, which {len(users)} Pods use",
        "these Pods are evicted unless their requests tolerate the taint" if evicts
        else "new Pods do not get these devices unless they tolerate the taint" if touched
        else "it has no effect: no published device has this driver, pool and device name",
        "narrow spec.deviceSelector if this is more than you mean" if touched
        else "compare driver, pool and device with kubectl get resourceslices -o yaml",
    )  # fmt: skip


def _dropped_fields(raw: Mapping[tuple[str, str], Json]) -> Iterator[Finding]:
    """Fields that were applied and are not stored: the API server drops what a gate of its own turns off."""
    for (kind, name), item in raw.items():
        if kind not in _APPLIED_KINDS:
            continue
        text = ((item.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
        if not isinstance(text, str):
            continue
        try:
            applied = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if not isinstance(applied, dict):
            continue
        for path in dropped(applied.get("spec"), item.get("spec"), "spec"):
            yield Finding(
                "error",
                "field-dropped",
                f"{kind} {name}",
                path,
                "was applied, but the API server does not have it",
                "a feature gate of the API server is off, or its version does not know the field; it says nothing",
                "turn the feature on in the API server and apply again, or do without the field",
            )


def dropped(applied: Any, stored: Any, path: str) -> Iterator[str]:
    """Paths of fields that ``applied`` sets and ``stored`` lacks; lists are compared where they are equally long."""
    if isinstance(applied, dict) and isinstance(stored, dict):
        for name, value in applied.items():
            if name in stored:
                yield from dropped(value, stored[name], f"{path}.{name}")
            elif value not in (None, "", [], {}, False, 0):
                yield f"{path}.{name}"
    elif isinstance(applied, list) and isinstance(stored, list) and len(applied) == len(stored):
        for number, (one, other) in enumerate(zip(applied, stored, strict=True)):
            yield from dropped(one, other, f"{path}[{number}]")


def _foreign_pods(state: ClusterState, schedulers: set[str]) -> Iterator[Finding]:
    """Templates whose Pods are left to another scheduler."""
    users: dict[str, dict[str, int]] = {}
    for pod in state.pods.values():
        for entry in pod.spec.resourceClaims:
            if entry.resourceClaimTemplateName is not None:
                key = f"{pod.metadata.namespace}/{entry.resourceClaimTemplateName}"
                names = users.setdefault(key, {})
                names[pod.spec.schedulerName] = names.get(pod.spec.schedulerName, 0) + 1
    for key, names in sorted(users.items()):
        foreign = {name: count for name, count in names.items() if name not in schedulers}
        if foreign:
            listed = ", ".join(f"{count} of {name}" for name, count in sorted(foreign.items()))
            yield Finding(
                "note",
                "another-scheduler",
                f"ResourceClaimTemplate {key}",
                "",
                f"some of its Pods are not scheduled here: {listed}",
                f"their spec.schedulerName is none of {', '.join(sorted(schedulers))}",
                "set spec.schedulerName in the Pod template if they should be",
            )


def _missing_templates(state: ClusterState, templates: Mapping[str, ResourceClaim]) -> Iterator[Finding]:
    """Pods that wait for a claim from a template that does not exist; only told when templates were given at all."""
    if not templates:
        return
    for pod in state.pods.values():
        made = {status.name for status in pod.status.resourceClaimStatuses}
        for number, entry in enumerate(pod.spec.resourceClaims):
            name = entry.resourceClaimTemplateName
            if name is not None and entry.name not in made and f"{pod.metadata.namespace}/{name}" not in templates:
                yield Finding(
                    "error",
                    "template-missing",
                    f"Pod {pod.key}",
                    f"spec.resourceClaims[{number}].resourceClaimTemplateName",
                    f"there is no ResourceClaimTemplate {pod.metadata.namespace}/{name}",
                    "no claim is made for the Pod, so it is held back before the queue",
                    "create the template in the Pod's namespace, or name another",
                )

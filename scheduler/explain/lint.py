"""Lint: claims, templates, classes and taint rules held against what is published, before a Pod has to wait for it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from scheduler.api.resource import DeviceTaintRule, ResourceClaim
from scheduler.api.taints import NO_EXECUTE, tolerated
from scheduler.dra.devices import DeviceKey, rule_matches
from scheduler.dra.selectors import SelectorCache
from scheduler.explain.findings import SEVERITIES, Finding, Findings
from scheduler.explain.lint_fields import dropped_fields, gated_fields
from scheduler.explain.lint_requests import lint_claim, lint_class
from scheduler.explain.lint_subject import Subject, World
from scheduler.explain.lint_together import Trial
from scheduler.explain.lint_workloads import POD, TEMPLATE, Known, lint_workloads, missing_claim, missing_template
from scheduler.explain.text import counted
from scheduler.state.cluster import ClusterState

Json = dict[str, Any]


def lint(
    state: ClusterState,
    templates: Mapping[str, ResourceClaim],
    rules: Iterable[DeviceTaintRule],
    raw: Mapping[tuple[str, str], Json],
    schedulers: Iterable[str],
    manifests: Mapping[tuple[str, str], Json] = MappingProxyType({}),
    files: Mapping[tuple[str, str], str] = MappingProxyType({}),
    listed: Container[str] = (),
    unreadable: Container[str] = (),
) -> Findings:
    """Look at everything. ``templates``: by ``namespace/name``, the claim each makes; ``raw``: objects as the API
    server has them, by (kind, ``namespace/name``); ``schedulers``: the schedulerNames that are ours; ``manifests``:
    objects as they are to be applied, or were; ``files``: where objects were read; ``listed``: kinds of which all
    objects are known, even if there are none; ``unreadable``: ``Kind namespace/name`` of objects that were left out.

    Cost: distinct requests times devices, a microsecond each once an expression is known; claims that no node can
    serve are searched for half a second in all (``lint_together.STEPS_MAX``).
    """
    devices = tuple(device for info in state.devices.slices.infos() for device in info.devices)
    cache = SelectorCache()
    world = World(state, devices, cache, Trial(state, devices, cache))
    written = {**raw, **manifests}
    known = Known(templates, TEMPLATE in listed, unreadable)
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
    all_findings.extend(dropped_fields(raw, manifests))
    all_findings.extend(gated_fields(written, state.features))
    all_findings.extend(_foreign_pods(state, known, set(schedulers)))
    all_findings.extend(_missing_templates(state, known))
    all_findings.extend(_missing_claims(state, unreadable))
    all_findings.extend(lint_workloads(written, state, known, set(schedulers)))
    if known.unjudged and written:
        found.caveats.append(f"the input does not list {TEMPLATE}s: whether those that Pods name exist was not judged")
    if world.trial.undecided:
        found.caveats.append(
            f"whether a node can serve the whole claim was not judged for {counted(world.trial.undecided, 'claim')}: "
            "pools are incomplete, nodes are not known, or there are too many ways to try"
        )
    placed = (replace(finding, file=_file_of(finding.subject, files)) for finding in all_findings)
    found.findings = sorted(placed, key=lambda finding: SEVERITIES.index(finding.severity))
    found.checked = {
        "DeviceClass": len(classes),
        # Claims that are only imagined, from the templates of Pods, were never written.
        "ResourceClaim": sum(not written or ("ResourceClaim", key) in written for key in state.devices.claims),
        TEMPLATE: len(templates),
        "device": len(devices),
    }
    return found


def _file_of(subject: str, files: Mapping[tuple[str, str], str]) -> str:
    kind, _, key = subject.partition(" ")
    return files.get((kind, key), "")


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
    """How many devices a rule would touch, how many Pods use them, and how many of those do not tolerate it.

    The same before and after it is applied.
    """
    touched = {
        device.key
        for info in state.devices.slices.infos()
        for device in info.devices
        if rule_matches(rule, info.key, device.key.device)
    }
    claims = {holder for key in touched for holder in state.devices.ledger.holders(key)}
    users: set[str] = set()
    exposed: set[str] = set()
    for claim in map(state.devices.claims.get, sorted(claims)):
        if claim is None or claim.status.allocation is None:
            continue
        pods = {user.uid for user in claim.consumers if user.uid in state.pods}
        users |= pods
        for result in claim.status.allocation.devices.results:
            mine = DeviceKey(result.driver, result.pool, result.device) in touched
            if mine and not tolerated(rule.spec.taint, result.tolerations):
                exposed |= pods
    evicts = rule.spec.taint.effect == NO_EXECUTE
    what = f"would touch {counted(len(touched), 'device')}, {counted(len(users), 'Pod')}"
    if users:
        what += f", {len(exposed)} of which do not tolerate it"
    why = "it has no effect: no published device has this driver, pool and device name"
    if touched:
        why = "new Pods do not get these devices unless they tolerate the taint"
        why += "; Pods that use them and do not tolerate it are evicted" if evicts else ""
    return Finding(
        "warning" if not touched or (evicts and exposed) else "note",
        "taint-rule-reach",
        f"DeviceTaintRule {rule.metadata.name}",
        "spec.deviceSelector",
        what,
        why,
        "narrow spec.deviceSelector if this is more than you mean" if touched
        else "compare driver, pool and device with kubectl get resourceslices -o yaml",
    )  # fmt: skip


def _foreign_pods(state: ClusterState, known: Known, schedulers: set[str]) -> Iterator[Finding]:
    """Templates whose Pods are left to another scheduler; one that does not exist is told as missing."""
    users: dict[str, dict[str, int]] = {}
    for pod in state.pods.values():
        for entry in pod.spec.resourceClaims:
            if entry.resourceClaimTemplateName is not None:
                key = f"{pod.metadata.namespace}/{entry.resourceClaimTemplateName}"
                names = users.setdefault(key, {})
                names[pod.spec.schedulerName] = names.get(pod.spec.schedulerName, 0) + 1
    for key, names in sorted(users.items()):
        foreign = {name: count for name, count in names.items() if name not in schedulers}
        if foreign and not known.lacks(key):
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


def _missing_templates(state: ClusterState, known: Known) -> Iterator[Finding]:
    """Pods that wait for a claim from a template that does not exist."""
    for pod in state.pods.values():
        made = {status.name for status in pod.status.resourceClaimStatuses}
        for number, entry in enumerate(pod.spec.resourceClaims):
            name = entry.resourceClaimTemplateName
            if name is not None and entry.name not in made and known.judge(f"{pod.metadata.namespace}/{name}"):
                path = f"spec.resourceClaims[{number}].resourceClaimTemplateName"
                yield missing_template(f"Pod {pod.key}", path, f"{pod.metadata.namespace}/{name}", POD)


def _missing_claims(state: ClusterState, unreadable: Container[str]) -> Iterator[Finding]:
    """Waiting Pods that name a claim which does not exist."""
    for pod in state.pods.values():
        for number, entry in enumerate(() if pod.spec.nodeName else pod.spec.resourceClaims):
            name = entry.resourceClaimName
            there = state.devices.claim(pod.metadata.namespace, name or "") is not None
            there = there or f"ResourceClaim {pod.metadata.namespace}/{name}" in unreadable
            if name is not None and not there:
                path = f"spec.resourceClaims[{number}].resourceClaimName"
                yield missing_claim(f"Pod {pod.key}", path, pod.metadata.namespace, name, state, POD)

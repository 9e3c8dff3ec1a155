"""Which rule of which plugin the cases of a run touch, in how many that find a node and how many that do not."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from e2e.conformity.schedule_compare import MISSING

Json = dict[str, Any]

SOLVED, UNSOLVED, BOTH = "solved", "unsolved", "both"

# (plugin, rule, part of the case, pattern in its JSON): the case asks for it.
_ASKED: tuple[tuple[str, str, str, str], ...] = (
    ("SchedulingGates", "gates", "pod", '"schedulingGates"'),
    ("TaintToleration", "tolerations", "pod", '"tolerations"'),
    ("TaintToleration", "operator Exists", "pod", '"operator": "Exists"'),
    ("TaintToleration", "PreferNoSchedule", "nodes", '"PreferNoSchedule"'),
    ("TaintToleration", "NoExecute", "nodes", '"NoExecute"'),
    ("NodeAffinity", "nodeSelector", "pod", '"nodeSelector": {"'),
    ("NodeAffinity", "required terms", "pod", '"nodeSelectorTerms": \\['),
    ("NodeAffinity", "preferred terms", "pod", '"preference"'),
    ("NodeAffinity", "matchFields", "pod", '"matchFields"'),
    ("NodeAffinity", "Gt and Lt", "pod", '"operator": "(Gt|Lt)"'),
    ("NodeAffinity", "added by the configuration", "config", '"addedAffinity"'),
    ("NodePorts", "host port", "pod", '"hostPort": [1-9]'),
    ("NodePorts", "host IP", "pod", '"hostIP"'),
    ("NodeResourcesFit", "init containers", "pod", '"initContainers"'),
    ("NodeResourcesFit", "sidecars", "pod", '"restartPolicy": "Always"'),
    ("NodeResourcesFit", "overhead", "pod", '"overhead"'),
    ("NodeResourcesFit", "pod-level resources", "pod-level", '"requests"'),
    ("NodeResourcesFit", "extended resources", "pod", '"(example.com/gpu|vendor.io/nic)"'),
    ("NodeResourcesFit", "resize in place", "pods", '"PodResizePending"|"allocatedResources"'),
    ("NodeResourcesFit", "LeastAllocated with weights", "config", '"type": "LeastAllocated"'),
    ("NodeResourcesFit", "MostAllocated", "config", '"type": "MostAllocated"'),
    ("NodeResourcesFit", "RequestedToCapacityRatio", "config", '"RequestedToCapacityRatio"'),
    ("NodeResourcesFit", "ignoredResources", "config", '"ignoredResources"'),
    ("NodeResourcesFit", "ignoredResourceGroups", "config", '"ignoredResourceGroups"'),
    ("NodeResourcesBalancedAllocation", "resources", "config", '"NodeResourcesBalancedAllocation"'),
    ("ImageLocality", "images on nodes", "nodes", '"images": \\[{'),
    ("PodTopologySpread", "DoNotSchedule", "pod", '"DoNotSchedule"'),
    ("PodTopologySpread", "ScheduleAnyway", "pod", '"ScheduleAnyway"'),
    ("PodTopologySpread", "minDomains", "pod", '"minDomains"'),
    ("PodTopologySpread", "matchLabelKeys", "pod", '"matchLabelKeys"'),
    ("PodTopologySpread", "nodeAffinityPolicy", "pod", '"nodeAffinityPolicy"'),
    ("PodTopologySpread", "nodeTaintsPolicy", "pod", '"nodeTaintsPolicy"'),
    ("PodTopologySpread", "default constraints", "config", '"defaultConstraints": \\[{'),
    ("PodTopologySpread", "system defaults", "objects", '"kind": "(Service|ReplicaSet|StatefulSet|ReplicationCont)'),
    ("InterPodAffinity", "required affinity", "pod", '"podAffinity": {"required'),
    ("InterPodAffinity", "required anti-affinity", "pod", '"podAntiAffinity": {"required'),
    ("InterPodAffinity", "preferred terms", "pod", '"podAffinityTerm"'),
    ("InterPodAffinity", "terms of placed Pods", "pods", '"podA(nti)?(A|a)ffinity"'),
    ("InterPodAffinity", "namespaces", "pod", '"namespaces"'),
    ("InterPodAffinity", "namespaceSelector", "pod", '"namespaceSelector"'),
    ("InterPodAffinity", "hardPodAffinityWeight", "config", '"hardPodAffinityWeight"'),
    ("DynamicResources", "claims", "pod", '"resourceClaimName"'),
    ("DynamicResources", "claims of templates", "pod", '"resourceClaimStatuses"'),
    ("DynamicResources", "prioritized list", "claims", '"firstAvailable"'),
    ("DynamicResources", "allocated claims", "claims", '"allocation": {'),
    ("DynamicResources", "device taints", "objects", '"timeAdded"|"DeviceTaintRule"'),
    ("DynamicResources", "consumable capacity", "objects", '"allowMultipleAllocations": true'),
    ("DynamicResources", "shared counters", "objects", '"consumesCounters"'),
    ("DynamicResources", "extended resources", "objects", '"extendedResourceName"'),
    ("VolumeBinding", "claims", "pod", '"persistentVolumeClaim"'),
    ("VolumeBinding", "late binding", "objects", '"WaitForFirstConsumer"'),
    ("VolumeBinding", "storage capacity", "objects", '"CSIStorageCapacity"'),
    ("VolumeBinding", "static volumes", "objects", '"kind": "PersistentVolume"'),
    ("VolumeBinding", "ephemeral volumes", "pod", '"ephemeral": {'),
    ("NodeVolumeLimits", "limits of drivers", "objects", '"allocatable": {"count"'),
    ("VolumeZone", "zones of volumes", "objects", '"topology.kubernetes.io/zone"'),
    ("NodeDeclaredFeatures", "declared", "nodes", '"declaredFeatures": \\["[RUV]'),
    ("framework", "score weights", "config", '"weight": [0-9]+}\\]}}'),
    ("framework", "nominated Pods", "pods", '"nominatedNodeName"'),
)

# (plugin, reason of a rejection on some node, where it must be seen).
_REASONS: tuple[tuple[str, str, str], ...] = (
    ("NodeUnschedulable", "node\\(s\\) were unschedulable", BOTH),
    ("TaintToleration", "untolerated taint", BOTH),
    ("NodeAffinity", "didn't match Pod's node affinity/selector", BOTH),
    ("NodePorts", "didn't have free ports", BOTH),
    ("NodeResourcesFit", "Too many pods", BOTH),
    ("NodeResourcesFit", "Insufficient cpu", BOTH),
    ("NodeResourcesFit", "Insufficient memory", BOTH),
    ("NodeResourcesFit", "Insufficient ephemeral-storage", BOTH),
    ("NodeResourcesFit", "Insufficient (example.com/gpu|vendor.io/nic)", BOTH),
    ("VolumeRestrictions", "node\\(s\\) had no available disk", BOTH),
    ("VolumeRestrictions", "PersistentVolumeClaim with ReadWriteOncePod", UNSOLVED),
    ("NodeVolumeLimits", "exceed max volume count", BOTH),
    ("NodeVolumeLimits", "CSI driver is not installed", BOTH),
    ("VolumeBinding", "didn't find available persistent volumes to bind", BOTH),
    ("VolumeBinding", "didn't match PersistentVolume's node affinity", BOTH),
    ("VolumeBinding", "did not have enough free storage", BOTH),
    ("VolumeZone", "had no available volume zone", BOTH),
    ("PodTopologySpread", "didn't match pod topology spread constraints$", BOTH),
    ("PodTopologySpread", "constraints \\(missing required label\\)", BOTH),
    ("InterPodAffinity", "didn't match pod affinity rules", BOTH),
    ("InterPodAffinity", "didn't match pod anti-affinity rules", BOTH),
    ("InterPodAffinity", "didn't satisfy existing pods anti-affinity rules", BOTH),
    ("DynamicResources", "cannot allocate all claims", BOTH),
    ("DynamicResources", "resourceclaim not available on the node", BOTH),
    ("DynamicResources", "invalid resource pools", BOTH),
    ("DynamicResources", "cannot fit resource", BOTH),
    ("NodeDeclaredFeatures", "didn't match Pod's required features", BOTH),
)

# (what preemption did, pattern in its JSON): only where no node fits.
_PREEMPTION: tuple[tuple[str, str], ...] = (
    ("victims", '"victims": \\["'),
    ("several candidates", '"candidates": {"[^}]*}, "[^}]*}'),
    ("violated budget", '"pdb_violations": [1-9]'),
    ("equal candidates", '"ties": \\["[^]]*", "'),
    ("not helpful", "Preemption is not helpful"),
    ("no victims found", "No preemption victims found"),
    ("not eligible", "not eligible due to"),
)


class ScheduleCoverage:
    """Counts cases per rule: with a node found, and without."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {BOTH: Counter(), SOLVED: Counter(), UNSOLVED: Counter()}
        self._needs: dict[str, str] = {}
        for plugin, rule, _, _ in _ASKED:
            self._needs[f"{plugin}: {rule}"] = BOTH
        for plugin, reason, where in _REASONS:
            self._needs[_reason_name(plugin, reason)] = where
        for rule, _ in _PREEMPTION:
            self._needs[f"DefaultPreemption: {rule}"] = UNSOLVED
        for plugin in _SCORING:
            self._needs[f"{plugin}: scores differ"] = SOLVED
        self._needs = {name: where for name, where in self._needs.items() if name.partition(":")[0] not in MISSING}

    def add(self, case: Json, theirs: Json) -> None:
        """Count one case by upstream's answer."""
        outcome = SOLVED if theirs.get("selected") else UNSOLVED
        for name in {*_asked(case), *_said(theirs), *_preempted(theirs), *_scored(theirs)}:
            self._counts[outcome][name] += 1

    def lines(self) -> Iterator[str]:
        """The table, a line per rule."""
        for name in sorted(self._needs):
            solved, unsolved = self._counts[SOLVED][name], self._counts[UNSOLVED][name]
            yield f"{name:<84} {solved:>6} with a node {unsolved:>6} without"

    def thin(self, least: int) -> Sequence[str]:
        """Rules in too few cases of a kind they can appear in."""
        found: list[str] = []
        for name, where in sorted(self._needs.items()):
            found += [
                f"{name} ({outcome})"
                for outcome in (SOLVED, UNSOLVED)
                if where in (BOTH, outcome) and self._counts[outcome][name] < least
            ]
        return found


_SCORING = (
    "VolumeBinding",
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
)


def _reason_name(plugin: str, reason: str) -> str:
    return f'{plugin}: says "{reason.replace(chr(92), "").rstrip("$")}"'


def _asked(case: Json) -> Iterator[str]:
    by_kind: dict[str, list[Json]] = {}
    for item in case["objects"]:
        by_kind.setdefault(item["kind"], []).append(item)
    parts = {
        "pod": json.dumps(case["pod"]),
        "pod-level": json.dumps(case["pod"]["spec"].get("resources")),
        "nodes": json.dumps(by_kind.get("Node", [])),
        "pods": json.dumps(by_kind.get("Pod", [])),
        "claims": json.dumps(by_kind.get("ResourceClaim", [])),
        "objects": json.dumps(
            [item for kind, items in by_kind.items() if kind not in ("Pod", "Node") for item in items]
        ),
        "config": json.dumps(case.get("config", {})),
    }
    for plugin, rule, part, pattern in _ASKED:
        if re.search(pattern, parts[part]):
            yield f"{plugin}: {rule}"


def _said(theirs: Json) -> Iterator[str]:
    said: dict[str, set[str]] = {}
    for by_plugin in (theirs.get("failures") or {}).values():
        for plugin, status in by_plugin.items():
            said.setdefault(plugin, set()).update(status.get("reasons") or ())
    for plugin, reason, _ in _REASONS:
        if any(re.search(reason, text) for text in said.get(plugin, ())):
            yield _reason_name(plugin, reason)


def _preempted(theirs: Json) -> Iterator[str]:
    text = json.dumps(theirs.get("preemption") or {}) + str(theirs.get("message"))
    for rule, pattern in _PREEMPTION:
        if re.search(pattern, text):
            yield f"DefaultPreemption: {rule}"


def _scored(theirs: Json) -> Iterator[str]:
    for plugin in _SCORING:
        if len({scores.get(plugin) for scores in (theirs.get("raw_scores") or {}).values()}) > 1:
            yield f"{plugin}: scores differ"

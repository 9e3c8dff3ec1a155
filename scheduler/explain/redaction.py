"""Answers as one caller may see them: what they may not list is left out or hidden, the rest stays as it is.

Every string of an answer goes through the scrubber, so that a field that is added later is covered, too; what would
make no sense without its names is dropped first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import msgspec

from scheduler.explain.bound import DEVICE_TAINT
from scheduler.explain.cluster_map import ClusterMap, WaitingPods
from scheduler.explain.facts import DeviceGroup, Explanation
from scheduler.explain.findings import Finding, Findings
from scheduler.explain.inventory_facts import Inventory, Line, fragmentation
from scheduler.explain.sight import Names, Own, Scrubber, Sight, scrubber, within
from scheduler.explain.trees import THIS_POD

Answer = TypeVar("Answer")
# Facts about a device that come from the request, not from the slice.
_OF_THE_REQUEST = ("selector", "error", "guard", "attribute", "capacity", "asked")
_TAINT_HINT = "tolerate device taint"


def redact_explanation(found: Explanation, sight: Sight, names: Names, own: Own) -> Explanation:
    """An explanation of the caller's ``own`` Pod: its names and those of its claims stay."""
    if sight.everything:
        return found
    hide = scrubber(sight, names, own)
    answer = _copy(found)
    groups = [
        part for node in answer.nodes for claim in node.claims for request in claim.requests for part in request.refused
    ]
    for part in groups:
        _hide_devices(part, sight, hide)
    answer.users = {claim: use for claim, use in answer.users.items() if hide.visible_key(claim)}
    if not sight.slices:
        answer.hints = [hint for hint in answer.hints if hint.change != _TAINT_HINT]
        answer.warnings = [one for one in answer.warnings if one.about != DEVICE_TAINT]
    scrubbed = _scrubbed(answer, hide)
    if scrubbed != answer or groups:
        scrubbed.caveats.append("names of objects that you may not list are hidden")
    return scrubbed


def redact_inventory(found: Inventory, sight: Sight, names: Names) -> Inventory:
    """Without the right to list slices the lines become one; claims and namespaces that may not be listed go."""
    if sight.everything:
        return found
    answer = _copy(found)
    if not sight.slices:
        answer.lines = [_sum(answer.lines)] if answer.lines else []
        answer.pools = {}
    answer.namespaces = {name: use for name, use in answer.namespaces.items() if within(sight.claims, name)}
    answer.shares = {name: use for name, use in answer.shares.items() if within(sight.claims, name)}
    for part in ("leaked", "lost", "waiting", "on_tainted"):
        setattr(answer, part, [note for note in getattr(answer, part) if sight.claim(note.claim)])
    scrubbed = _scrubbed(answer, scrubber(sight, names))
    scrubbed.caveats.append("what you may not list is left out or hidden; numbers are those of the whole cluster")
    return scrubbed


def redact_findings(found: Findings, sight: Sight, names: Names) -> Findings:
    """Findings about objects that the caller may list, other names in them hidden."""
    if sight.everything:
        return found
    answer = Findings([one for one in found.findings if sees_subject(sight, one)], {}, list(found.caveats))
    scrubbed = _scrubbed(answer, scrubber(sight, names))
    scrubbed.caveats.append("only objects that you may list were looked at; other names are hidden")
    return scrubbed


def redact_map(found: ClusterMap, sight: Sight, names: Names) -> ClusterMap:
    """Without the right to list slices only the numbers are left."""
    if sight.everything:
        return found
    answer = _copy(found)
    if not sight.slices:
        return ClusterMap([], 0, answer.states, ["you may not list resourceslices: only numbers are shown"])
    scrubbed = _scrubbed(answer, scrubber(sight, names))
    scrubbed.caveats.append("names of objects that you may not list are hidden")
    return scrubbed


def redact_waiting(found: WaitingPods, sight: Sight, limit: int) -> WaitingPods:
    """Only Pods that may be listed, ``limit`` at most; the nodes in their conditions they can read anyway."""
    pods = [pod for pod in found.pods if sight.pod(pod.pod)]
    answer = WaitingPods(pods[:limit], found.found if sight.pods is None else len(pods))
    if not sight.nodes:
        answer = _copy(answer)
        for pod in answer.pods:
            pod.node = "(hidden)" if pod.node else ""
    return answer


def sees_subject(sight: Sight, finding: Finding) -> bool:
    """Whether the object that a finding is about may be named."""
    kind, _, key = finding.subject.partition(" ")
    flags = {
        "DeviceClass": sight.classes,
        "DeviceTaintRule": sight.taint_rules,
        "ResourceSlice": sight.slices,
        "Node": sight.nodes,
    }
    spaces = {"Pod": sight.pods, "ResourceClaim": sight.claims, "ResourceClaimTemplate": sight.templates}
    if kind in flags:
        return flags[kind]
    return kind in spaces and within(spaces[kind], key)


def mentioned(answer: Any, spaces: Collection[str]) -> set[str]:
    """Namespaces (of ``spaces``) that an answer names: those whose rights have to be known before it is redacted."""
    found: set[str] = set()

    def note(run: str) -> None:
        if run in spaces:
            found.add(run)

    for text in _strings(msgspec.to_builtins(answer)):
        for word in text.replace(",", " ").replace("(", " ").replace(")", " ").replace(":", " ").split():
            note(word.strip("."))
            note(word.partition("/")[0])
    return found


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _hide_devices(part: DeviceGroup, sight: Sight, hide: Scrubber) -> None:
    hidden = sum(count for holder, count in part.holders.items() if holder and not _holder_visible(holder, hide))
    part.holders = {holder: count for holder, count in part.holders.items() if _holder_visible(holder, hide)}
    if hidden:
        part.holders["(claims that you may not list)"] = hidden
    if not sight.slices:
        part.values = {}
        part.devices = []
        part.detail = {name: text for name, text in part.detail.items() if name in _OF_THE_REQUEST}
    if not sight.classes:
        part.detail = {name: _without_class_selector(text) for name, text in part.detail.items()}


def _holder_visible(holder: str, hide: Scrubber) -> bool:
    return holder in (THIS_POD, "") or hide.visible_key(holder)


def _without_class_selector(text: str) -> str:
    """``class c selector #0: <expression>`` without the expression."""
    return text.partition(": ")[0] if text.startswith("class ") else text


def _sum(lines: list[Line]) -> Line:
    total = Line(driver="(all devices)")
    for line in lines:
        for name in ("total", "used", "shared", "tainted", "blocked", "free"):
            setattr(total, name, getattr(total, name) + getattr(line, name))
        total.largest = max(total.largest, line.largest)
        total.largest_empty = max(total.largest_empty, line.largest_empty)
    total.fragmentation = fragmentation(total)
    return total


def _copy(answer: Answer) -> Answer:
    return msgspec.convert(msgspec.to_builtins(answer), type(answer))


def _scrubbed(answer: Answer, hide: Scrubber) -> Answer:
    return msgspec.convert(hide.tree(msgspec.to_builtins(answer)), type(answer))

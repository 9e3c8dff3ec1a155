"""Rejections of one node's devices → claim → request → reason, and equal nodes folded into one."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import inf

from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.resource import ALL, DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from scheduler.cel import CompileError, compile_selector
from scheduler.dra.amounts import amount_text, nano, value_text
from scheduler.dra.devices import DeviceInfo, DeviceKey
from scheduler.dra.pools import NodeView
from scheduler.dra.rejections import Reason, Rejection
from scheduler.explain.facts import Cause, ClaimReport, DeviceGroup, NodeGroup, PoolTrouble, RequestReport, Verdict

ABSENT = "absent"
_DEVICES = "DynamicResources"
"""The plugin that refuses devices."""
THIS_POD = "this Pod"
"""The holder of devices that the search itself had taken; the allocator's word."""
# Facts that differ from device to device although the reason is the same; they are summed instead.
_OWN_FACTS = {Reason.IN_USE: frozenset({"claim"}), Reason.CAPACITY_SHORT: frozenset({"taken by"})}
_LIMIT = re.compile(
    r"claim (?P<claim>\S+), request (?P<request>\S+): adding (?P<asked>\d+) devices exceeds the claim limit of "
    r"(?P<limit>\d+), with (?P<taken>\d+)"
)
_OF_CONSTRAINTS = (Reason.MATCH_BROKEN.value, Reason.DISTINCT_BROKEN.value, Reason.ATTRIBUTE_MISSING.value)
_NAMES_SHOWN = 64
CAUSES_MAX = 3
"""Causes about one thing that differ in numbers only."""


def claim_reports(
    rejections: Sequence[Rejection], claims: Mapping[str, ResourceClaim], view: NodeView
) -> list[ClaimReport]:
    """The tree of one node. ``claims``: the open ones.

    Requests in the order they were refused; one that the search never reached is left out. Without any refusal all
    requests are listed: each device would do, and they are too few.
    """
    found: dict[tuple[str, str], dict[Hashable, DeviceGroup]] = {}
    for rejection in rejections:
        if rejection.claim:
            groups = found.setdefault((rejection.claim, rejection.request), {})
            _add(groups, rejection, view)
    reports: dict[str, ClaimReport] = {}
    for (claim, request), groups in found.items():
        report = reports.setdefault(claim, ClaimReport(claim))
        ordered = sorted(groups.values(), key=lambda group: -group.count)
        seen = len(view.devices)
        left = seen - sum(group.count for group in ordered if group.devices)
        report.requests.append(RequestReport(request, wants(claims.get(claim), request), seen, left, ordered))
    if not reports and view.devices:
        return [_all_would_do(claim, len(view.devices)) for claim in claims.values()]
    return list(reports.values())


def _all_would_do(claim: ResourceClaim, devices: int) -> ClaimReport:
    report = ClaimReport(claim.key)
    for request in claim.spec.devices.requests:
        for name in [f"{request.name}/{sub.name}" for sub in request.firstAvailable] or [request.name]:
            report.requests.append(RequestReport(name, wants(claim, name), devices, devices))
    return report


def notes(rejections: Iterable[Rejection]) -> list[str]:
    """What is wrong with pools and slices as a whole, and searches that were not finished."""
    return [_note(rejection) for rejection in rejections if not rejection.claim]


def troubles(rejections: Iterable[Rejection]) -> list[PoolTrouble]:
    """The same as data."""
    return [
        PoolTrouble(rejection.reason.value, rejection.request, dict(rejection.detail))
        for rejection in rejections
        if not rejection.claim
    ]


def limits(verdicts: Iterable[Verdict]) -> Iterator[PoolTrouble]:
    """More devices asked for than a claim may have: that ends the attempt before a search, so only its text tells."""
    for match in (_LIMIT.search(reason) for verdict in verdicts for reason in verdict.reasons):
        if match is not None:
            detail = {"asked": match["asked"], "limit": match["limit"], "taken": match["taken"]}
            yield PoolTrouble(Reason.LIMIT.value, f"claim {match['claim']}, request {match['request']}", detail)


def _note(rejection: Rejection) -> str:
    if rejection.reason is Reason.SEARCH_BUDGET:
        return f"search budget: these are the reasons met in {rejection.detail.get('steps', 'some')} steps"
    return rejection.words()


def _add(groups: dict[Hashable, DeviceGroup], rejection: Rejection, view: NodeView) -> None:
    own = _OWN_FACTS.get(rejection.reason, frozenset())
    detail = {name: value for name, value in rejection.detail.items() if name not in own}
    short_by = _short_by(detail)
    if short_by:
        detail["short by"] = short_by
    key = (rejection.reason, tuple(detail.items()))
    group = groups.get(key)
    if group is None:
        group = groups[key] = DeviceGroup(rejection.reason.value, 0, detail)
    group.count += 1
    if rejection.device is not None and len(group.devices) < _NAMES_SHOWN:
        group.devices.append(device_name(rejection.device, view))
    for name in own:
        for holder in rejection.detail.get(name, "").split(", "):
            group.holders[holder] = group.holders.get(holder, 0) + 1
    if rejection.reason in (Reason.SELECTOR_FALSE, Reason.SELECTOR_ERROR) and rejection.device is not None:
        position = view.positions.get(rejection.device)
        if position is not None:
            for name, value in read_values(rejection.detail.get("selector", ""), view.devices[position]).items():
                values = group.values.setdefault(name, {})
                values[value] = values.get(value, 0) + 1


def device_name(key: DeviceKey, view: NodeView) -> str:
    """``pool/device``, with the driver before it where the node sees devices of several."""
    several = any(pool.key.driver != key.driver for pool in view.pools)
    return str(key) if several else f"{key.pool}/{key.device}"


def _short_by(detail: Mapping[str, str]) -> str:
    """What is missing of a capacity or counter, where both amounts are told."""
    there = detail.get("free", detail.get("total", ""))
    try:
        return amount_text(nano(parse_quantity(detail["asked"])) - nano(parse_quantity(there)))
    except (KeyError, QuantityError):
        return ""


def add_counter_holders(
    reports: Iterable[ClaimReport], view: NodeView, holders: Callable[[DeviceKey], Iterable[str]]
) -> None:
    """Who uses the counters that are short: the claims of all devices of the pool that take from the same counter."""
    for part in (part for report in reports for request in report.requests for part in request.refused):
        if part.reason != Reason.COUNTER_SHORT.value:
            continue
        pools = {name.rpartition("/")[0] for name in part.devices}
        for info in view.devices:
            counters = {f"{use.counter_set}/{name}" for use in info.consumption for name, _ in use.counters}
            here = device_name(info.key, view).rpartition("/")[0]
            if here in pools and part.detail.get("counter") in counters:
                for holder in holders(info.key):
                    part.holders[holder] = part.holders.get(holder, 0) + 1


def read_values(selector: str, info: DeviceInfo) -> dict[str, str]:
    """What a selector (``class c selector #0: <expression>``) reads of a device: name → value, or "absent".

    Remembered per device: not to be changed.
    """
    question = "values", None, selector  # no list of expressions looks like that
    known: dict[str, str] | None = info.verdicts.get(question)
    if known is None:
        known = _read_values(selector, info)
        info.remember(question, known)
    return known


def _read_values(selector: str, info: DeviceInfo) -> dict[str, str]:
    try:
        reads = compile_selector(selector.partition(": ")[2]).reads
    except CompileError:
        return {}
    values: dict[str, str] = {}
    if reads.driver:
        values["driver"] = info.key.driver
    for name in sorted(reads.qualified_attributes()):
        attribute = info.attribute(name)
        values[name] = value_text(attribute[1]) if attribute is not None else ABSENT + near_miss(name, info.attributes)
    for name in sorted(reads.qualified_capacity()):
        domain, _, short = name.partition("/")
        capacity = info.capacities.get(name) or (info.capacities.get(short) if domain == info.key.driver else None)
        values[name] = str(capacity.value) if capacity is not None else ABSENT + near_miss(name, info.capacities)
    return values


def near_miss(name: str, known: Iterable[str]) -> str:
    """`` (there is …)`` when a known name looks like ``name``, else nothing. Domains count only when written."""
    names = {other: other for other in known}
    close = get_close_matches(name, names, 1, 0.75) or get_close_matches(name.rpartition("/")[2], names, 1, 0.75)
    if not close:
        by_id = {other.rpartition("/")[2]: other for other in names}
        close = [by_id[found] for found in get_close_matches(name.rpartition("/")[2], by_id, 1, 0.75)]
    return f" (there is {close[0]})" if close else ""


def wants(claim: ResourceClaim | None, request: str) -> str:
    """What a request asks for: ``2 of class gpu``, ``all of class gpu``; "" for a claim we do not have."""
    asked = None if claim is None else find_request(claim, request)
    if asked is None:
        return ""
    amount = "all" if asked.allocationMode == ALL else str(asked.count)
    return f"{amount} of class {asked.deviceClassName}"


def find_request(claim: ResourceClaim, name: str) -> ExactDeviceRequest | DeviceSubRequest | None:
    """The part of a claim that a result's or rejection's request name means; None without one."""
    first, _, second = name.partition("/")
    request: DeviceRequest | None = next((r for r in claim.spec.devices.requests if r.name == first), None)
    if request is None:
        return None
    return next((sub for sub in request.firstAvailable if sub.name == second), None) if second else request.exactly


class NodeFold:
    """Nodes of which the same can be said become one group; each comes as a group of one node, in node order.

    Device names are those of the first node, numbers of devices are those of each node, but for nodes whose devices
    nobody refuses; holders and values of the others are added, and causes with other numbers. Cost of one more node:
    what is said of it.
    """

    def __init__(self) -> None:
        self._folded: dict[Hashable, NodeGroup] = {}
        self._texts: dict[tuple[int, int, str, str], Cause] = {}

    def add(self, group: NodeGroup) -> None:
        """One more node. Its verdicts are the fold's from now on; what is said of its devices stays as it is."""
        key = _likeness(group)
        same = self._folded.get(key)
        if same is None:
            self._folded[key] = same = replace(group, nodes=list(group.nodes), claims=_own_claims(group.claims))
            for place, verdict in enumerate(same.verdicts):
                self._texts |= {(id(same), place, cause.about, cause.text): cause for cause in verdict.because}
            return
        same.nodes.extend(group.nodes)
        _merge_devices(same, group)
        self._merge_causes(same, group)

    def _merge_causes(self, kept: NodeGroup, more: NodeGroup) -> None:
        """Equal texts are counted, others kept side by side."""
        for place, (verdict, other) in enumerate(zip(kept.verdicts, more.verdicts, strict=True)):
            for cause in other.because:
                key = id(kept), place, cause.about, cause.text
                known = self._texts.get(key)
                if known is None:
                    self._texts[key] = cause
                    verdict.because.append(cause)
                else:
                    known.nodes += 1

    def groups(self) -> list[NodeGroup]:
        """To be asked once. Nodes that fit first, then the nearest to fitting; of equally near ones most nodes."""
        for group in self._folded.values():
            for verdict in group.verdicts:
                _order_causes(verdict)
        return sorted(self._folded.values(), key=lambda group: (not group.fits, *_distance(group), -len(group.nodes)))


def together(groups: Iterable[NodeGroup], claims: Iterable[ResourceClaim]) -> Iterator[str]:
    """Requests for which the cluster has enough devices that would do, but no single node.

    Left out where a constraint refuses devices: there the number of devices is not what is lacking.
    """
    constrained: set[tuple[str, str]] = set()
    would_do: dict[tuple[str, str], int] = {}
    most: dict[tuple[str, str], int] = {}
    for group in groups:
        for report in group.claims:
            for request in report.requests:
                place = report.claim, request.request
                left = max(request.left, 0)
                would_do[place] = would_do.get(place, 0) + left * len(group.nodes)
                most[place] = max(most.get(place, 0), left)
                if any(part.reason in _OF_CONSTRAINTS for part in request.refused):
                    constrained.add(place)
    by_key = {claim.key: claim for claim in claims}
    for (key, name), total in would_do.items():
        asked = find_request(by_key[key], name) if key in by_key else None
        highest = most[key, name]
        if asked is None or asked.allocationMode == ALL or (key, name) in constrained:
            continue
        if highest < asked.count <= total:
            yield (
                f"request {name} of claim {key}: {total} devices would do in the whole cluster, but all {asked.count} "
                f"must be on one node, and no node has more than {highest}"
            )


def holders_in(groups: Iterable[NodeGroup]) -> set[str]:
    """The claims that are in the way anywhere."""
    parts = (
        part for group in groups for claim in group.claims for request in claim.requests for part in request.refused
    )
    return {holder for part in parts for holder in part.holders}


def _distance(group: NodeGroup) -> tuple[int, float]:
    """By plugins that refuse, then by devices that would do; all of them would where no device is refused."""
    plugins = {verdict.plugin for verdict in group.verdicts}
    if _DEVICES not in plugins:
        return len(plugins), -inf
    return len(plugins), -sum(max(request.left, 0) for claim in group.claims for request in claim.requests)


def _own_claims(reports: list[ClaimReport]) -> list[ClaimReport]:
    """Copies to add to."""
    return [
        replace(report, requests=[replace(one, refused=list(map(_own_part, one.refused))) for one in report.requests])
        for report in reports
    ]


def _own_part(part: DeviceGroup) -> DeviceGroup:
    values = {name: dict(counts) for name, counts in part.values.items()}
    return replace(part, holders=dict(part.holders), values=values)


def _likeness(group: NodeGroup) -> Hashable:
    name = group.nodes[0]
    return (
        group.fits,
        group.devices if group.claims else 0,  # told only with what refuses them
        tuple(
            (verdict.plugin, verdict.code, tuple(verdict.reasons), frozenset(cause.about for cause in verdict.because))
            for verdict in group.verdicts
        ),
        tuple(
            (claim.claim, request.request, tuple((_facts(part, name)) for part in request.refused))
            for claim in group.claims
            for request in claim.requests
        ),
        tuple(note.replace(name, "<node>") for note in group.notes),
    )


def _facts(part: DeviceGroup, name: str) -> Hashable:
    return (
        part.reason,
        part.count,
        tuple((key, value.replace(name, "<node>")) for key, value in part.detail.items()),
        tuple(sorted(part.values)),
    )


def _merge_devices(kept: NodeGroup, more: NodeGroup) -> None:
    for claim, other in zip(kept.claims, more.claims, strict=True):
        for request, same in zip(claim.requests, other.requests, strict=True):
            for part, again in zip(request.refused, same.refused, strict=True):
                if part.devices == again.devices:
                    continue  # the same devices, seen from several nodes
                for holder, count in again.holders.items():
                    if holder == THIS_POD:
                        continue  # it would take them on one node, not on all of them
                    part.holders[holder] = part.holders.get(holder, 0) + count
                for attribute, values in again.values.items():
                    read = part.values[attribute]
                    for value, count in values.items():
                        read[value] = read.get(value, 0) + count


def _order_causes(verdict: Verdict) -> None:
    """By what they are about in order of appearance, the nearest to fitting first; a few of each are enough."""
    by_subject: dict[str, list[Cause]] = {}
    for cause in verdict.because:
        by_subject.setdefault(cause.about, []).append(cause)
    verdict.because = []
    for causes in by_subject.values():
        causes.sort(key=lambda cause: (cause.short, -cause.nodes))
        verdict.because.extend(causes[:CAUSES_MAX])
        verdict.more += sum(cause.nodes for cause in causes[CAUSES_MAX:])

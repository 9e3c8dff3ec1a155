"""Lint of claims as a whole: what no node could give them even if every device were free and without taints.

The allocator itself is asked, so overlapping requests, alternatives, shares, counters and constraints count as they do
when a Pod is scheduled. Nothing is said where the answer is not certain.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from scheduler.api.core import Node
from scheduler.api.meta import ObjectMeta
from scheduler.api.resource import ALL, DeviceRequest, ResourceClaim
from scheduler.api.taints import Toleration
from scheduler.dra.allocator import Allocated, Allocation, Fatal, Timeout
from scheduler.dra.devices import DeviceInfo, SliceInfo
from scheduler.dra.ledger import Ledger
from scheduler.dra.pools import NodeView
from scheduler.dra.requests import Plan, prepare
from scheduler.dra.selectors import SelectorCache
from scheduler.explain.findings import Finding
from scheduler.explain.inventory import ANYWHERE, where
from scheduler.explain.text import counted
from scheduler.state.cluster import ClusterState

STEPS_MAX = 50_000
"""Search steps of 10 microseconds each for all claims of one lint."""
_CLAIM_STEPS_MAX = 10_000
# Every taint: it may be gone tomorrow, a device that is not there does not come.
_EVERYTHING = (Toleration(operator="Exists"),)
_OVER_LIMIT = "exceeds the claim limit"
# Errors that say what a node lacks, not that something cannot be asked.
_NOT_HERE = (_OVER_LIMIT, "claim constraint would not be satisfied")


class Trial:
    """Tries claims on every node with all devices free. ``undecided``: shapes of claims of which it is not certain
    whether a node could serve them: pools are incomplete, nodes unknown, or the steps did not suffice.
    """

    def __init__(self, state: ClusterState, devices: Sequence[DeviceInfo], cache: SelectorCache) -> None:
        self.undecided = 0
        self.devices = devices
        self._state = state
        self._cache = cache
        self._nodes = _nodes(state)
        self._nobody = Ledger(state.features.consumable_capacity)
        self._steps_left = STEPS_MAX
        self._answers: dict[bytes, tuple[list[int], list[int]] | None] = {}

    def smallest(self, claim: ResourceClaim) -> tuple[list[int], list[int]] | None:
        """Constraints and requests (places in the claim) that no node can serve together, as few as will not do.

        None when a node can serve the whole claim, or when it is not certain that none can.
        """
        shape = msgspec.json.encode(claim.spec.devices)
        if shape not in self._answers:
            self._answers[shape] = self._smallest(claim)
        return self._answers[shape]

    def served(self, claim: ResourceClaim) -> bool | None:
        """Whether a node can serve the whole claim; None when that is not certain."""
        devices = claim.spec.devices
        return self._served(claim, range(len(devices.constraints)), range(len(devices.requests)))

    def plan(self, claim: ResourceClaim) -> Plan:
        """The claim's requests, prepared."""
        return prepare([claim], self._state.devices.classes, self._state.features, self._cache)

    def _smallest(self, claim: ResourceClaim) -> tuple[list[int], list[int]] | None:
        devices = claim.spec.devices
        constraints, requests = list(range(len(devices.constraints))), list(range(len(devices.requests)))
        served = self._served(claim, constraints, requests)
        if served is not False:
            self.undecided += served is None
            return None
        for part in (constraints, requests):
            for place in tuple(part):
                part.remove(place)
                if not requests or self._served(claim, constraints, requests) is not False:
                    part.append(place)
            part.sort()
        return constraints, requests

    def _served(self, claim: ResourceClaim, constraints: Iterable[int], requests: Iterable[int]) -> bool | None:
        """Whether a node can serve these parts of the claim; None when that is not certain."""
        plan = self.plan(_part(claim, constraints, requests))
        if plan.problem:
            return _OVER_LIMIT not in plan.problem  # every other problem is told elsewhere
        steps_left = min(_CLAIM_STEPS_MAX, self._steps_left)
        certain = bool(self._nodes)
        failed: set[Hashable] = set()
        for node in self._nodes:
            view = self._state.devices.slices.view(node)
            if view.error or not all(pool.usable for pool in view.pools):
                certain = False  # what the pool lacks may be just what is asked for
                continue
            shape = None if self._state.features.list_attributes else _shape(plan, view)
            if shape in failed:
                continue
            allocation = Allocation(plan, view, self._nobody.usage(view), self._state.features)
            outcome = allocation.run(steps_left) if steps_left > 0 else None
            spent = max(allocation.steps, 1)
            self._steps_left -= spent
            steps_left -= spent
            if outcome is None or isinstance(outcome, Timeout):
                return None
            if isinstance(outcome, Allocated):
                return True
            if isinstance(outcome, Fatal) and not any(words in outcome.text for words in _NOT_HERE):
                return True  # told elsewhere, or not to be judged
            if shape is not None:
                failed.add(shape)
        return False if certain else None


def _shape(plan: Plan, view: NodeView) -> Hashable | None:
    """Equal for nodes that can serve the same: per device who may take it, and which values of attributes are equal.

    None where shares, counters or capacities matter too.
    """
    if any(info.multi or info.consumption for info in view.devices):
        return None
    if any(one.capacity or one.derived for one in plan.alternatives):
        return None
    numbers: dict[Hashable, int] = {}
    devices: list[Hashable] = [view.here]
    for info in view.devices:
        takers = tuple(one.program is not None and one.program.answer(info) is True for one in plan.alternatives)
        values = ((limit.attribute, info.attribute(limit.attribute)) for limit in plan.constraints)
        devices.append(
            (takers, *(None if value[1] is None else numbers.setdefault(value, len(numbers)) for value in values))
        )
    return tuple(devices)


def _nodes(state: ClusterState) -> list[Node]:
    """Every node, and those that only slices name: a dump may lack them. Empty when slices select unknown nodes."""
    nodes = [state.nodes.node(row) for row in state.nodes.order().tolist()]
    if not nodes and any(_selecting(info) for info in state.devices.slices.infos()):
        return []
    known = {node.name for node in nodes}
    for info in state.devices.slices.infos():
        named = (info.slice.spec.nodeName, *(device.device.nodeName for device in info.devices))
        for name in named:
            if name and name not in known:
                known.add(name)
                nodes.append(_made_up(name))
    return nodes or [_made_up("any")]


def _selecting(info: SliceInfo) -> bool:
    """Whether labels decide which nodes see the slice or a device of it."""
    selectors = (info.slice.spec.nodeSelector, *(device.device.nodeSelector for device in info.devices))
    return any(selector is not None for selector in selectors)


def _made_up(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}))


def _part(claim: ResourceClaim, constraints: Iterable[int], requests: Iterable[int]) -> ResourceClaim:
    devices = claim.spec.devices
    kept = msgspec.structs.replace(
        devices,
        constraints=tuple(devices.constraints[place] for place in constraints),
        requests=tuple(_tolerating(devices.requests[place]) for place in requests),
    )
    return msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, devices=kept))


def _tolerating(request: DeviceRequest) -> DeviceRequest:
    exactly = request.exactly
    if exactly is not None:
        exactly = msgspec.structs.replace(exactly, tolerations=_EVERYTHING)
    subs = tuple(msgspec.structs.replace(sub, tolerations=_EVERYTHING) for sub in request.firstAvailable)
    return msgspec.structs.replace(request, exactly=exactly, firstAvailable=subs)


def lint_together(name: str, prefix: str, claim: ResourceClaim, trial: Trial) -> Iterator[Finding]:
    """A claim that no node can serve. ``name``: the object; ``prefix`` leads from its root to ``devices``."""
    smallest = trial.smallest(claim)
    if smallest is None:
        return
    constraints, requests = smallest
    asked = [claim.spec.devices.requests[place] for place in requests]
    who = "request " if len(asked) == 1 else "requests "
    who += _listed([one.name for one in asked])
    number = _number(asked)
    wants = f"{who} {'asks' if len(asked) == 1 else 'ask'} for " + (counted(number, "device") if number else "devices")
    why = "all devices of a claim come from one node, so Pods that use it wait for ever"
    if constraints:
        first = claim.spec.devices.constraints[constraints[0]]
        matching = first.matchAttribute is not None
        attribute = first.matchAttribute or first.distinctAttribute
        kind = "matchAttribute" if matching else "distinctAttribute"
        with_ = f"with one {attribute}" if matching else f"with different {attribute}"
        more = f" and {counted(len(constraints) - 1, 'more constraint')}" if len(constraints) > 1 else ""
        yield Finding(
            "error",
            "match-too-large" if matching else "distinct-too-large",
            name,
            f"{prefix}.constraints[{constraints[0]}].{kind}",
            f"{wants} {with_}{more}; no node has them, even if every device were free",
            why,
            "ask for fewer devices, or take another attribute" if matching
            else "ask for fewer devices, or tell them apart by another attribute",
        )  # fmt: skip
        return
    most = _most(claim, asked, trial) if number else None
    short = most is not None and most < number
    ending = f"a node has {most} that match at most" if short else "no node has them"
    yield Finding(
        "error",
        "count-too-large",
        name,
        _path(prefix, requests, asked),
        f"{wants}{' together' if len(asked) > 1 else ''}; {ending}, even if every device were free",
        why,
        f"ask for {most} at most in one claim" if short else "ask for less in one claim",
    )


def _path(prefix: str, requests: Sequence[int], asked: Sequence[DeviceRequest]) -> str:
    if len(requests) > 1:
        return f"{prefix}.requests"
    return f"{prefix}.requests[{requests[0]}]" + (".exactly" if asked[0].exactly is not None else ".firstAvailable")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _number(requests: Iterable[DeviceRequest]) -> int:
    """Devices that the requests take together; 0 when that depends on the node."""
    counts = [one.exactly.count if one.exactly and one.exactly.allocationMode != ALL else 0 for one in requests]
    return sum(counts) if all(counts) else 0


def _most(claim: ResourceClaim, asked: Sequence[DeviceRequest], trial: Trial) -> int | None:
    """Devices of one node that match any of the requests; None where devices may be shared or cut up."""
    names = {one.name for one in asked}
    plan = trial.plan(claim)
    programs = [one.program for one in plan.alternatives if one.request in names and one.program is not None]
    by_node: dict[str, int] = {}
    for info in trial.devices:
        if any(program.answer(info) is True for program in programs):
            if info.multi or info.consumption:
                return None
            by_node[where(info)] = by_node.get(where(info), 0) + 1
    anywhere = by_node.pop(ANYWHERE, 0)
    return max(by_node.values(), default=0) + anywhere

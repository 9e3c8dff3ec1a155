"""From picks to status.allocation: results, node selector and configuration.

Source: kube-scheduler 1.37, structured allocator, result assembly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from scheduler.api.selectors import NodeSelector, NodeSelectorTerm, Requirement
from scheduler.dra.devices import DeviceInfo
from scheduler.dra.features import EXPERIMENTAL, Features
from scheduler.dra.pools import NodeView
from scheduler.dra.requests import Alternative, PreparedClaim
from scheduler.dra.taking import FatalError, Pick

NewId = Callable[[], str]


def assemble(
    claim: PreparedClaim, picks: Sequence[Pick], view: NodeView, features: Features, new_id: NewId
) -> AllocationResult:
    """The allocation of one claim from its picks, in the order they were taken. Raises FatalError.

    ``new_id`` gives one share id per share. The timestamp is set where the allocation is written.
    """
    results = tuple(_result(pick, view.devices[pick.position], features, new_id) for pick in picks)
    chosen = _chosen(claim, picks)
    return AllocationResult(
        devices=DeviceAllocationResult(results=results, config=_config(claim.claim, chosen)),
        nodeSelector=node_selector(claim.claim, [view.devices[pick.position] for pick in picks], view.node_name),
    )


def _result(pick: Pick, info: DeviceInfo, features: Features, new_id: NewId) -> DeviceRequestAllocationResult:
    alternative, device = pick.alternative, info.device
    binding = features.binding_conditions
    return DeviceRequestAllocationResult(
        request=alternative.name,
        driver=info.key.driver,
        pool=info.key.pool,
        device=info.key.device,
        adminAccess=True if alternative.admin else None,
        tolerations=alternative.tolerations,
        bindingConditions=device.bindingConditions if binding else (),
        bindingFailureConditions=device.bindingFailureConditions if binding else (),
        shareID=new_id() if pick.shared else None,
        consumedCapacity={name: str(amount) for name, amount in pick.consumed} if pick.consumed else None,
        skipNodeOperations=info.slice.slice.spec.skipNodeOperations if features.channel == EXPERIMENTAL else (),
    )


def _chosen(claim: PreparedClaim, picks: Sequence[Pick]) -> list[Alternative]:
    """The alternative in use per request, in request order.

    A firstAvailable request always has a device, so its picks tell which alternative was chosen.
    """
    picked = {pick.alternative.request: pick.alternative for pick in picks}
    return [picked.get(request.name, request.alternatives[0]) for request in claim.requests]


def _config(claim: ResourceClaim, chosen: Sequence[Alternative]) -> tuple[DeviceAllocationConfiguration, ...]:
    entries: list[tuple[str, list[str], DeviceAllocationConfiguration]] = []
    of_class: dict[str, list[int]] = {}
    for alternative in chosen:
        device_class = alternative.device_class
        assert device_class is not None
        places = of_class.get(device_class.name)
        if places is None:
            places = of_class[device_class.name] = []
            for class_config in device_class.spec.config:
                places.append(len(entries))
                entries.append(("FromClass", [], DeviceAllocationConfiguration(opaque=class_config.opaque)))
        for place in places:
            entries[place][1].append(alternative.name)
    names = {name for alternative in chosen for name in (alternative.request, alternative.name)}
    entries += [
        ("FromClaim", list(config.requests), DeviceAllocationConfiguration(opaque=config.opaque))
        for config in claim.spec.devices.config
        if not config.requests or any(name in names for name in config.requests)
    ]
    return tuple(
        DeviceAllocationConfiguration(
            source=source, requests=() if _covers_all(requests, chosen) else tuple(requests), opaque=config.opaque
        )
        for source, requests, config in entries
    )


def _covers_all(requests: Sequence[str], chosen: Sequence[Alternative]) -> bool:
    """Whether a list of names covers every top-level request, by its name or by the alternative in use."""
    return all(alternative.request in requests or alternative.name in requests for alternative in chosen)


def node_selector(claim: ResourceClaim, devices: Sequence[DeviceInfo], node_name: str) -> NodeSelector | None:
    """Where an allocation of ``devices`` can be used, None for everywhere. Raises FatalError.

    The first device with a node name (or bindsToNode) pins it to this node; else the single terms of all node
    selectors are merged. A device's own selector with several terms cannot be merged: upstream ends the attempt, we
    pin the allocation to this node, which is always right.
    """
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    pinned = False
    for info in devices:
        spec = info.slice.slice.spec
        name, selector = spec.nodeName, spec.nodeSelector
        if spec.perDeviceNodeSelection:
            name, selector = info.device.nodeName, info.device.nodeSelector
        if name or info.device.bindsToNode:
            return _pinned(node_name)
        if selector is None:
            continue
        if len(selector.nodeSelectorTerms) != 1:
            if not spec.perDeviceNodeSelection:
                raise FatalError(
                    f"create NodeSelector for claim {claim.metadata.name}: unsupported ResourceSlice.NodeSelector "
                    f"with {len(selector.nodeSelectorTerms)} terms"
                )
            pinned = True
            continue
        term = selector.nodeSelectorTerms[0]
        _merge(expressions, term.matchExpressions)
        _merge(fields, term.matchFields)
    if pinned:
        return _pinned(node_name)
    if not expressions and not fields:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions), tuple(fields)),))


def _pinned(node_name: str) -> NodeSelector:
    term = NodeSelectorTerm(matchFields=(Requirement("metadata.name", "In", (node_name,)),))
    return NodeSelector((term,))


def _merge(known: list[Requirement], more: Sequence[Requirement]) -> None:
    for requirement in more:
        if not any(
            requirement.key == old.key
            and requirement.operator == old.operator
            and set(requirement.values) == set(old.values)
            for old in known
        ):
            known.append(requirement)

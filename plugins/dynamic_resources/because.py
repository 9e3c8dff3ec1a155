"""What besides free devices keeps a Pod's claims off a node: claims that have their devices elsewhere, and the like."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from plugins.dynamic_resources.attempt import ClaimsOfPod, Held
from scheduler.api.core import Node
from scheduler.api.selectors import NodeSelector
from scheduler.dra.suitability import NODE_FEATURE
from scheduler.framework.because import Because


def because(attempt: ClaimsOfPod, node: Node) -> Iterator[Because]:
    """One entry per claim that has its devices and cannot be used on the node, and per extended resource not served."""
    for held in attempt.held:
        if not held.available(node):
            yield _elsewhere(held, node)
    extended = attempt.extended
    if extended is None or extended.leftover is not None:
        return
    for name, served in extended.resources.items():
        if served is None and name not in node.status.allocatable:
            text = f"neither a device plugin of the node nor a DeviceClass serves {name}"
            yield Because(f"resource {name}", text, {"resource": name})


def _elsewhere(held: Held, node: Node) -> Because:
    key = held.claim.key
    about = f"claim {key}"
    if held.broken:
        text = f"{about} has devices whose driver reported a failure or did not get ready in time"
        return Because(about, text, {"claim": key, "binding": "failed"})
    if held.selector is not None and not held.available(_with_feature(node)):
        where = selector_words(held.selector)
        text = f"{about} has its devices, which can be used on {where} only"
        return Because(about, text, {"claim": key, "on": where})
    text = f"{about} has devices that need {NODE_FEATURE}, which the kubelet does not declare"
    return Because(about, text, {"claim": key, "feature": NODE_FEATURE})


def _with_feature(node: Node) -> Node:
    features = (*node.status.declaredFeatures, NODE_FEATURE)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, declaredFeatures=features))


def selector_words(selector: NodeSelector) -> str:
    """``node n1``, or ``nodes with zone In a``."""
    parts = []
    for term in selector.nodeSelectorTerms:
        for rule in (*term.matchFields, *term.matchExpressions):
            if (rule.key, rule.operator) == ("metadata.name", "In"):
                parts.append(f"node {', '.join(rule.values)}")
            else:
                parts.append(f"nodes with {rule.key} {rule.operator} {', '.join(rule.values)}".rstrip())
    return " and ".join(parts) or "no node"

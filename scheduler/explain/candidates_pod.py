"""Changes of the Pod itself, of nodes and of other Pods that are worth trying, from the causes that plugins told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from scheduler.api.core import Pod
from scheduler.api.podrequests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from scheduler.api.quantity import Quantity, QuantityError, parse_quantity
from scheduler.api.taints import Taint, Toleration
from scheduler.dra.amounts import amount_text, nano
from scheduler.explain import edits
from scheduler.explain.candidate import Candidate
from scheduler.explain.facts import Cause, Explanation, NodeGroup
from scheduler.state.cluster import ClusterState

_OWN = "node.kubernetes.io/"
"""Taints of this kind the cluster itself sets on nodes in trouble."""
_TERM = re.compile(r"^(affinity|anti-affinity) term (\d+) on ")
_NODE_TERM = re.compile(r"^affinity term (\d+): ")
_CONSTRAINT = re.compile(r"^constraint (\d+) on ")
_PODS_MAX, _NODES_MAX = 12, 3
_FIT = {"NodeResourcesFit", "NodePorts", "DynamicResources"}


def pod_changes(pod: Pod, found: Explanation) -> Iterator[Candidate]:
    """Changes of the waiting Pod, each cause once."""
    done: set[tuple[str, str]] = set()
    for plugin, cause in _causes(found):
        if (plugin, cause.about) in done:
            continue
        done.add((plugin, cause.about))
        if plugin == "TaintToleration":
            yield from _tolerate(pod, cause.facts.get("taint", ""))
        elif plugin == "NodeAffinity":
            yield from _node_rules(pod, cause)
        elif plugin == "NodeResourcesFit":
            yield from _ask_for_less(pod, cause)
        elif plugin == "PodTopologySpread":
            yield from _spread(pod, cause)
        elif plugin == "InterPodAffinity":
            yield from _terms(pod, cause)
    if "NodeAffinity" in found.culprit:
        for key, value in (pod.spec.nodeSelector or {}).items():
            yield _label(pod, key, value)


def _causes(found: Explanation) -> Iterator[tuple[str, Cause]]:
    return ((verdict.plugin, cause) for group in found.nodes for verdict in group.verdicts for cause in verdict.because)


def _pod(change: str, subject: str, text: str, changed: Pod) -> Candidate:
    return Candidate(change, subject, text, (change, subject), pod=changed)


def _tolerate(pod: Pod, shown: str) -> Iterator[Candidate]:
    if shown and not shown.startswith(_OWN):
        taint = parse_taint(shown)
        tolerant = edits.with_pod_toleration(pod, toleration(taint))
        yield _pod("tolerate node taint", shown, f"let the Pod tolerate node taint {shown}", tolerant)


def parse_taint(text: str) -> Taint:
    """``key=value:Effect``, as taints are shown."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key=key, value=value, effect=effect)


def toleration(taint: Taint) -> Toleration:
    """What tolerates just this taint."""
    return Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)


def _label(pod: Pod, key: str, value: str) -> Candidate:
    text = f"drop {key}={value} from the Pod's nodeSelector"
    return _pod("drop node label", key, text, edits.without_node_label(pod, key))


def _node_rules(pod: Pod, cause: Cause) -> Iterator[Candidate]:
    key = cause.facts.get("key", "")
    selector = pod.spec.nodeSelector or {}
    if cause.about.startswith("nodeSelector ") and key in selector:
        yield _label(pod, key, selector[key])
    term = _NODE_TERM.match(cause.about)
    if term is not None:
        text = f"drop what the Pod's required node affinity says of {key} (term {term[1]})"
        yield _pod("drop node rule", f"{term[1]} {key}", text, edits.without_node_rule(pod, int(term[1]), key))


def _ask_for_less(pod: Pod, cause: Cause) -> Iterator[Candidate]:
    """As much as the node has that is the nearest, from the container that asks for the most."""
    resource, short_by = cause.facts.get("resource", ""), cause.facts.get("short by", "")
    if resource == PODS or not short_by or pod.spec.resources is not None:
        return
    try:
        amounts = {c.name: nano(parse_quantity((c.resources.requests or {})[resource])) for c in pod.spec.containers
                   if resource in (c.resources.requests or {})}  # fmt: skip
        lacking = nano(parse_quantity(short_by))
    except QuantityError:
        return
    largest = max(amounts, key=lambda name: amounts[name], default="")
    rest = amounts.get(largest, 0) - lacking
    if rest > 0:
        amount = _amount(resource, rest)
        text = f"ask for {amount} {resource} instead of {_amount(resource, amounts[largest])} in container {largest}"
        changed = edits.with_container_request(pod, largest, resource, amount)
        yield _pod("ask for less", f"{largest} {resource} {amount}", text, changed)


def _amount(resource: str, amount_nano: int) -> str:
    if resource == CPU:
        return str(Quantity(amount_nano // 10**6, -3)) if amount_nano % 10**9 else str(amount_nano // 10**9)
    if resource in (MEMORY, EPHEMERAL_STORAGE):
        return amount_text(amount_nano)
    return str(amount_nano // 10**9)


def _spread(pod: Pod, cause: Cause) -> Iterator[Candidate]:
    match = _CONSTRAINT.match(cause.about)
    if match is None or not pod.spec.topologySpreadConstraints:
        return
    number, skew = int(match[1]), cause.facts.get("skew", "")
    if skew:
        text = f"allow maxSkew {skew} instead of {cause.facts.get('maxSkew')} in spread {cause.about}"
        yield _pod("allow skew", f"{number} {skew}", text, edits.with_max_skew(pod, number, int(skew)))
    else:
        text = f"drop spread {cause.about}"
        yield _pod("drop spread", str(number), text, edits.without_spread(pod, number))


def _terms(pod: Pod, cause: Cause) -> Iterator[Candidate]:
    match = _TERM.match(cause.about)
    if match is not None:
        kind = "podAffinity" if match[1] == "affinity" else "podAntiAffinity"
        text = f"drop required {cause.about} of the Pod"
        changed = edits.without_pod_term(pod, kind, int(match[2]))
        yield _pod("drop pod term", f"{kind} {match[2]}", text, changed)


def held_back_changes(pod: Pod, state: ClusterState) -> Iterator[Candidate]:
    """For a Pod that has not even entered the queue: gates that go, a claim whose name was misspelt."""
    if pod.spec.schedulingGates:
        names = ", ".join(gate.name for gate in pod.spec.schedulingGates)
        what = "gate" if len(pod.spec.schedulingGates) == 1 else "gates"
        yield _pod("remove gates", names, f"remove scheduling {what} {names}", edits.without_gates(pod))
    prefix = f"{pod.metadata.namespace}/"
    known = [key.removeprefix(prefix) for key in state.devices.claims if key.startswith(prefix)]
    for entry in pod.spec.resourceClaims:
        name = entry.resourceClaimName
        if name is None or name in known:
            continue
        for near in get_close_matches(name, known, 2):
            text = f"name claim {near} instead of {name}, which does not exist, in entry {entry.name}"
            changed = edits.with_claim_name(pod, entry.name, near)
            yield _pod("use claim", f"{entry.name} {near}", text, changed)


def opened_nodes(state: ClusterState, found: Explanation) -> Iterator[Candidate]:
    """Cordoned nodes that lack nothing else."""
    for group in found.nodes:
        if {verdict.plugin for verdict in group.verdicts} - {"DynamicResources"} != {"NodeUnschedulable"}:
            continue
        for name in group.nodes[:_NODES_MAX]:
            row = state.nodes.row_of(name)
            if row is not None:
                node = state.nodes.node(row)
                text = f"uncordon node {name}"
                yield Candidate("uncordon", name, text, ("uncordon", ""), replaced=((node, edits.uncordoned(node)),))


def ended_pods(pod: Pod, state: ClusterState, found: Explanation) -> Iterator[Candidate]:
    """Pods that plugins blame by name, then Pods on nodes that lack nothing but room."""
    seen: set[str] = {pod.uid}
    by_key = {other.key: other for other in state.pods.values()}
    for _, cause in _causes(found):
        named = cause.facts.get("pod") or cause.facts.get("pods") or ""
        other = by_key.get(named)  # several names are several changes
        if other is not None and other.uid not in seen and len(seen) <= _PODS_MAX:
            seen.add(other.uid)
            yield _ends(other, other.spec.nodeName, ("pod ends", other.key))
    for group in found.nodes:
        if _only_room(group):
            for name in group.nodes:
                row = state.nodes.row_of(name)
                for info in () if row is None else tuple(state.nodes.pods(row)):
                    if len(seen) > _PODS_MAX:
                        return
                    if info.uid not in seen and info.pod.spec.nodeName:
                        seen.add(info.uid)
                        yield _ends(info.pod, name, ("pod ends", name))


def _only_room(group: NodeGroup) -> bool:
    plugins = {verdict.plugin for verdict in group.verdicts}
    return "NodeResourcesFit" in plugins and not plugins - _FIT


def _ends(other: Pod, node: str, family: tuple[str, str]) -> Candidate:
    text = f"it fits when pod {other.key} on node {node} ends"
    return Candidate("pod ends", other.key, text, family, gone=(other.uid,))

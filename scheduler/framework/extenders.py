"""HTTP extenders: what they are asked and what their answers mean. Pure; ``edge.extenders`` does the talking.

Source: kube-scheduler 1.37, extender.go and schedule_one (spec 8, 1.6). The generators yield ``CallExtenders`` and go
on once its calls hold their answers. What an extender decides is never cached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scheduler.api.core import Pod
from scheduler.config.model import Extender
from scheduler.framework.dryrun import Candidate
from scheduler.framework.extender_calls import CallExtenders, ExtenderCall, ExtenderError, lowered
from scheduler.framework.plugin import Rows, Scores
from scheduler.framework.runner import ScoreTable, winner
from scheduler.framework.status import Code, Status
from scheduler.state.nodes import NodeTable

EXTENDER_NAME = "Extender"
"""Stands among a Pod's unschedulable plugins when an extender dropped a node; every event wakes such a Pod."""
SCORE_FACTOR = 10
"""Extenders score from 0 to 10, plugins from 0 to 100."""


def in_order(extenders: Sequence[Extender]) -> tuple[Extender, ...]:
    """The configured order, the ignorable ones last."""
    return tuple(sorted(extenders, key=lambda extender: extender.ignorable))


def interested(extender: Extender, pod: Pod) -> bool:
    """True without managed resources, or when a container names one of them in requests or limits."""
    if not extender.managed_resources:
        return True
    managed = {resource.name for resource in extender.managed_resources}
    for container in (*pod.spec.containers, *pod.spec.initContainers):
        named = (*(container.resources.requests or ()), *(container.resources.limits or ()))
        if not managed.isdisjoint(named):
            return True
    return False


@dataclass(slots=True)
class ExtenderFiltered:
    """``feasible`` rows that every extender left; ``rejected`` (status, node names); ``dropped``: some went."""

    feasible: Rows
    rejected: list[tuple[Status, tuple[str, ...]]] = field(default_factory=list)
    dropped: bool = False


def filter_by_extenders(
    extenders: Sequence[Extender], pod: Pod, nodes: NodeTable, rows: Rows
) -> Generator[CallExtenders, str | None, ExtenderFiltered]:
    """Ask the filter extenders one after the other about what is left; ExtenderError ends the attempt.

    Ends early when nodes came or went meanwhile: the caller repeats the attempt then, rows mean nothing any more.
    """
    result = ExtenderFiltered(rows)
    structure = nodes.structure_version
    for extender in extenders:
        if not len(result.feasible):
            break
        if not extender.filter_verb or not interested(extender, pod):
            continue
        call = _about_nodes(extender, extender.filter_verb, pod, nodes, result.feasible)
        yield CallExtenders((call,))
        if nodes.structure_version != structure:
            return result
        try:
            _take_filter_answer(call, nodes, result)
        except ExtenderError:
            if not extender.ignorable:
                raise
    return result


def _about_nodes(extender: Extender, verb: str, pod: Pod, nodes: NodeTable, rows: Rows) -> ExtenderCall:
    if extender.node_cache_capable:
        return ExtenderCall(extender, verb, pod, node_names=tuple(nodes.name_of(row) for row in rows.tolist()))
    return ExtenderCall(extender, verb, pod, nodes=tuple(nodes.node(row) for row in rows.tolist()))


def _take_filter_answer(call: ExtenderCall, nodes: NodeTable, result: ExtenderFiltered) -> None:
    answer = lowered(call.answer(), call)
    if answer.get("error"):
        raise ExtenderError(str(answer["error"]))
    offered = {nodes.name_of(row): row for row in result.feasible.tolist()}
    kept: list[int] = []
    for name in _left(answer, call):
        if name not in offered:
            raise ExtenderError(
                f'extender "{call.extender.url_prefix}" claims a filtered node "{name}" '
                "which is not found in the input node list"
            )
        kept.append(offered[name])
    unresolvable = _texts(answer.get("failedandunresolvablenodes"), call)
    failed = _texts(answer.get("failednodes"), call)
    for name, text in unresolvable.items():
        if name in offered:
            result.rejected.append((Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,)), (name,)))
    for name, text in failed.items():
        if name in offered and name not in unresolvable:
            result.rejected.append((Status(Code.UNSCHEDULABLE, (text,)), (name,)))
    result.dropped = result.dropped or len(kept) != len(offered)
    result.feasible = np.asarray(kept, np.int64)


def _left(answer: Mapping[str, Any], call: ExtenderCall) -> list[str]:
    """Node names the answer lets pass."""
    names = answer.get("nodenames")
    if call.extender.node_cache_capable and names is not None:
        return [str(name) for name in names] if isinstance(names, list) else _wrong(call, "NodeNames")
    listed = answer.get("nodes")
    if listed is None:
        return []
    items = lowered(listed, call).get("items") or []
    try:
        return [str(item["metadata"]["name"]) for item in items]
    except (KeyError, TypeError):
        return _wrong(call, "Nodes")


def score_by_extenders(
    extenders: Sequence[Extender], pod: Pod, nodes: NodeTable, table: ScoreTable, seed: str
) -> Generator[CallExtenders, str | None, int]:
    """Add what the extenders say to ``table.totals``; the position of the winner.

    Nodes that an interested extender scored carry a second key drawn from ``seed``; errors leave an extender out. The
    caller looks whether nodes came or went.
    """
    calls = []
    structure = nodes.structure_version
    scored = np.zeros(len(table.rows), np.bool_)
    for extender in extenders:
        if not interested(extender, pod):
            continue
        if extender.prioritize_verb:
            calls.append(_about_nodes(extender, extender.prioritize_verb, pod, nodes, table.rows))
        else:
            scored[:] = True
    if calls:
        yield CallExtenders(tuple(calls))
        if nodes.structure_version != structure:
            return 0
    place = {nodes.name_of(row): position for position, row in enumerate(table.rows.tolist())}
    added = np.zeros(len(table.rows), np.int64)
    for call in calls:
        for name, score in _scores(call):
            position = place.get(name)
            if position is not None:
                added[position] += score * call.extender.weight * SCORE_FACTOR
                scored[position] = True
    table.totals = table.totals + added
    if not scored.any():
        return winner(table.totals)
    return winner(_ranks(table.totals, scored, [nodes.name_of(row) for row in table.rows.tolist()], seed))


def _ranks(totals: Scores, scored: Any, names: Sequence[str], seed: str) -> Scores:
    """Among the best a number each, 0 without an extender's word; -1 for the others."""
    ranks = np.full(len(totals), -1, np.int64)
    for position in np.flatnonzero(totals == totals.max()).tolist():
        ranks[position] = _draw(f"{seed}/{names[position]}") if scored[position] else 0
    return ranks


def _draw(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def _scores(call: ExtenderCall) -> list[tuple[str, int]]:
    """(node, score) of an answer; none of one that failed or cannot be read."""
    try:
        answer = call.answer()
        found = []
        for entry in answer or ():
            one = lowered(entry, call)
            found.append((str(one.get("host", "")), int(one.get("score", 0))))
        return found
    except (ExtenderError, AttributeError, TypeError, ValueError):
        return []


def preempt_by_extenders(
    extenders: Sequence[Extender], pod: Pod, nodes: NodeTable, candidates: Sequence[Candidate]
) -> Generator[CallExtenders, str | None, list[Candidate]]:
    """Candidates and victims that the extenders leave, in the order of ``candidates``; ExtenderError ends it."""
    left = list(candidates)
    for extender in extenders:
        if not left:
            break
        if not extender.preempt_verb or not interested(extender, pod):
            continue
        victims = {candidate.node: candidate for candidate in left}
        call = ExtenderCall(extender, extender.preempt_verb, pod, victims=victims)
        yield CallExtenders((call,))
        try:
            left = _take_preempt_answer(call, nodes, left)
        except ExtenderError:
            if not extender.ignorable:
                raise
    return left


def _take_preempt_answer(call: ExtenderCall, nodes: NodeTable, asked: Sequence[Candidate]) -> list[Candidate]:
    answer = lowered(lowered(call.answer(), call).get("nodenametometavictims") or {}, call, names=False)
    found: dict[str, Candidate] = {}
    for node, victims in answer.items():
        row = nodes.row_of(node)
        present = {} if row is None else {info.uid: info.pod for info in nodes.pods(row)}
        one = lowered(victims or {}, call)
        pods = []
        for entry in one.get("pods") or ():
            uid = str(lowered(entry, call).get("uid", ""))
            if uid not in present:
                raise ExtenderError(
                    f"extender: {call.extender.url_prefix} claims to preempt pod (UID: {uid}) on node: {node}, "
                    "but the pod is not found on that node"
                )
            pods.append(present[uid])
        if pods:
            found[node] = Candidate(node, tuple(pods), int(one.get("numpdbviolations") or 0))
        elif not call.extender.ignorable:
            raise ExtenderError(f'expected at least one victim pod on node "{node}"')
    known = [found.pop(candidate.node) for candidate in asked if candidate.node in found]
    return known + list(found.values())


def binder_of(extenders: Sequence[Extender], pod: Pod) -> Extender | None:
    """The extender that binds ``pod``, None when the Bind plugins do."""
    return next((one for one in extenders if one.bind_verb and interested(one, pod)), None)


def _texts(value: Any, call: ExtenderCall) -> dict[str, str]:
    return {name: str(text) for name, text in lowered(value, call, names=False).items()}


def _wrong(call: ExtenderCall, what: str) -> list[str]:
    raise ExtenderError(f"the answer of {call.url} has no usable {what}")

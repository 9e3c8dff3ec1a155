"""Why a Pod waits, or why it is where it is: asked afresh on a state, every plugin about every node.

The decision itself is made by ``cycle.Attempt``, as in the service; the rest only asks more than an attempt asks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import msgspec
import numpy as np

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM
from scheduler.api.resource import ResourceClaim, ResourceClaimStatus
from scheduler.cycle.attempt import Attempt, Rotation, decide
from scheduler.cycle.decision import Decision, Placed
from scheduler.errors import PluginError, SchedulerError
from scheduler.explain.facts import Explanation, HeldClaim, NodeGroup, ScoreRow, Verdict
from scheduler.explain.holders import who_uses
from scheduler.explain.outcome import report_failure
from scheduler.explain.trees import claim_reports, fold_nodes, holders_in, notes
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Rows
from scheduler.framework.profile import Profile
from scheduler.framework.runner import Filtered, ScoreTable, call, run_filters, run_pre_filter
from scheduler.framework.status import Code, Status
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info
from scheduler.state.trial import Trial

DEVICES = "DynamicResources"
SCORES_SHOWN = 20
STEPS_MIN, STEPS_MAX, STEPS_IN_ALL = 1_000, 100_000, 400_000
"""Search steps per node and in all: four seconds at most, on up to 400 nodes. Every device is met early in a search."""


def explain_pod(profile: Profile, pod: Pod, state: ClusterState, now: float) -> Explanation:
    """Everything about one Pod but hints. ``state`` must be one's own: it is changed and restored for a bound Pod.

    ``now``: Unix seconds. Cost: each filter over all nodes, and one search per node whose devices do not serve.
    """
    if pod.terminal:
        return Explanation(pod.key, "ended", pod.spec.schedulerName, f"the Pod has ended: {pod.status.phase}")
    if pod.spec.nodeName:
        return _scheduled(profile, pod, state, now)
    held_back = held_back_by(profile, pod)
    if held_back is not None:
        found = Explanation(pod.key, "held back", pod.spec.schedulerName, held_back.message, held_back.plugin)
        found.held = held_claims(state, pod)
        found.caveats.extend(misspelt_claims(state, pod))
        return found
    decision = attempt(profile, pod, state, now)
    if isinstance(decision, Placed):
        found = Explanation(pod.key, "fits", pod.spec.schedulerName, node=decision.node)
        _note_scores(found, decision.scores, decision.node)
    else:
        report = report_failure(decision)
        found = Explanation(pod.key, "waiting", pod.spec.schedulerName, report.message)
        found.node = report.nominated_node or ""
    found.held = held_claims(state, pod)
    _note_nodes(found, profile, pod, state, now)
    return found


def held_back_by(profile: Profile, pod: Pod) -> Status | None:
    """The PreEnqueue plugin's refusal that keeps the Pod out of the queue, None when it may enter."""
    for plugin in profile.pre_enqueue:
        status: Status = call(plugin, "PreEnqueue", plugin.pre_enqueue, pod)
        if status.code is not Code.SUCCESS:
            return status.by(plugin.name)
    return None


def misspelt_claims(state: ClusterState, pod: Pod) -> Iterator[str]:
    """Names of claims that do not exist but look like one that does."""
    prefix = f"{pod.metadata.namespace}/"
    known = [key.removeprefix(prefix) for key in state.devices.claims if key.startswith(prefix)]
    for entry in pod.spec.resourceClaims:
        name = entry.resourceClaimName
        if name is not None and name not in known:
            elsewhere = sorted(key for key in state.devices.claims if key.endswith(f"/{name}"))
            for near in [prefix + one for one in get_close_matches(name, known, 1)] or elsewhere[:1]:
                yield f"there is no claim {prefix}{name}, but there is {near}"


def attempt(profile: Profile, pod: Pod, state: ClusterState, now: float) -> Decision:
    """One attempt in which whatever it asks of the API server succeeds; nothing is asked of one."""
    return decide(Attempt(profile, pod, state, now=now, rotation=Rotation()), None)


def _note_nodes(found: Explanation, profile: Profile, pod: Pod, state: ClusterState, now: float) -> None:
    cycle = Cycle(pod, pod_info(pod), state, now=now, profile_name=profile.name)
    cycle.profile = profile
    try:
        pre = run_pre_filter(profile, cycle)
    except PluginError as error:
        found.culprit, found.message = error.plugin, str(error)
        return
    if pre.rejection is not None:
        found.culprit = pre.rejection.plugin or ", ".join(pre.name_plugins)
        return
    order = state.nodes.order()
    verdicts: dict[str, list[Verdict]] = {}
    asked = order
    if pre.names is not None:
        inside = [state.nodes.name_of(row) in pre.names for row in order.tolist()]
        reason = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(pre.name_plugins))}]"
        for row in order[~np.asarray(inside, np.bool_)].tolist():
            verdict = Verdict(", ".join(pre.name_plugins), "UnschedulableAndUnresolvable", [reason])
            verdicts.setdefault(state.nodes.name_of(row), []).append(verdict)
        asked = order[np.asarray(inside, np.bool_)]
    for plugin in profile.filter:
        if plugin.name not in cycle.skip_filter and len(asked):
            _note_verdicts(verdicts, replace(profile, filter=(plugin,)), cycle, asked)
    found.nodes = fold_nodes(
        _node_group(state.nodes.name_of(row), verdicts.get(state.nodes.name_of(row), []), profile, cycle)
        for row in order.tolist()
    )
    found.users = who_uses(state, holders_in(found.nodes))


def _note_verdicts(verdicts: dict[str, list[Verdict]], alone: Profile, cycle: Cycle, rows: Rows) -> None:
    """One plugin about every row; an error about one row is that row's verdict."""
    nodes, plugin = cycle.state.nodes, alone.filter[0].name
    try:
        filtered = _ended(run_filters(alone, cycle, nodes, rows))
    except PluginError as error:
        if len(rows) == 1:
            verdicts.setdefault(nodes.name_of(int(rows[0])), []).append(Verdict(plugin, "Error", [str(error)]))
            return
        for row in rows:
            _note_verdicts(verdicts, alone, cycle, np.asarray([row], np.int64))
        return
    for status, refused in filtered.rejected:
        for row in refused.tolist():
            verdict = Verdict(plugin, status.code.label, list(status.reasons))
            verdicts.setdefault(nodes.name_of(row), []).append(verdict)


def _ended(steps: Generator[None, None, Filtered]) -> Filtered:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            filtered: Filtered = stop.value
            return filtered


def _node_group(name: str, verdicts: list[Verdict], profile: Profile, cycle: Cycle) -> NodeGroup:
    state = cycle.state
    row = state.nodes.row_of(name)
    assert row is not None
    node = state.nodes.node(row)
    view = state.devices.slices.view(node)
    group = NodeGroup([name], not verdicts, len(view.devices), verdicts)
    plugin: Any = profile.plugins.get(DEVICES)
    if not hasattr(plugin, "device_reasons") or not any(verdict.plugin == DEVICES for verdict in verdicts):
        return group
    steps = min(STEPS_MAX, max(STEPS_MIN, STEPS_IN_ALL // len(state.nodes.order())))
    rejections = call(plugin, "device_reasons", plugin.device_reasons, cycle, node, steps)
    mine = state.devices.claims_of(cycle.pod)
    claims = {claim.key: claim for claim in mine if claim.status.allocation is None}
    group.claims = claim_reports(rejections, claims, view)
    group.notes = notes(rejections)
    if claims and not view.devices and not rejections:
        group.notes.append("the pools of this node are empty")
    return group


def held_claims(state: ClusterState, pod: Pod) -> list[HeldClaim]:
    """The Pod's claims that have devices already."""
    return [_held(state, claim) for claim in state.devices.claims_of(pod) if claim.status.allocation is not None]


def _held(state: ClusterState, claim: ResourceClaim) -> HeldClaim:
    allocation = claim.status.allocation
    assert allocation is not None
    devices = [f"{r.request}: {r.driver}/{r.pool}/{r.device}" for r in allocation.devices.results]
    return HeldClaim(
        claim.key, devices, usable_on(claim), allocation.allocationTimestamp or "", [c.name for c in claim.consumers]
    )


def usable_on(claim: ResourceClaim) -> str:
    """Where an allocated claim can be used: ``node n``, ``any node``, or the selector's terms."""
    allocation = claim.status.allocation
    if allocation is None or allocation.nodeSelector is None:
        return "any node"
    parts = []
    for term in allocation.nodeSelector.nodeSelectorTerms:
        for rule in (*term.matchFields, *term.matchExpressions):
            if (rule.key, rule.operator) == ("metadata.name", "In"):
                parts.append(f"node {', '.join(rule.values)}")
            else:
                parts.append(f"nodes with {rule.key} {rule.operator} {', '.join(rule.values)}".rstrip())
    return " and ".join(parts) or "no node"


def _scheduled(profile: Profile, pod: Pod, state: ClusterState, now: float) -> Explanation:
    """A bound Pod: its devices, and how nodes would score if it were to be placed again now."""
    found = Explanation(pod.key, "scheduled", pod.spec.schedulerName, node=pod.spec.nodeName)
    found.held = held_claims(state, pod)
    unbound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, nodeName=""))
    with Trial(state) as trial:
        trial.put(POD, state.pods.get(pod.uid), unbound)
        for claim in state.devices.claims_of(pod):
            others = [consumer for consumer in claim.consumers if consumer.uid != pod.uid]
            if claim.status.allocation is not None and not others:
                freed = msgspec.structs.replace(claim, status=ResourceClaimStatus())
                trial.put(RESOURCE_CLAIM, claim, freed)
        try:
            decision = attempt(profile, unbound, state, now)
        except SchedulerError as error:
            found.caveats.append(f"it cannot be said how nodes would score now: {error}")
            return found
        if isinstance(decision, Placed):
            _note_scores(found, decision.scores, pod.spec.nodeName)
            found.message = f"placed again now it would go to {decision.node}"
        else:
            found.message = f"placed again now it would wait: {report_failure(decision).message}"
    return found


def _note_scores(found: Explanation, table: ScoreTable | None, node: str) -> None:
    if table is None:
        found.caveats.append("only one node fits, so none was scored")
        return
    found.weights = dict(table.weights)
    names, totals = table.nodes, table.totals.tolist()
    columns: dict[str, list[Any]] = {plugin: scores.tolist() for plugin, scores in table.normalized.items()}
    places = sorted(range(len(names)), key=lambda place: (-totals[place], names[place]))
    shown = places[:SCORES_SHOWN] + [place for place in places[SCORES_SHOWN:] if names[place] == node]
    found.scores = [
        ScoreRow(names[place], totals[place], {plugin: values[place] for plugin, values in columns.items()})
        for place in shown
    ]
    if len(places) > len(shown):
        found.caveats.append(f"the score table shows {len(shown)} of {len(places)} nodes")

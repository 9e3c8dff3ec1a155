"""Why each node refuses a Pod: every plugin about every node, and the devices of those whose devices do not serve."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from scheduler.api.core import Node, Pod
from scheduler.dra.pools import NodeView
from scheduler.dra.rejections import Reason
from scheduler.errors import PluginError
from scheduler.explain.attempts import STEP
from scheduler.explain.facts import Cause, Explanation, NodeGroup, Verdict
from scheduler.explain.holders import who_uses
from scheduler.explain.kept import DeviceReport, KeptReports
from scheduler.explain.trees import (
    NodeFold,
    add_counter_holders,
    claim_reports,
    holders_in,
    limits,
    notes,
    together,
    troubles,
)
from scheduler.framework.because import Because
from scheduler.framework.cycle import Budget, Cycle
from scheduler.framework.nominated import filter_rows
from scheduler.framework.plugin import Rows
from scheduler.framework.points import CheckAdapter
from scheduler.framework.profile import Profile
from scheduler.framework.runner import Filtered, run_filters, run_pre_filter
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info

DEVICES = "DynamicResources"
NODES_PER_STEP = 25
STEPS_MAX, STEPS_IN_ALL, STEPS_PER_DEVICE = 20_000, 60_000, 10
"""Search steps per node and in all, but some for every device: a second or two. All devices are met early."""

Verdicts = dict[str, list[Verdict]]


def note_nodes(
    found: Explanation, profile: Profile, pod: Pod, state: ClusterState, now: float, kept: KeptReports | None = None
) -> Generator[None, None, None]:
    """Fill in ``nodes``, ``users`` and ``culprit`` of an explanation, in slices. ``state`` may not change meanwhile.

    ``kept``: of explanations on the same state before, and for those to come.
    """
    cycle = Cycle(pod, pod_info(pod), state, now=now, profile_name=profile.name, budget=Budget(STEP))
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
    verdicts: Verdicts = {}
    yield
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
            yield from _note_verdicts(verdicts, replace(profile, filter=(plugin,)), cycle, asked)
            yield
    fold = NodeFold()
    for number, row in enumerate(order.tolist(), 1):
        name = state.nodes.name_of(row)
        fold.add((yield from _node_group(name, verdicts.pop(name, []), profile, cycle, kept)))
        if number % NODES_PER_STEP == 0:
            yield
    found.nodes = fold.groups()
    yield
    found.summary = list(together(found.nodes, state.devices.claims_of(pod)))
    found.users = who_uses(state, holders_in(found.nodes))


def _note_verdicts(verdicts: Verdicts, alone: Profile, cycle: Cycle, rows: Rows) -> Generator[None, None, None]:
    """One plugin about every row; an error about one row is that row's verdict."""
    nodes, plugin = cycle.state.nodes, alone.filter[0].name
    try:
        filtered = yield from _filtered(alone, cycle, rows)
    except PluginError as error:
        if len(rows) == 1:
            verdicts.setdefault(nodes.name_of(int(rows[0])), []).append(Verdict(plugin, "Error", [str(error)]))
            return
        for row in rows:
            yield from _note_verdicts(verdicts, alone, cycle, np.asarray([row], np.int64))
        return
    asked = alone.filter[0]
    explaining = getattr(asked.plugin if isinstance(asked, CheckAdapter) else asked, "because", None)
    for status, refused in filtered.rejected:
        for number, row in enumerate(refused.tolist(), 1):
            verdict = Verdict(plugin, status.code.label, list(status.reasons))
            if explaining is not None:
                verdict.because = _causes(explaining, cycle, row)
                if number % NODES_PER_STEP == 0:
                    yield
            verdicts.setdefault(nodes.name_of(row), []).append(verdict)
    if cycle.state.nominator and len(filtered.feasible):
        crowded = yield from _ran(filter_rows(alone, cycle, nodes, filtered.feasible), cycle)
        for status, refused in crowded.rejected:
            for row in refused.tolist():
                verdict = Verdict(plugin, status.code.label, list(status.reasons), [_kept_for(cycle, row)])
                verdicts.setdefault(nodes.name_of(row), []).append(verdict)


def _kept_for(cycle: Cycle, row: int) -> Cause:
    """The node fits but for Pods of at least the same priority that are nominated there."""
    name = cycle.state.nodes.name_of(row)
    others = [
        info.pod.key
        for info in cycle.state.nominator.on(name)
        if info.uid != cycle.pod.uid and info.pod.priority >= cycle.pod.priority
    ]
    text = (
        f"it would do, but its room is kept for the nominated pod{'' if len(others) == 1 else 's'} {', '.join(others)}"
    )
    return Cause("nominated", text, {"nominated": ", ".join(others)}, name)


def _causes(explaining: Callable[..., Iterable[Because]], cycle: Cycle, row: int) -> list[Cause]:
    """What the plugin says; a plugin that breaks here says nothing more than its verdict."""
    name = cycle.state.nodes.name_of(row)
    try:
        found = [cause_of(one, name) for one in explaining(cycle, cycle.state.nodes, row)]
    except Exception as error:  # foreign code, and only asked to explain
        return [Cause("", f"it cannot say more: {type(error).__name__}: {error}", node=name)]
    return found


def cause_of(because: Because, node: str = "") -> Cause:
    """As a fact of an explanation."""
    return Cause(because.about, because.text, dict(because.facts), node, 1, because.short)


def _filtered(alone: Profile, cycle: Cycle, rows: Rows) -> Generator[None, None, Filtered]:
    return (yield from _ran(run_filters(alone, cycle, cycle.state.nodes, rows), cycle))


def _ran(steps: Generator[None, None, Filtered], cycle: Cycle) -> Generator[None, None, Filtered]:
    while True:
        cycle.budget.left = STEP
        try:
            next(steps)
        except StopIteration as stop:
            filtered: Filtered = stop.value
            return filtered
        yield


def _node_group(
    name: str, verdicts: list[Verdict], profile: Profile, cycle: Cycle, kept: KeptReports | None
) -> Generator[None, None, NodeGroup]:
    state = cycle.state
    row = state.nodes.row_of(name)
    assert row is not None
    node = state.nodes.node(row)
    view = state.devices.slices.view(node)
    group = NodeGroup([name], not verdicts, len(view.devices), verdicts)
    plugin: Any = profile.plugins.get(DEVICES)
    if not hasattr(plugin, "device_search_steps") or not any(verdict.plugin == DEVICES for verdict in verdicts):
        return group
    usage = state.devices.ledger.usage(view)
    question = None
    if kept is not None and hasattr(plugin, "device_question"):
        question = profile.name, plugin.device_question(cycle, node)
    report = None if kept is None else kept.get(question, view, usage)
    if report is None:
        yield
        try:
            report = yield from _device_report(plugin, cycle, node, view)
        except Exception as error:  # foreign code may stand in for the plugin: the rest is told all the same
            group.notes.append(f"why its devices do not serve cannot be told: {type(error).__name__}: {error}")
            return group
        if kept is not None and question is not None and not _cut_short(report):
            kept.put(question, view, usage, report)
    group.claims, group.notes = report.claims, list(report.notes)
    group.troubles = [*report.troubles, *limits(verdicts)]
    return group


def _device_report(plugin: Any, cycle: Cycle, node: Node, view: NodeView) -> Generator[None, None, DeviceReport]:
    state = cycle.state
    few = STEPS_PER_DEVICE * (len(view.devices) + 10)
    steps = min(STEPS_MAX, max(few, STEPS_IN_ALL // len(state.nodes.order())))
    search = yield from plugin.device_search_steps(cycle, node, steps)
    rejections = search.rejections
    claims = {claim.key: claim for claim in state.devices.claims_of(cycle.pod) if claim.status.allocation is None}
    report = DeviceReport(claim_reports(rejections, claims, view), notes(rejections), list(troubles(rejections)))
    add_counter_holders(report.claims, view, state.devices.ledger.holders)
    if claims and not view.devices and not rejections:
        report.notes.append("the pools of this node are empty")
    return report


def _cut_short(report: DeviceReport) -> bool:
    """How far a search gets depends on how many nodes there are."""
    return any(trouble.reason == Reason.SEARCH_BUDGET.value for trouble in report.troubles)

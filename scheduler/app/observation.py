"""Everything one attempt would say, as data: what ``conformity schedule`` answers.

More is asked than an attempt asks: each filter about every node, Reserve on every feasible node, every candidate of a
preemption. The decision itself is made by ``cycle.Attempt``, as in the service.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from scheduler.app.preempting import preemption_answer
from scheduler.app.whole_case import WholeCase
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Need, Placed, Rejected, Running
from scheduler.errors import PluginError
from scheduler.explain.outcome import report_failure
from scheduler.framework.cycle import Cycle
from scheduler.framework.instructions import Instruction
from scheduler.framework.nominated import filter_rows
from scheduler.framework.plugin import PostFilterResult, Rows
from scheduler.framework.profile import Profile
from scheduler.framework.runner import Filtered, PreFiltered, run_filters, run_pre_filter, run_reserve, run_scores
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.state.podinfo import pod_info

Json = dict[str, Any]
SHARE_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


def observe(case: WholeCase) -> Json:
    """The whole answer of a case but its name. Keys: docs/conformity.md. Cost: several attempts."""
    answer: Json = {"preenqueue": status_answer(_pre_enqueue(case))}
    cycle = new_cycle(case)
    try:
        pre = run_pre_filter(case.profile, cycle)
    except PluginError as problem:
        answer["prefilter"] = {**_error_answer(problem), "nodes": None}
    else:
        # A plugin's refusal leaves no node set; sets without a common node leave the empty one.
        limited = pre.names is not None and (pre.rejection is None or not pre.names)
        answer["prefilter"] = {
            **status_answer(pre.rejection or SUCCESS),
            "nodes": sorted(pre.names or ()) if limited else None,
            "skipped": sorted(cycle.skip_filter),
        }
        if pre.rejection is None:
            _observe_nodes(case, cycle, pre, answer)
    return answer | _decided(case)


def new_cycle(case: WholeCase) -> Cycle:
    """An attempt for the Pod of the case."""
    cycle = Cycle(case.pod, pod_info(case.pod), case.state, now=case.now, profile_name=case.profile.name)
    cycle.profile = case.profile
    return cycle


def status_answer(status: Status) -> Json:
    """A status as the format has it; reasons sorted."""
    answer: Json = {"code": status.code.label}
    if status.plugin and status.code is not Code.SUCCESS:
        answer["plugin"] = status.plugin
    if status.reasons:
        answer["reasons"] = sorted(status.reasons)
    return answer


def _error_answer(problem: PluginError) -> Json:
    return {"code": Code.ERROR.label, "plugin": problem.plugin, "reasons": [str(problem)]}


def _pre_enqueue(case: WholeCase) -> Status:
    for plugin in case.profile.pre_enqueue:
        status: Status = plugin.pre_enqueue(case.pod)
        if status.code is not Code.SUCCESS:
            return status.by(plugin.name)
    return SUCCESS


def _observe_nodes(case: WholeCase, cycle: Cycle, pre: PreFiltered, answer: Json) -> None:
    """nodes, failures, scores and reservations."""
    nodes = case.state.nodes
    order = nodes.order()
    names = " ".join(sorted(pre.name_plugins))
    reason = f"node(s) didn't satisfy plugin(s) [{names}]"
    outside = {"code": Code.UNSCHEDULABLE_AND_UNRESOLVABLE.label, "reasons": [reason]}
    asked = [row for row in order.tolist() if pre.names is None or nodes.name_of(row) in pre.names]
    verdicts = _verdicts(case, cycle, np.asarray(asked, np.int64))
    answer["nodes"] = {name: verdicts.get(name, outside) for name in map(nodes.name_of, order.tolist())}
    answer["failures"] = _failures(case, order)
    feasible = [row for row in asked if verdicts[nodes.name_of(row)]["code"] == Code.SUCCESS.label]
    rows = np.asarray(feasible, np.int64)
    if feasible:
        _score(case, cycle, rows, answer)
    answer["allocations"], answer["reserve"] = _reserve(case, cycle, rows)


def _verdicts(case: WholeCase, cycle: Cycle, rows: Rows) -> dict[str, Json]:
    """Node -> the first rejection or Success. An error ends an attempt; here the other nodes are asked all the same."""
    nodes = case.state.nodes
    found = {nodes.name_of(row): status_answer(SUCCESS) for row in rows.tolist()}
    try:
        filtered = _ended(filter_rows(case.profile, cycle, nodes, rows))
    except PluginError:
        for row in rows.tolist():
            found[nodes.name_of(row)] = _row_answer(filter_rows(case.profile, cycle, nodes, _one(row)))
        feasible = [row for row in rows.tolist() if found[nodes.name_of(row)]["code"] == Code.SUCCESS.label]
        # Once more together: what plugins keep for scoring is about all rows that they were asked about last.
        _ended(filter_rows(case.profile, cycle, nodes, np.asarray(feasible, np.int64)))
        return found
    for status, rejected in filtered.rejected:
        found.update({nodes.name_of(row): status_answer(status) for row in rejected.tolist()})
    return found


def _one(row: int) -> Rows:
    return np.asarray([row], np.int64)


def _row_answer(steps: Generator[None, None, Filtered]) -> Json:
    """What the filters say about the one row that ``steps`` is about."""
    try:
        filtered = _ended(steps)
    except PluginError as problem:
        return _error_answer(problem)
    return status_answer(filtered.rejected[0][0] if filtered.rejected else SUCCESS)


def _ended(steps: Generator[None, None, Filtered]) -> Filtered:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            filtered: Filtered = stop.value
            return filtered


def _failures(case: WholeCase, order: Rows) -> dict[str, dict[str, Json]]:
    """Each filter on its own on every node, nominated Pods left out."""
    cycle = new_cycle(case)
    run_pre_filter(case.profile, cycle)
    found: dict[str, dict[str, Json]] = {}
    for plugin in case.profile.filter:
        alone = replace(case.profile, filter=(plugin,))
        for row in order.tolist():
            one = _row_answer(run_filters(alone, cycle, case.state.nodes, _one(row)))
            if one["code"] != Code.SUCCESS.label:
                found.setdefault(case.state.nodes.name_of(row), {})[plugin.name] = one
    return found


def _score(case: WholeCase, cycle: Cycle, rows: Rows, answer: Json) -> None:
    try:
        table = run_scores(case.profile, cycle, case.state.nodes, rows)
    except PluginError as problem:
        answer["score_error"] = str(problem)
        return
    columns = {name: scores.tolist() for name, scores in table.normalized.items()}
    columns["total"] = table.totals.tolist()
    raw = {name: scores.tolist() for name, scores in table.raw.items()}
    answer["scores"] = {name: _line(columns, place) for place, name in enumerate(table.nodes)}
    answer["raw_scores"] = {name: _line(raw, place) for place, name in enumerate(table.nodes)}
    answer["weights"] = {entry.name: entry.weight for entry in case.profile.score}
    highest = table.totals.max()
    answer["best"] = sorted(name for name, total in zip(table.nodes, table.totals, strict=True) if total == highest)


def _line(columns: Mapping[str, Sequence[int]], place: int) -> dict[str, int]:
    return {name: values[place] for name, values in columns.items()}


def _reserve(case: WholeCase, cycle: Cycle, rows: Rows) -> tuple[Json, Json]:
    """Per node what Reserve would promise to stored claims, and where it fails; each is taken back at once."""
    promised: dict[str, list[Json]] = {}
    failed: dict[str, Json] = {}
    devices = case.state.devices
    for row in rows.tolist():
        name = case.state.nodes.name_of(row)
        try:
            status = run_reserve(case.profile, cycle, name)
            if status is not None:
                failed[name] = status_answer(status)
        except PluginError as problem:
            failed[name] = _error_answer(problem)
        if name not in failed:
            for claim in sorted(devices.claims.values(), key=lambda claim: claim.key):
                allocation = devices.ledger.in_flight(claim.uid)
                if allocation is not None:
                    entry = {
                        "claim": claim.key,
                        "allocation": _without_ids(msgspec.json.decode(msgspec.json.encode(allocation))),
                    }
                    promised.setdefault(name, []).append(entry)
        for plugin in reversed(case.profile.reserve):
            if hasattr(plugin, "unreserve"):
                plugin.unreserve(cycle, name)
    return promised, failed


def _without_ids(allocation: Json) -> Json:
    """Share ids are random and the time is now: neither is compared."""
    allocation.pop("allocationTimestamp", None)
    for result in (allocation.get("devices") or {}).get("results", ()):
        if result.get("shareID"):
            result["shareID"] = SHARE_ID
    return allocation


@dataclass(slots=True)
class _Overheard:
    """A PostFilter plugin whose result is remembered."""

    plugin: Any
    results: list[PostFilterResult] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.plugin.name)

    def post_filter(
        self, cycle: Cycle, statuses: Mapping[str, Status]
    ) -> Generator[Instruction | None, str | None, PostFilterResult]:
        result: PostFilterResult = yield from self.plugin.post_filter(cycle, statuses)
        self.results.append(result)
        return result


def _decided(case: WholeCase) -> Json:
    """The attempt's outcome; whatever it asks of the API server succeeds."""
    overheard = tuple(_Overheard(plugin) for plugin in case.profile.post_filter)
    profile = replace(case.profile, post_filter=overheard)
    decision, asked = run_attempt(case, profile)
    if isinstance(decision, Placed):
        return {"selected": decision.node}
    report = report_failure(decision)
    answer: Json = {"reason": report.reason, "message": report.message}
    if isinstance(decision, Rejected) and not decision.no_nodes:
        answer["unschedulable_plugins"] = sorted(report.unschedulable_plugins)
        results = [(one.name, result) for one in overheard for result in one.results]
        if overheard:
            answer["preemption"] = preemption_answer(case, new_cycle(case), decision, results, asked)
    return answer


def run_attempt(case: WholeCase, profile: Profile) -> tuple[Decision, list[Instruction]]:
    """The decision, and what the edge was asked to do on the way (all of it succeeds)."""
    attempt = Attempt(profile, case.pod, case.state, now=case.now, rotation=Rotation())
    asked: list[Instruction] = []
    while True:
        outcome = attempt.step(1 << 62)
        if isinstance(outcome, Need):
            asked.append(outcome.instruction)
            attempt.answer(None)
        elif not isinstance(outcome, Running):
            return outcome, asked

"""One attempt for one Pod: a state machine without I/O, stepped by a budget of work, never of time.

    attempt = Attempt(profile, pod, state, now=..., rotation=...)
    while isinstance(outcome := attempt.step(budget), Running): ...

Order of calls: kube-scheduler 1.37, schedule_one (spec 1.2 to 1.7).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from scheduler.api.core import Pod
from scheduler.cycle.decision import Decision, Failed, Need, Placed, Rejected, Running
from scheduler.errors import PluginError, SchedulerError
from scheduler.framework.cycle import Budget, Cycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.extender_calls import CallExtenders, ExtenderError
from scheduler.framework.extenders import EXTENDER_NAME, filter_by_extenders, score_by_extenders
from scheduler.framework.nominated import filter_rows
from scheduler.framework.plugin import PostFilterResult, Rows
from scheduler.framework.profile import Profile
from scheduler.framework.runner import (
    Filtered,
    PreFiltered,
    ScoreTable,
    answer_of,
    call,
    run_pre_filter,
    run_scores,
    winner,
)
from scheduler.framework.status import Code, Status, unresolvable
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info

INVALIDATIONS_MAX = 3
"""After so many restarts because the state moved under a suspended search, the attempt runs without yielding."""

T = TypeVar("T")
Steps = Generator[Running | Need, str | None, Decision]


@dataclass(slots=True)
class Rotation:
    """Where the next search starts in the node list; only moves when nodes are sampled (spec 1.4)."""

    start: int = 0


class Attempt:
    """Decides one Pod on one state.

    Between steps the state may change (other Pods' events and commits). A decision made across such a change is
    checked again on the chosen node before it is given out, and made anew when it no longer holds.
    """

    def __init__(self, profile: Profile, pod: Pod, state: ClusterState, *, now: float, rotation: Rotation) -> None:
        self.profile, self.pod, self.state, self.now, self.rotation = profile, pod, state, now, rotation
        self.invalidations = 0
        self._budget = Budget(0)
        self._timer = profile.timings.sample()
        self._suspended = False
        self._answer: str | None = None
        self._steps = self._run()

    def step(self, budget: int) -> Running | Need | Decision:
        """Go on for about ``budget`` units of work (rows and search steps)."""
        self._budget.left = budget
        answer, self._answer = self._answer, None
        try:
            return self._steps.send(answer) if self._suspended else next(self._steps)
        except StopIteration as stop:
            decision: Decision = stop.value
            return decision
        finally:
            self._suspended = True

    def answer(self, failure: str | None) -> None:
        """The edge's answer to a Need: None when it was done, else why not."""
        self._answer = failure

    def _run(self) -> Steps:
        try:
            while True:
                decision = yield from self._repeatable_once()
                if decision is not None:
                    return decision
                self.invalidations += 1
        except PluginError as error:
            return Failed(self.pod, self.profile, str(error), error.plugin)
        except SchedulerError as error:
            return Failed(self.pod, self.profile, str(error))

    def _repeatable_once(self) -> Generator[Running | Need, str | None, Decision | None]:
        """``_once``, where an error after nodes came or went counts as moved too: a row was asked for that is gone."""
        structure = self.state.nodes.structure_version
        try:
            return (yield from self._once())
        except SchedulerError:
            if self.invalidations >= INVALIDATIONS_MAX or self.state.nodes.structure_version == structure:
                raise
            return None

    def _cycle(self) -> Cycle:
        exclusive = self.invalidations >= INVALIDATIONS_MAX
        cycle = Cycle(
            self.pod,
            pod_info(self.pod),
            self.state,
            now=self.now,
            profile_name=self.profile.name,
            budget=Budget(1 << 62) if exclusive else self._budget,
        )
        cycle.profile, cycle.timer = self.profile, self._timer
        return cycle

    def _once(self) -> Generator[Running | Need, str | None, Decision | None]:
        """One pass; None when the state moved so that the pass must be repeated."""
        nodes, cycle, version = self.state.nodes, self._cycle(), self.state.version
        structure = nodes.structure_version
        order = nodes.order()
        if not len(order):
            return Rejected(self.pod, self.profile, Diagnosis(0), nominated_node="", no_nodes=True)
        diagnosis = Diagnosis(len(order))
        pre = run_pre_filter(self.profile, cycle)
        if pre.rejection is not None:
            return (yield from self._reject_early(cycle, diagnosis, pre))
        rows = self._candidates(order, pre, diagnosis)
        filtered, nominated = yield from self._filter(cycle, rows, pre, diagnosis)
        if nodes.structure_version != structure:
            return None  # rows may stand for other nodes by now
        feasible = filtered.feasible
        if not len(feasible):
            self._note_rejections(diagnosis, filtered)
            return (yield from self._post_filter(cycle, diagnosis))
        scores = None
        chosen = int(feasible[0])
        if len(feasible) > 1 and not nominated:
            scores = run_scores(self.profile, cycle, nodes, feasible)
            position = yield from self._winner(scores)
            if nodes.structure_version != structure:
                return None
            chosen = int(feasible[position])
        node = nodes.node(chosen)
        if self.state.version != version:
            fresh = self._recheck(node.name, node.metadata.uid)
            if fresh is None:
                return None
            cycle = fresh
        return Placed(self.pod, self.profile, cycle, node.name, node.metadata.uid, scores, len(rows), len(feasible))

    def _candidates(self, order: Rows, pre: PreFiltered, diagnosis: Diagnosis) -> Rows:
        """Rows to look at: all, or those of the PreFilter's node set (all others count as rejected by it)."""
        if pre.names is None:
            return order
        found = (self.state.nodes.row_of(name) for name in pre.names)
        wanted = np.asarray([row for row in found if row is not None], dtype=np.int64)
        diagnosis.absent = _not_in_set(pre.name_plugins)
        diagnosis.unschedulable_plugins.update(pre.name_plugins)
        return order[np.isin(order, wanted)]

    def _filter(
        self, cycle: Cycle, rows: Rows, pre: PreFiltered, diagnosis: Diagnosis
    ) -> Generator[Running | Need, str | None, tuple[Filtered, bool]]:
        """Filter ``rows``, the nominated node before all others (spec 1.5)."""
        # Our own nomination may not have come back by the watch yet.
        node = self.state.nominator.node_of(self.pod.uid) or self.pod.status.nominatedNodeName
        nominated = self.state.nodes.row_of(node)
        outside: list[tuple[Status, Rows]] = []
        if nominated is not None:
            filtered = yield from self._filter_nominated(cycle, nominated)
            if len(filtered.feasible):
                return filtered, True
            if pre.names is not None:
                # kube-scheduler's text names whoever has refused something by then.
                plugins = (status.plugin for status, _ in filtered.rejected)
                diagnosis.absent = _not_in_set({*pre.name_plugins, *plugins})
            if nominated not in rows:
                # Tried although a PreFilter leaves it out: it is told with a reason of its own.
                outside = filtered.rejected
        filtered = yield from self._filter_others(cycle, rows)
        yield from self._extenders_filter(filtered, diagnosis)
        filtered.rejected.extend(outside)
        return filtered, False

    def _filter_nominated(self, cycle: Cycle, row: int) -> Generator[Running | Need, str | None, Filtered]:
        """That node alone. An error there ends nothing: the full search follows, and tells the reasons."""
        try:
            filtered = yield from self._filter_rows(cycle, np.asarray([row], dtype=np.int64))
            yield from self._extenders_filter(filtered, Diagnosis(0))
            return filtered
        except (PluginError, ExtenderError):
            return Filtered(np.zeros(0, dtype=np.int64))

    def _extenders_filter(self, filtered: Filtered, diagnosis: Diagnosis) -> Generator[Need, str | None, None]:
        """Let the extenders look at what the plugins left; what they refuse goes into ``diagnosis``."""
        extenders = self.profile.extenders
        if not extenders or not len(filtered.feasible):
            return
        steps = filter_by_extenders(extenders, self.pod, self.state.nodes, filtered.feasible)
        answer = yield from _asking(steps)
        filtered.feasible = answer.feasible
        for status, names in answer.rejected:
            diagnosis.add(status, names)
        if answer.dropped:
            diagnosis.unschedulable_plugins.add(EXTENDER_NAME)

    def _winner(self, scores: ScoreTable) -> Generator[Need, str | None, int]:
        """Position of the node that wins, after what extenders say."""
        if not self.profile.extenders:
            return winner(scores.totals)
        if not self.profile.score:
            scores.totals = np.zeros_like(scores.totals)  # the 1 for each is for when nobody scores
        seed = f"{self.pod.uid}/{self.now}"
        steps = score_by_extenders(self.profile.extenders, self.pod, self.state.nodes, scores, seed)
        return (yield from _asking(steps))

    def _filter_others(self, cycle: Cycle, rows: Rows) -> Generator[Running, str | None, Filtered]:
        """All ``rows``, or a rotating sample of them (spec 1.4)."""
        wanted = nodes_to_find(len(rows), self.profile.percentage_of_nodes_to_score)
        if wanted >= len(rows):
            return (yield from self._filter_rows(cycle, rows))
        start = self.rotation.start % len(rows)
        rotated = np.concatenate((rows[start:], rows[:start]))
        filtered = yield from self._filter_rows(cycle, rotated)
        sampled, processed = take_sample(filtered, rotated, wanted)
        self.rotation.start = (self.rotation.start + processed) % max(1, len(self.state.nodes.order()))
        return sampled

    def _filter_rows(self, cycle: Cycle, rows: Rows) -> Generator[Running, str | None, Filtered]:
        began = self.profile.timings.clock()
        steps = filter_rows(self.profile, cycle, self.state.nodes, rows)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                filtered: Filtered = stop.value
                self.profile.timings.point("Filter", Code.SUCCESS.label, began)
                return filtered
            yield Running()

    def _note_rejections(self, diagnosis: Diagnosis, filtered: Filtered) -> None:
        nodes = self.state.nodes
        for status, rows in filtered.rejected:
            diagnosis.add(status, tuple(nodes.node(row).name for row in rows.tolist()))

    def _recheck(self, node: str, uid: str) -> Cycle | None:
        """Run the filters again on the chosen node alone; a fresh cycle when it still fits, None when not."""
        nodes = self.state.nodes
        row = nodes.row_of(node)
        if row is None or nodes.node(row).metadata.uid != uid:
            return None
        cycle = self._cycle()
        cycle.budget = Budget(1 << 62)  # one node: decided in one go, so that nothing can move again
        pre = run_pre_filter(self.profile, cycle)
        if pre.rejection is not None or (pre.names is not None and node not in pre.names):
            return None
        steps = filter_rows(self.profile, cycle, nodes, np.asarray([row], dtype=np.int64))
        try:
            while True:
                next(steps)
        except StopIteration as stop:
            filtered: Filtered = stop.value
        return cycle if len(filtered.feasible) else None

    def _reject_early(
        self, cycle: Cycle, diagnosis: Diagnosis, pre: PreFiltered
    ) -> Generator[Running | Need, str | None, Decision]:
        """PreFilter said no: every node has that status, the message is the PreFilter's (spec 1.3, 6.1)."""
        status = pre.rejection
        assert status is not None
        diagnosis.absent = status
        diagnosis.prefilter_message = status.message
        if pre.names is not None and not pre.names:
            diagnosis.unschedulable_plugins.update(pre.name_plugins)
        else:
            diagnosis.note_plugin(status)
        return (yield from self._post_filter(cycle, diagnosis))

    def _post_filter(self, cycle: Cycle, diagnosis: Diagnosis) -> Generator[Running | Need, str | None, Decision]:
        """PostFilter plugins in order; first Success or Unresolvable ends and speaks alone (spec 1.7).

        Reasons of plain rejections are joined. An error ends it too and leaves the nomination as it is.
        """
        cycle.diagnosis = diagnosis
        began, code = self.profile.timings.clock(), Code.UNSCHEDULABLE
        nominated: str | None = None if self.profile.post_filter else ""
        reasons: list[str] = []
        statuses: dict[str, Status] = dict(diagnosis.statuses())
        for plugin in self.profile.post_filter:
            result = answer_of(
                plugin, "PostFilter", PostFilterResult, (yield from self._perform(plugin, cycle, statuses))
            )
            code = result.status.code
            if code is not Code.SUCCESS and not code.rejected:
                nominated, reasons = None, [result.status.message]
                break
            if code in (Code.SUCCESS, Code.UNSCHEDULABLE_AND_UNRESOLVABLE):
                nominated, reasons = result.nominated_node, list(result.status.reasons)
                break
            if result.nominated_node is not None:
                nominated = result.nominated_node
            reasons.extend(result.status.reasons)
        if self.profile.post_filter:
            self.profile.timings.point("PostFilter", code.label, began)
        diagnosis.postfilter_message = ", ".join(reasons)
        return Rejected(self.pod, self.profile, diagnosis, nominated)

    @staticmethod
    def _perform(
        plugin: Any, cycle: Cycle, statuses: dict[str, Status]
    ) -> Generator[Running | Need, str | None, object]:
        """Hand a PostFilter's instructions to the edge and its answers back; what the plugin returned at its end."""
        steps = call(plugin, "PostFilter", plugin.post_filter, cycle, statuses)
        if not isinstance(steps, Generator):
            raise PluginError(plugin.name, "PostFilter", f"answered {type(steps).__name__}, not a generator")
        answer: str | None = None
        started = False
        while True:
            try:
                instruction = steps.send(answer) if started else next(steps)
            except StopIteration as stop:
                return stop.value
            except SchedulerError:
                raise
            except Exception as error:  # foreign code, as in call()
                raise PluginError(plugin.name, "PostFilter", f"{type(error).__name__}: {error}") from error
            started = True
            if instruction is None:  # a long search: only the budget is used up
                answer = yield Running()
            else:
                answer = yield Need(instruction)


def _asking(steps: Generator[CallExtenders, str | None, T]) -> Generator[Need, str | None, T]:
    """Hand what ``steps`` asks of extenders to the edge."""
    while True:
        try:
            calls = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        yield Need(calls)


def _not_in_set(plugins: Iterable[str]) -> Status:
    """Of nodes that a PreFilter left out."""
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]")


def nodes_to_find(count: int, percentage: int) -> int:
    """How many feasible nodes end the search over ``count`` nodes; all unless ``percentage`` is 1..99.

    kube-scheduler samples adaptively when unset (0); we look at every node (a listed difference). Spec 5.4.
    """
    if count < 100 or percentage <= 0 or percentage >= 100:
        return count
    return min(count, max(100, count * percentage // 100))


def take_sample(filtered: Filtered, rotated: Rows, wanted: int) -> tuple[Filtered, int]:
    """Cut a full answer down to what upstream's sampling search would have seen, and how many nodes it processed.

    The search stops when feasible node ``wanted`` + 1 is met: that one is dropped, rejected nodes before it stay.
    """
    if len(filtered.feasible) <= wanted:
        return filtered, len(rotated)
    surplus = filtered.feasible[wanted]
    position = {int(row): index for index, row in enumerate(rotated.tolist())}
    limit = position[int(surplus)]
    kept = Filtered(filtered.feasible[:wanted])
    for status, rows in filtered.rejected:
        seen = np.asarray([row for row in rows.tolist() if position[row] < limit], dtype=np.int64)
        if len(seen):
            kept.rejected.append((status, seen))
    return kept, limit


def decide(attempt: Attempt, answer: str | None = "no edge here") -> Decision:
    """Run an attempt to its end without an edge (tests, what-if, conformity); every Need gets ``answer``."""
    while True:
        outcome = attempt.step(1 << 62)
        if isinstance(outcome, Need):
            attempt.answer(answer)
        elif not isinstance(outcome, Running):
            return outcome

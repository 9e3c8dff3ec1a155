"""Allocate the devices of a Pod's claims on one node: the front door of this package.

``prepare`` (requests) is called once per attempt, ``Allocation`` once per node. Everything given in is frozen for as
long as an Allocation runs, so it may be suspended between steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.api.resource import AllocationResult
from scheduler.dra.devices import DeviceKey
from scheduler.dra.features import Features
from scheduler.dra.ledger import Usage
from scheduler.dra.pools import NodeView, each_position
from scheduler.dra.rejections import Chosen, Reason, Rejection
from scheduler.dra.reporter import SILENT, Reporter
from scheduler.dra.requests import Alternative, Plan, first_problem
from scheduler.dra.results import NewId, assemble, node_selector
from scheduler.dra.search import Search, Status, all_list
from scheduler.dra.suitability import Meter, Suitability, SuspendedError, known
from scheduler.dra.taking import FatalError, Holders, Pick, Taking

# CEL cost units that count as one step: both take about 10 microseconds.
_COST_PER_STEP = 20
INVALID_POOLS = "invalid resource pools were encountered"


@dataclass(frozen=True, slots=True)
class Allocated:
    """Devices were found: per claim the picks, in the order taken. ``results`` are built by ``Allocation.results``."""

    picks: tuple[tuple[Pick, ...], ...]


@dataclass(frozen=True, slots=True)
class NotAllocatable:
    """This node cannot serve the claims."""


@dataclass(frozen=True, slots=True)
class NodeError:
    """This node cannot serve the claims, and something is wrong with it (invalid pools)."""

    text: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """The attempt ends on all nodes, with upstream's words."""

    text: str


@dataclass(frozen=True, slots=True)
class Timeout:
    """The search was stopped by its deadline or step budget."""


Outcome = Allocated | NotAllocatable | NodeError | Fatal | Timeout


def _no_holders(_: DeviceKey) -> tuple[str, ...]:
    return ()


class Allocation:
    """One run on one node. ``run(max_steps)`` returns None while there is more to do.

    ``holders`` names the claims holding a device, for reasons only. Cost of a simple claim (one request for a number
    of devices, no constraint): a few operations on bitmaps once the node's devices have been asked about.
    """

    __slots__ = (
        "_features",
        "_holders",
        "_meter",
        "_outcome",
        "_plan",
        "_reporter",
        "_search",
        "_usage",
        "_view",
        "steps",
    )

    def __init__(
        self,
        plan: Plan,
        view: NodeView,
        usage: Usage,
        features: Features,
        reporter: Reporter = SILENT,
        holders: Holders = _no_holders,
    ) -> None:
        self._plan = plan
        self._view = view
        self._usage = usage
        self._features = features
        self._reporter = reporter
        self._holders = holders
        self._search: Search | None = None
        self._outcome: Outcome | None = None
        self._meter = Meter(0)
        self.steps = 0

    @property
    def outcome(self) -> Outcome | None:
        """The answer, None while running."""
        return self._outcome

    @property
    def device_count(self) -> int:
        """How many devices the node sees."""
        return len(self._view.devices)

    def same_world(self, other: Allocation) -> bool:
        """Whether both look at the same devices in the same use."""
        return self._view is other._view and self._usage is other._usage

    def run(self, max_steps: int = 1_000_000_000) -> Outcome | None:
        """Go on for about ``max_steps`` steps; evaluating selectors counts as steps by its cost."""
        meter = self._meter
        meter.left = max_steps * _COST_PER_STEP
        if self._outcome is None and self._search is None:
            try:
                self._start()
            except FatalError as error:
                self._outcome = Fatal(str(error))
            except SuspendedError:
                pass  # what has been asked is remembered: starting again goes on from there
            self.steps = meter.spent // _COST_PER_STEP
        if self._outcome is None and self._search is not None:
            status = self._search.run(max_steps)
            self.steps = self._search.steps + meter.spent // _COST_PER_STEP
            if status is not Status.RUNNING:
                self._finish(self._search, status)
        return self._outcome

    def stop(self) -> Outcome:
        """The deadline has passed."""
        if self._outcome is None:
            self._outcome = Timeout()
            if self._reporter.wants_devices:
                self._reporter.rejected(Rejection(Reason.SEARCH_BUDGET, detail={"steps": str(self.steps)}))
        return self._outcome

    def chosen(self) -> tuple[Chosen, ...]:
        """What was taken, for explanations; empty unless Allocated."""
        if not isinstance(self._outcome, Allocated):
            return ()
        return tuple(
            Chosen(claim.key, pick.alternative.name, self._view.devices[pick.position].key)
            for claim, picks in zip(self._plan.claims, self._outcome.picks, strict=True)
            for pick in picks
        )

    def results(self, new_id: NewId) -> tuple[AllocationResult, ...]:
        """The allocations per claim; only after Allocated. ``new_id`` makes share ids."""
        outcome = self._outcome
        assert isinstance(outcome, Allocated)
        return tuple(
            assemble(claim, picks, self._view, self._features, new_id)
            for claim, picks in zip(self._plan.claims, outcome.picks, strict=True)
        )

    def _start(self) -> None:
        view, plan = self._view, self._plan
        if view.error:
            raise FatalError(view.error)
        if self._reporter.wants_devices:
            self._report_pools()
        if plan.problem:
            raise FatalError(plan.problem)
        if plan.simple is not None and not self._reporter.wants_devices and self._simple(plan.simple):
            return
        taking = Taking(plan, view, self._usage, self._features, self._reporter, self._holders, self._meter)
        if plan.simple is not None and self._reporter.wants_devices and self._simple_told(plan.simple, taking):
            return
        counts = [alternative.count for alternative in plan.alternatives]
        lists: list[tuple[int, ...]] = [()] * len(counts)
        if plan.takes_all:
            self._expand(taking, counts, lists)
        self._search = Search(taking, counts, lists, prune=not self._reporter.wants_devices)

    def _expand(self, taking: Taking, counts: list[int], lists: list[tuple[int, ...]]) -> None:
        """Find out how much "all" is on this node, meeting errors in upstream's order."""

        def count_of(alternative: Alternative) -> int:
            if alternative.take_all:
                found = all_list(taking, alternative)
                counts[alternative.index], lists[alternative.index] = len(found), found
            return counts[alternative.index]

        problem = first_problem(self._plan.claims, count_of)
        if problem:
            raise FatalError(problem)

    def _simple(self, alternative: Alternative) -> bool:
        """One request, a number of devices, no constraint: no search. False when the node needs one after all."""
        view, usage = self._view, self._usage
        answers = known(view, alternative)
        suitability = Suitability(view, self._features, self._meter)
        bits = view.all_devices if alternative.admin else view.all_devices & ~usage.used
        picks: list[Pick] = []
        while bits and len(picks) < alternative.count:
            low = bits & -bits
            bits ^= low
            position = low.bit_length() - 1
            info = view.devices[position]
            if info.multi or info.consumption or position in usage.consumed:
                return False
            if not answers.asked & low:
                suitability.ask(alternative, answers, position)
            if answers.error & low:
                raise FatalError(suitability.error_text(alternative, self._plan.claims[0], position))
            if answers.yes & low:
                picks.append(Pick(alternative, position, False, ()))
        self._end_with(alternative, picks)
        return True

    def _simple_told(self, alternative: Alternative, taking: Taking) -> bool:
        """The same with a reason for each refused device: what a search would tell after trying all combinations.

        Only where nothing that is taken can refuse what comes after it; False where a search has to find that out.
        """
        view, suitability = self._view, taking.suitability
        if view.multi or self._usage.consumed or any(info.consumption for info in view.devices):
            return False
        answers, free = known(view, alternative), taking.free(alternative)
        for position in each_position(view.all_devices & ~free):
            taking.refuse_in_use(alternative, position)
        picks: list[Pick] = []
        for position in each_position(free):
            if len(picks) == alternative.count:
                break
            if not answers.asked >> position & 1:
                suitability.ask(alternative, answers, position)
            if not answers.yes >> position & 1:
                taking.refuse_unsuitable(alternative, position)
            if answers.error >> position & 1:
                raise FatalError(suitability.error_text(alternative, self._plan.claims[0], position))
            if answers.yes >> position & 1:
                picks.append(Pick(alternative, position, False, ()))
        self._end_with(alternative, picks)
        return True

    def _end_with(self, alternative: Alternative, picks: Sequence[Pick]) -> None:
        if len(picks) == alternative.count:
            self._found((tuple(picks),))
        else:
            self._outcome = self._nothing()

    def _finish(self, search: Search, status: Status) -> None:
        self._reporter.searched(search.steps)
        if status is Status.FATAL:
            self._outcome = Fatal(search.error)
        elif status is Status.EXHAUSTED:
            self._outcome = self._nothing()
        else:
            try:
                self._found(tuple(search.taking.picks))
            except FatalError as error:
                self._outcome = Fatal(str(error))

    def _nothing(self) -> Outcome:
        return NodeError(INVALID_POOLS) if self._view.invalid else NotAllocatable()

    def _found(self, picks: tuple[tuple[Pick, ...], ...]) -> None:
        devices = self._view.devices
        for claim, taken in zip(self._plan.claims, picks, strict=True):
            # Only selectors can be impossible to merge, and almost all devices have none.
            if any(devices[pick.position].slice.slice.spec.nodeSelector is not None for pick in taken):
                node_selector(claim.claim, [devices[pick.position] for pick in taken], self._view.node_name)
            if self._reporter.wants_devices:
                for pick in taken:
                    self._reporter.device_chosen(claim.key, pick.alternative.name, devices[pick.position].key)
        self._outcome = Allocated(picks)

    def _report_pools(self) -> None:
        for ignored in self._view.ignored:
            detail = {"slice": ignored.slice, "pool": str(ignored.pool), "because": ignored.cause}
            self._reporter.rejected(Rejection(Reason.NOT_SUPPORTED, request=f"slice {ignored.slice}", detail=detail))
        if not self._view.pools:
            detail = {"because": "no driver has published devices for this node"}
            self._reporter.rejected(
                Rejection(Reason.NOT_ON_NODE, request=f"node {self._view.node_name}", detail=detail)
            )
        for pool in self._view.pools:
            if not pool.complete:
                detail = {"seen": f"{pool.seen} of {pool.expected} slices", "generation": str(pool.generation)}
                self._reporter.rejected(Rejection(Reason.POOL_INCOMPLETE, request=f"pool {pool.key}", detail=detail))
            elif pool.invalid:
                detail = {"because": pool.invalid}
                self._reporter.rejected(Rejection(Reason.POOL_INVALID, request=f"pool {pool.key}", detail=detail))


def allocate(
    plan: Plan,
    view: NodeView,
    usage: Usage,
    features: Features,
    new_id: NewId,
    reporter: Reporter = SILENT,
    interrupted: Callable[[], bool] | None = None,
    holders: Holders = _no_holders,
    slice_steps: int = 2000,
) -> tuple[Outcome, Sequence[AllocationResult]]:
    """Run to the end in one call: for tests, conformity and what-if. ``interrupted`` is asked every ``slice_steps``."""
    allocation = Allocation(plan, view, usage, features, reporter, holders)
    outcome = allocation.run(slice_steps)
    while outcome is None:
        if interrupted is not None and interrupted():
            outcome = allocation.stop()
        else:
            outcome = allocation.run(slice_steps)
    return outcome, allocation.results(new_id) if isinstance(outcome, Allocated) else ()

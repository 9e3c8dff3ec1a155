"""The search for devices: depth first in upstream's order, iterative, interruptible between any two steps.

Source: kube-scheduler 1.37, structured allocator. State of a search is (claim, request, alternative, device number);
the first complete solution in pool order wins.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum

from scheduler.api.resource import RESULTS_MAX
from scheduler.dra.pools import Known, each_position
from scheduler.dra.pruning import Pruning
from scheduler.dra.requests import Alternative
from scheduler.dra.suitability import SuspendedError, known
from scheduler.dra.symmetry import ExactStates, Symmetry
from scheduler.dra.taking import FatalError, Taking

# Steps after which a search is long: short ones do not pay for the likeness of devices.
_LONG = 200
# Steps to spend on one claim alone when a search has become long.
_CHECK_STEPS = 5_000
_NEVER = 1 << 62
# Failed states remembered per search; more would only cost memory.
_FAILED_MAX = 200_000
# Long searches remembered per plan.
_SOLVED_MAX = 1_000


class Status(Enum):
    """Where a search stands. RUNNING: call ``run`` again."""

    RUNNING = "running"
    FOUND = "found"
    EXHAUSTED = "exhausted"
    FATAL = "fatal"


class _Kind(Enum):
    CLAIM = "claim"
    CHOICE = "choice"
    REQUEST = "request"
    DEVICE = "device"
    ALL = "all"


class _Signal(Enum):
    """Why a level is left: no solution below, or the claim would get too many devices."""

    NO = "no"
    TOO_MANY = "too many"


class _Frame:
    """One level: what to try next when everything below failed."""

    __slots__ = (
        "all_too_many",
        "alternative",
        "claim",
        "cursor",
        "first",
        "kind",
        "mark",
        "next",
        "number",
        "request",
        "state",
        "tried",
    )

    def __init__(self, kind: _Kind, claim: int, request: int, mark: int) -> None:
        self.kind = kind
        self.claim = claim
        self.request = request
        self.mark = mark
        self.alternative: Alternative | None = None
        self.number = 0
        self.cursor = 0
        self.first = 0
        self.next = 0
        self.all_too_many = True
        self.state: Hashable = None
        self.tried: set[Hashable] = set()


class Search:
    """One search on one node. ``counts`` and ``lists`` give, per alternative, the number of devices and (mode All) the
    positions to take.

    ``only``: search for that claim alone. ``run(max_steps)`` goes on for at most that many steps; a step is one
    candidate looked at or one level entered.
    After FATAL ``error`` holds upstream's words.
    """

    def __init__(
        self,
        taking: Taking,
        counts: Sequence[int],
        lists: Sequence[tuple[int, ...]],
        prune: bool = True,
        only: int | None = None,
    ) -> None:
        self.taking = taking
        self.error = ""
        self.steps = 0
        self._counts = counts
        self._lists = lists
        self._frames: list[_Frame] = []
        self._status = Status.RUNNING
        self._signal: _Signal | None = None
        # Where to go on: claim, request, alternative (None: not chosen yet), device number, first position.
        self._at: tuple[int, int, Alternative | None, int, int] = (only or 0, 0, None, 0, 0)
        self._end = len(taking.plan.claims) if only is None else only + 1
        self._alone = only is not None
        self._pruning = Pruning(taking, counts, lists) if prune else None
        self._limit = 0
        self._long_after = _LONG
        self._symmetry: Symmetry | None = None
        self._states: Symmetry | ExactStates | None = None
        # A level whose look for the next device was interrupted.
        self._halted: _Frame | None = None
        self._checks: list[int] = []
        self._strict: set[int] = set()
        self._fails_alone = False
        self._failed: dict[Hashable, _Signal] = {}
        self._problem: Hashable = None

    def run(self, max_steps: int) -> Status:
        """Search on."""
        self._limit = self.steps + max_steps
        try:
            while self._status is Status.RUNNING and self.steps < self._limit:
                self.steps += 1
                if self.steps > self._long_after:
                    self._turn_thorough()
                if self._status is not Status.RUNNING:
                    break
                if self._checks:
                    self._check_claim(self._checks.pop())
                elif self._halted is not None:
                    frame, self._halted = self._halted, None
                    assert frame.alternative is not None
                    self._next_device(frame, frame.alternative)
                elif self._signal is None:
                    self._enter()
                else:
                    self._leave(self._signal)
        except FatalError as error:
            self.error = str(error)
            self._status = Status.FATAL
        except SuspendedError:
            # Raised while a level looks for its next device (or before any): it looks again when the search goes on.
            return self._status
        if self._status in (Status.FOUND, Status.EXHAUSTED):
            self._remember_solution()
        return self._status

    def _enter(self) -> None:
        """Go one level down."""
        claim, request, alternative, number, cursor = self._at
        claims = self.taking.plan.claims
        if claim == self._end:
            self._status = Status.FOUND
            return
        requests = claims[claim].requests
        if request == len(requests):
            self._frames.append(_Frame(_Kind.CLAIM, claim, request, self.taking.trail.mark()))
            self._at = (claim + 1, 0, None, 0, 0)
            return
        if alternative is None:
            if self._states is not None and self._known_to_fail(claim, request, self._states):
                return
            if requests[request].choice:
                frame = _Frame(_Kind.CHOICE, claim, request, self.taking.trail.mark())
                self._frames.append(frame)
                self._choose(frame)
                return
            alternative = requests[request].alternatives[0]
        count = self._counts[alternative.index]
        if alternative.take_all and not count:
            self._signal = _Signal.NO
            return
        if number >= count:
            self._at = (claim, request + 1, None, 0, 0)
            return
        if count - number > RESULTS_MAX - len(self.taking.picks[claim]):
            self.taking.refuse_limit(alternative)
            self._signal = _Signal.TOO_MANY
            return
        self._enter_device(claim, request, alternative, number, cursor)

    def _turn_thorough(self) -> None:
        """The search has become long: remember what failed, and what is like it if that can hide no error."""
        symmetry = None if self._pruning is None else self._pruning.symmetry()
        self._long_after = _NEVER
        if self._pruning is None:
            return
        self._symmetry = symmetry
        self._states = self._symmetry or ExactStates(self.taking)
        if self._symmetry is not None and not self._alone and self._solved_before(self._symmetry):
            return
        claims = self.taking.plan.claims
        if self._symmetry is not None and not self._alone and len(claims) > 1:
            self._strict = {a.claim for a in self.taking.plan.alternatives if a.take_all and a.constraints}
            self._checks = sorted(range(len(claims)), key=lambda claim: claim in self._strict)

    def _solved_before(self, symmetry: Symmetry) -> bool:
        """Whether an equal node has been searched for this plan: then its answer is ours."""
        self._problem = symmetry.problem()
        known = self.taking.plan.solved.get(self._problem)
        if known is None:
            return False
        assert isinstance(known, tuple)
        self._status, picks = known
        self.taking.picks[:] = picks
        return True

    def _remember_solution(self) -> None:
        solved = self.taking.plan.solved
        if self._problem is not None and len(solved) < _SOLVED_MAX:
            solved[self._problem] = self._status, tuple(self.taking.picks)

    def _check_claim(self, claim: int) -> None:
        """Try one claim as if it were the only one: when not even that works, nothing does.

        A part of a solution is a solution of the part: what others take only makes it harder. Claims in which mode All
        could meet an error are looked at first, and must all fail without one: then there is none beside others either,
        which only turn such an error into a "no".
        """
        alone = Search(self.taking.fresh(), self._counts, self._lists, only=claim)
        status = alone.run(_CHECK_STEPS)
        self.steps += alone.steps
        if status is Status.EXHAUSTED:
            self._strict.discard(claim)
            self._fails_alone = True
        elif claim in self._strict:
            self._checks.clear()
            return
        if self._fails_alone and not self._strict:
            self._status = Status.EXHAUSTED

    def _known_to_fail(self, claim: int, request: int, states: Symmetry | ExactStates) -> bool:
        """Whether a state like this one has failed from here on; otherwise watch over it."""
        state = states.state(claim, request)
        signal = self._failed.get(state)
        if signal is not None:
            self._signal = signal
            return True
        frame = _Frame(_Kind.REQUEST, claim, request, self.taking.trail.mark())
        frame.state = state
        self._frames.append(frame)
        return False

    def _enter_device(self, claim: int, request: int, alternative: Alternative, number: int, cursor: int) -> None:
        kind = _Kind.ALL if alternative.take_all else _Kind.DEVICE
        frame = _Frame(kind, claim, request, self.taking.trail.mark())
        frame.alternative, frame.number, frame.cursor, frame.first = alternative, number, cursor, cursor
        self._frames.append(frame)
        if kind is _Kind.ALL:
            position = self._lists[alternative.index][number]
            if self.taking.take(alternative, position):
                self._at = (claim, request, alternative, number + 1, 0)
            else:
                self._signal = _Signal.NO
            return
        self._next_device(frame, alternative)

    def _leave(self, signal: _Signal) -> None:
        """Everything below the innermost level failed: try its next possibility, or leave it too."""
        if not self._frames:
            self._status = Status.EXHAUSTED
            return
        frame = self._frames[-1]
        self.taking.trail.undo(frame.mark)
        if frame.kind is _Kind.CHOICE:
            frame.all_too_many = frame.all_too_many and signal is _Signal.TOO_MANY
            self._choose(frame)
        elif frame.kind is _Kind.DEVICE and signal is _Signal.NO:
            assert frame.alternative is not None
            self._next_device(frame, frame.alternative)
        else:
            self._frames.pop()
            if frame.kind is _Kind.REQUEST and len(self._failed) < _FAILED_MAX:
                self._failed[frame.state] = signal
            self._signal = _Signal.NO if frame.kind is _Kind.CLAIM else signal

    def _choose(self, frame: _Frame) -> None:
        """Go on with the next alternative of a firstAvailable request."""
        alternatives = self.taking.plan.claims[frame.claim].requests[frame.request].alternatives
        if frame.next < len(alternatives):
            self._at = (frame.claim, frame.request, alternatives[frame.next], 0, 0)
            frame.next += 1
            self._signal = None
            return
        self._frames.pop()
        self._signal = _Signal.TOO_MANY if frame.all_too_many else _Signal.NO

    def _next_device(self, frame: _Frame, alternative: Alternative) -> None:
        """Take the next suitable free device at or after the frame's cursor."""
        taking = self.taking
        view = taking.view
        answers = known(view, alternative)
        from_cursor = view.all_devices >> frame.cursor << frame.cursor
        bits = taking.free(alternative) & from_cursor
        if taking.reporting:
            self._report_used(alternative, from_cursor & ~bits)
        symmetry = None if alternative.admin else self._symmetry
        if symmetry is not None and frame.cursor > frame.first:
            # The device before the cursor has just failed with everything below.
            frame.tried.add(symmetry.twin(frame.cursor - 1))
        pruning = self._pruning
        if pruning is not None and not pruning.enough(alternative, frame.number, bits, answers):
            self._fail(frame)
            return
        while bits:
            low = bits & -bits
            bits ^= low
            self.steps += 1
            position = low.bit_length() - 1
            if not answers.asked & low:
                self._halted = frame
                taking.suitability.ask(alternative, answers, position)
                self._halted = None
            if answers.error & low:
                claim = taking.plan.claims[alternative.claim]
                taking.refuse_unsuitable(alternative, position)
                raise FatalError(taking.suitability.error_text(alternative, claim, position))
            if not answers.yes & low:
                taking.refuse_unsuitable(alternative, position)
                continue
            if frame.tried and symmetry is not None and symmetry.twin(position) in frame.tried:
                continue
            if taking.take(alternative, position):
                frame.cursor = position + 1
                self._at = (frame.claim, frame.request, alternative, frame.number + 1, position + 1)
                self._signal = None
                return
        self._fail(frame)

    def _fail(self, frame: _Frame) -> None:
        assert frame is self._frames[-1]
        self._frames.pop()
        self._signal = _Signal.NO

    def _report_used(self, alternative: Alternative, bits: int) -> None:
        for position in each_position(bits):
            self.taking.refuse_in_use(alternative, position)


def all_list(taking: Taking, alternative: Alternative) -> tuple[int, ...]:
    """The devices mode All has to take on this node, in pool order.

    Every selectable device whose total capacity suffices, free or not. Raises FatalError on a pool that is incomplete
    or invalid, whether or not it matters for the request, and on selector and capacity errors.
    """
    claim = taking.plan.claims[alternative.claim]
    view = taking.view
    answers: Known = known(view, alternative)
    found: list[int] = []
    for pool in view.pools:
        problem = "" if pool.complete else "being updated"
        if not problem and pool.invalid:
            problem = "invalid"
        if problem:
            raise FatalError(
                f"claim {claim.key}, request {alternative.label}: asks for all devices, but resource pool {pool.key} "
                f"is currently {problem}"
            )
        for position in range(pool.first, pool.first + len(pool.devices)):
            bit = 1 << position
            if not answers.asked & bit:
                taking.suitability.ask(alternative, answers, position)
            if answers.error & bit:
                raise FatalError(taking.suitability.error_text(alternative, claim, position))
            if answers.yes & bit:
                found.append(position)
            else:
                taking.refuse_unsuitable(alternative, position)
    return tuple(found)

"""The search for devices: depth first in upstream's order, iterative, interruptible between any two steps.

Source: kube-scheduler 1.37, structured allocator. State of a search is (claim, request, alternative, device number);
the first complete solution in pool order wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from scheduler.api.resource import RESULTS_MAX
from scheduler.dra.pools import Known
from scheduler.dra.pruning import Pruning
from scheduler.dra.requests import Alternative
from scheduler.dra.suitability import known
from scheduler.dra.taking import FatalError, Taking


class Status(Enum):
    """Where a search stands. RUNNING: call ``run`` again."""

    RUNNING = "running"
    FOUND = "found"
    EXHAUSTED = "exhausted"
    FATAL = "fatal"


class _Kind(Enum):
    CLAIM = "claim"
    CHOICE = "choice"
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
        self.tried: set[object] = set()


class Search:
    """One search on one node. ``counts`` and ``lists`` give, per alternative, the number of devices and (mode All) the
    positions to take.

    ``run(max_steps)`` goes on for at most that many steps; a step is one candidate looked at or one level entered.
    After FATAL ``error`` holds upstream's words.
    """

    def __init__(
        self, taking: Taking, counts: Sequence[int], lists: Sequence[tuple[int, ...]], prune: bool = True
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
        self._at: tuple[int, int, Alternative | None, int, int] = (0, 0, None, 0, 0)
        self._pruning = Pruning(taking, counts) if prune else None
        self._limit = 0

    def run(self, max_steps: int) -> Status:
        """Search on."""
        self._limit = self.steps + max_steps
        try:
            while self._status is Status.RUNNING and self.steps < self._limit:
                self.steps += 1
                if self._signal is None:
                    self._enter()
                else:
                    self._leave(self._signal)
        except FatalError as error:
            self.error = str(error)
            self._status = Status.FATAL
        return self._status

    def _enter(self) -> None:
        """Go one level down."""
        claim, request, alternative, number, cursor = self._at
        claims = self.taking.plan.claims
        if claim == len(claims):
            self._status = Status.FOUND
            return
        requests = claims[claim].requests
        if request == len(requests):
            self._frames.append(_Frame(_Kind.CLAIM, claim, request, self.taking.trail.mark()))
            self._at = (claim + 1, 0, None, 0, 0)
            return
        if alternative is None:
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
            self._signal = _Signal.TOO_MANY
            return
        self._enter_device(claim, request, alternative, number, cursor)

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
        pruning = self._pruning
        if pruning is not None and frame.cursor > frame.first:
            # The device before the cursor has just failed: by now everything about it is known.
            twin = pruning.twin(alternative, frame.cursor - 1)
            if twin is not None:
                frame.tried.add(twin)
        if pruning is not None and not pruning.enough(alternative, frame.number, bits, answers):
            self._fail(frame)
            return
        while bits:
            low = bits & -bits
            bits ^= low
            self.steps += 1
            position = low.bit_length() - 1
            if not answers.asked & low:
                taking.suitability.ask(alternative, answers, position)
            if answers.error & low:
                claim = taking.plan.claims[alternative.claim]
                raise FatalError(taking.suitability.error_text(alternative, claim, position))
            if not answers.yes & low:
                taking.refuse_unsuitable(alternative, position)
                continue
            if frame.tried and pruning is not None and pruning.twin(alternative, position) in frame.tried:
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
        while bits:
            low = bits & -bits
            bits ^= low
            self.taking.refuse_in_use(alternative, low.bit_length() - 1)


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

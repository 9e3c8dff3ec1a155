"""CEL selectors over devices: compiled once per expression, answered once per what an expression reads.

An answer is yes, no or an error; errors are kept too, because upstream counts one exactly when its order of visits
reaches the device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from scheduler.cel import CompileError, EvaluationError, Selector, compile_selector
from scheduler.dra.devices import DeviceInfo
from scheduler.errors import InternalError

# Distinct expressions kept compiled; a cluster has a few per class and claim template.
_EXPRESSIONS_MAX = 2000
# Answers kept per expression; unique serial numbers in a selector must not grow without bound.
_ANSWERS_MAX = 20_000


class SelectorFailure(NamedTuple):
    """An error of one selector: its place in the program, whether it happened at compile time, upstream's words."""

    place: int
    compiling: bool
    message: str


def compile_text(error: CompileError, expression: str) -> str:
    """A compile error as cel-go prints it: place, message, and the line with a mark below it."""
    if error.message.startswith("must evaluate to"):
        return error.message
    lines = expression.splitlines() or [""]
    line = lines[min(error.line, len(lines)) - 1]
    place = f"ERROR: <input>:{error.line}:{error.column}: {error.message}"
    return f"compilation failed: {place}\n | {line}\n | {'.' * (error.column - 1)}^"


class CompiledSelector:
    """One expression with its memo. ``compile_error`` "" when it compiled; ``cost`` grows with each evaluation."""

    __slots__ = ("_answers", "_selector", "compile_error", "cost", "expression")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.compile_error = ""
        self.cost = 0
        self._selector: Selector | None = None
        self._answers: dict[Hashable, bool | str] = {}
        try:
            self._selector = compile_selector(expression)
        except CompileError as error:
            self.compile_error = compile_text(error, expression)

    def answer(self, info: DeviceInfo) -> bool | str:
        """True, False or the text of the runtime error. Must not be called after a compile error."""
        selector = self._selector
        assert selector is not None
        device = info.cel
        key = selector.read_key(device)
        known = self._answers.get(key)
        if known is not None:
            return known
        answer = self._evaluate(info)
        if len(self._answers) >= _ANSWERS_MAX:
            self._answers.clear()
        self._answers[key] = answer
        return answer

    def _evaluate(self, info: DeviceInfo) -> bool | str:
        assert self._selector is not None
        try:
            match, cost = self._selector.evaluate_with_cost(info.cel)
            self.cost += cost
            return match
        except EvaluationError as error:
            self.cost += error.cost
            return error.message + error.hint

    def guard(self, info: DeviceInfo) -> str:
        """What to write before the expression so that it does not fail on the device; "" when nothing helps."""
        if self._selector is None:
            return ""
        try:
            self._selector.evaluate(info.cel)
        except EvaluationError as error:
            return error.guard
        return ""

    def verify(self, info: DeviceInfo) -> None:
        """Compare the memo with a fresh evaluation. Raises InternalError on a difference."""
        if self._selector is None:
            return
        known, fresh = self.answer(info), self._evaluate(info)
        if known != fresh:
            raise InternalError(f"selector {self.expression!r} on {info.key}: remembered {known!r}, now {fresh!r}")


class SelectorCache:
    """Compiled selectors by expression, least recently used ones dropped."""

    def __init__(self, limit: int = _EXPRESSIONS_MAX) -> None:
        self._limit = limit
        self._compiled: OrderedDict[str, CompiledSelector] = OrderedDict()

    def compile(self, expression: str) -> CompiledSelector:
        """The compiled form of ``expression``; compile errors are kept inside it."""
        compiled = self._compiled.get(expression)
        if compiled is None:
            compiled = self._compiled[expression] = CompiledSelector(expression)
            if len(self._compiled) > self._limit:
                self._compiled.popitem(last=False)
        else:
            self._compiled.move_to_end(expression)
        return compiled


class Program:
    """The selectors of a class and of a request, in order: class first.

    Compiled when the first device is asked about, as upstream does: a bad expression that meets no device is no error.
    """

    __slots__ = ("_compile", "_compiled", "class_count", "class_name", "cost", "expressions")

    def __init__(
        self, class_name: str, of_class: tuple[str, ...], of_request: tuple[str, ...], cache: SelectorCache
    ) -> None:
        self.class_name = class_name
        self.class_count = len(of_class)
        self.expressions = of_class + of_request
        self._compile: Callable[[str], CompiledSelector] = cache.compile
        self._compiled: list[CompiledSelector] = []
        # CEL cost units spent for this program.
        self.cost = 0

    def answer(self, info: DeviceInfo) -> bool | SelectorFailure:
        """Whether all selectors accept the device; the first false or failing one decides. Remembered per device."""
        expressions = self.expressions
        known: bool | SelectorFailure | None = info.verdicts.get(expressions)
        if known is None:
            known = self._ask(info)
            info.remember(expressions, known)
        return known

    def _ask(self, info: DeviceInfo) -> bool | SelectorFailure:
        for place, expression in enumerate(self.expressions):
            if place == len(self._compiled):
                self._compiled.append(self._compile(expression))
            selector = self._compiled[place]
            if selector.compile_error:
                return SelectorFailure(place, True, selector.compile_error)
            before = selector.cost
            answer = selector.answer(info)
            self.cost += selector.cost - before
            if answer is True:
                continue
            return False if answer is False else SelectorFailure(place, False, answer)
        return True

    def verify(self, info: DeviceInfo) -> None:
        """Compare what is remembered about a device with a fresh evaluation. Raises InternalError on a difference."""
        for selector in self._compiled:
            if not selector.compile_error:
                selector.verify(info)
        known = info.verdicts.get(self.expressions)
        if known is not None and known != self._ask(info):
            raise InternalError(f"selectors {self.expressions} on {info.key}: remembered {known!r}")

    def refusing(self, info: DeviceInfo) -> str:
        """Which selector said false, for explanations: ``class gpu selector #0: <expression>``; "" for none.

        Remembered per device.
        """
        question = "refusing", self.class_name, self.class_count, self.expressions
        known: str | None = info.verdicts.get(question)
        if known is None:
            known = self._refusing(info)
            info.remember(question, known)
        return known

    def _refusing(self, info: DeviceInfo) -> str:
        for place, expression in enumerate(self.expressions):
            selector = self._compile(expression)
            if not selector.compile_error and selector.answer(info) is False:
                of_class = place < self.class_count
                number = place if of_class else place - self.class_count
                owner = f"class {self.class_name}" if of_class else "request"
                return f"{owner} selector #{number}: {expression}"
        return ""

    def guard(self, failure: SelectorFailure, info: DeviceInfo) -> str:
        """The guard for the selector that failed, for explanations."""
        return self._compile(self.expressions[failure.place]).guard(info)

    def failure_text(self, failure: SelectorFailure, claim_key: str, info: DeviceInfo) -> str:
        """Upstream's words for an error, naming class or claim, selector and device."""
        of_class = failure.place < self.class_count
        number = failure.place if of_class else failure.place - self.class_count
        owner = f"class {self.class_name}" if of_class else f"claim {claim_key}"
        if failure.compiling:
            return f"{owner}: selector #{number}: CEL compile error: {failure.message}"
        return f"{owner}: selector #{number} on device {info.key}: CEL runtime error: {failure.message}"

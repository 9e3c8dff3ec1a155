"""What can go wrong with an expression: it does not compile, or it fails on a device.

CompileError and EvaluationError leave the package. CelError, CostExceededError and DeadlineError live inside: the first
is an error *value* that ``||``, ``&&`` and macros may absorb, the others end the evaluation at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from scheduler.cel.nodes import Node

Kind = Literal["runtime", "cost"]

COST_MESSAGE = "operation cancelled: actual cost limit exceeded"
INTERRUPTED_MESSAGE = "operation interrupted"
KEY_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has()"
    " for optional fields"
)


class CompileError(SchedulerError):
    """An expression is refused before it ever runs. ``line`` counts from 1, ``column`` from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class EvaluationError(SchedulerError):
    """An expression failed on a device; kube-scheduler 1.37 aborts the pod's attempt.

    ``message`` is upstream's text. ``hint`` is what upstream's allocator appends to it (empty if nothing);
    ``guard`` is an expression that would have avoided the error, when one is known.
    """

    def __init__(
        self, message: str, kind: Kind = "runtime", line: int = 0, column: int = 0, guard: str = "", cost: int = 0
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind: Kind = kind
        self.line = line
        self.column = column
        self.guard = guard
        self.cost = cost

    @property
    def hint(self) -> str:
        """The advice upstream appends where the allocator reports the error."""
        return KEY_HINT if "no such key:" in self.message else ""


class CelError(Exception):
    """An error value of the language. Cheap to raise: it is the normal outcome of a missing key.

    ``node`` is the expression it arose in, set by whoever first knows it.
    """

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node


class FatalError(Exception):
    """A failure no operator absorbs: where upstream's evaluator panics and recovers at the top."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CostExceededError(FatalError):
    """The evaluation used up its budget."""

    def __init__(self) -> None:
        super().__init__(COST_MESSAGE)


class DeadlineError(FatalError):
    """The caller's deadline passed during a loop."""

    def __init__(self) -> None:
        super().__init__(INTERRUPTED_MESSAGE)


def no_such_overload() -> CelError:
    """The error of an operation that is not defined for its operands' types."""
    return CelError("no such overload")

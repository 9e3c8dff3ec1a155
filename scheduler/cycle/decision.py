"""What an attempt ends with, and what it asks for on the way."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.api.core import Pod
from scheduler.framework.cycle import Cycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.instructions import Instruction
from scheduler.framework.profile import Profile
from scheduler.framework.runner import ScoreTable


@dataclass(frozen=True, slots=True)
class Running:
    """The step budget is used up; call ``step`` again."""


@dataclass(frozen=True, slots=True)
class Need:
    """Only the edge can do this in mid-cycle; call ``answer`` with None (done) or the failure's text, then ``step``."""

    instruction: Instruction


@dataclass(frozen=True, slots=True)
class Placed:
    """A node was chosen. ``scores`` is None when it was not a choice (one feasible node, or a nominated one)."""

    pod: Pod
    profile: Profile
    cycle: Cycle
    node: str
    node_uid: str
    scores: ScoreTable | None
    evaluated_nodes: int
    feasible_nodes: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """No node fits, or a plugin refuses the Pod. ``no_nodes``: the cluster is empty (error back-off, own message).

    ``nominated_node``: None keeps the nomination, "" clears it.
    """

    pod: Pod
    profile: Profile
    diagnosis: Diagnosis
    nominated_node: str | None = None
    no_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Not a verdict: a plugin or the state broke. The Pod retries with error back-off."""

    pod: Pod
    profile: Profile
    text: str
    plugin: str = ""


Decision = Placed | Rejected | Failed

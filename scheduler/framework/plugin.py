"""What a plugin is: a class with a ``name`` and any of the methods below. Methods found by name are its extension
points; there is no base class to inherit (one is offered for convenience in ``plugins.base``).

Upstream's order of calls (spec 1.2): pre_enqueue; pre_filter, filter, post_filter; pre_score, score, normalize;
reserve (undo: unreserve), permit, pre_bind, bind, post_bind.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scheduler.api.core import Pod
from scheduler.framework.events import Registration
from scheduler.framework.instructions import Instruction
from scheduler.framework.status import Status, VerdictTable

if TYPE_CHECKING:
    from scheduler.framework.cycle import Cycle
    from scheduler.framework.nodeview import NodeView
    from scheduler.framework.permit import PermitResult
    from scheduler.state.nodes import NodeTable

Rows = NDArray[np.int64]
"""Row numbers of a NodeTable, in node-list order."""
Verdicts = NDArray[np.int64]
"""One id of the plugin's VerdictTable per row; 0 is feasible."""
Scores = NDArray[np.int64]
"""One score per row."""


@runtime_checkable
class Plugin(Protocol):
    """All a plugin must have: the name that configuration and messages use."""

    name: str


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """``status`` (SUCCESS, SKIP, a rejection or an error) and optionally the only node names worth a look."""

    status: Status
    node_names: frozenset[str] | None = None


class PreEnqueuePlugin(Plugin, Protocol):
    """Asked before a Pod enters the active queue; a rejection gates it until one of ``events`` matches."""

    def pre_enqueue(self, pod: Pod) -> Status:
        """SUCCESS, or why the Pod is held back."""


class PreFilterPlugin(Plugin, Protocol):
    """Asked once per attempt; computes what filter needs and keeps it in ``cycle.data[self.name]``."""

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """SKIP leaves this plugin's filter out for the attempt."""


class FilterPlugin(Plugin, Protocol):
    """The column form: one call for all rows. ``verdicts`` interns its answers."""

    verdicts: VerdictTable

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """One verdict per row, in the order of ``rows``. Cost: a few numpy calls, no Python loop over rows."""


class ResumableFilterPlugin(Plugin, Protocol):
    """The form for long searches: yields whenever ``cycle.budget`` is used up, returns the verdicts at the end."""

    verdicts: VerdictTable

    def filter_steps(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Generator[None, None, Verdicts]:
        """As ``filter``; after a yield, ``cycle.budget`` has been refilled and the state may have changed."""


class CheckPlugin(Plugin, Protocol):
    """The per-node form of filter: what users write first. Adapted to the column form by the profile."""

    def check(self, cycle: Cycle, node: NodeView) -> Status:
        """SUCCESS or a rejection for this node."""


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What a PostFilter achieved: its status, the node to nominate (None: no opinion, "": clear), its victims."""

    status: Status
    nominated_node: str | None = None
    victims: tuple[Pod, ...] = ()


class PostFilterPlugin(Plugin, Protocol):
    """Asked when no node fits. Yields instructions the edge performs in mid-cycle; each answer is sent back in:
    None for done, a text for failure. Yielding None lets others run when ``cycle.budget`` is used up.
    """

    def post_filter(
        self, cycle: Cycle, statuses: Mapping[str, Status]
    ) -> Generator[Instruction | None, str | None, PostFilterResult]:
        """``statuses``: node name → rejection of every node examined; ``cycle.diagnosis.absent`` is the others'."""


class Depends(IntFlag):
    """What of a node a cacheable plugin's answers about it depend on, beside the Pod."""

    NOTHING = 0
    """Nothing: the same everywhere, until ``epoch`` changes."""
    NODE = 1
    """The Node object: labels, taints, what it offers."""
    PODS = 2
    """The Pods on it, and the Node object."""


class CacheablePlugin(Plugin, Protocol):
    """A filter or score plugin whose answers the runner may keep for Pods that read the same to it.

    Its answer about a row may depend on nothing but what ``signature`` holds, the row's node (and Pods, if declared),
    and ``epoch``; it must answer about any row, feasible or not, and ``normalize`` on nothing but the scores. With
    ``even_normalize`` (those with ``by_template`` have it) equal scores become equal ones, the same however many.
    Optional ``filter_row(cycle, nodes, row)`` and ``score_row`` give the same number for one row, for less, or None to
    have the column form asked.
    """

    depends: Depends

    def signature(self, cycle: Cycle) -> Hashable | None:
        """Asked after PreFilter: what the plugin reads of the Pod, never its name; None: keep nothing."""

    def epoch(self, nodes: NodeTable) -> Hashable:
        """Optional: what all answers depend on; when it changes, all are asked for anew."""


class PreScorePlugin(Plugin, Protocol):
    """Asked once before scoring; SKIP leaves the plugin's score out (it then adds 0)."""

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """``rows``: the feasible rows."""


class ScorePlugin(Plugin, Protocol):
    """The column form of scoring."""

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """One raw score per row."""


class ScoreNodePlugin(Plugin, Protocol):
    """The per-node form of scoring: what users write first."""

    def score_node(self, cycle: Cycle, node: NodeView) -> int:
        """0..100, or any integer when ``normalize`` exists."""


class NormalizePlugin(Plugin, Protocol):
    """Brings raw scores into 0..100."""

    def normalize(self, cycle: Cycle, nodes: NodeTable, rows: Rows, scores: Scores) -> Scores:
        """Called after score, over the same rows; answers outside 0..100 are a PluginError."""


class ReservePlugin(Plugin, Protocol):
    """Takes what the decision needs in memory; ``unreserve`` is its idempotent undo, safe without a reserve."""

    def reserve(self, cycle: Cycle, node: str) -> Status:
        """SUCCESS, a rejection or an error."""

    def unreserve(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """Undo in memory; instructions undo at the API server what was written."""


class PermitPlugin(Plugin, Protocol):
    """The last word before the binding begins; may make the Pod wait (``handle.waiting_pods`` holds it then)."""

    def permit(self, cycle: Cycle, node: str) -> PermitResult:
        """SUCCESS, a rejection, an error, or WAIT with a time-out."""


class PreBindPlugin(Plugin, Protocol):
    """What must be written or waited for before the Binding.

    With a true attribute ``pre_bind_parallel`` it runs side by side with its neighbours that have one, too.
    """

    def pre_bind(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """In order; the first failure ends the binding."""

    def bound(self, cycle: Cycle, node: str) -> None:
        """All PreBind instructions of all plugins succeeded: let go of what was only in flight."""


class BindPlugin(Plugin, Protocol):
    """Makes the Binding."""

    def bind(self, cycle: Cycle, node: str) -> Instruction | None:
        """The instruction, None when this Pod is not for this plugin."""


class PostBindPlugin(Plugin, Protocol):
    """Told of a Binding that was made; what it raises is reported and changes nothing."""

    def post_bind(self, cycle: Cycle, node: str) -> None:
        """The Pod is on ``node``."""


class QueueSortPlugin(Plugin, Protocol):
    """Orders the active queue."""

    def sort_key(self, pod: Pod, timestamp_s: float) -> Any:
        """Smaller first. ``timestamp_s``: when the Pod was last queued."""


class EventsPlugin(Plugin, Protocol):
    """Says which events may change its mind; a rejecting plugin without it is woken by every event."""

    def events(self) -> Sequence[Registration]:
        """Asked once, when the profile is built."""


@dataclass(frozen=True, slots=True)
class Handle:
    """What a plugin is built with. ``state`` is the live ClusterState (read only for plugins, except through
    reserve/unreserve), ``new_id`` makes random UUID texts, ``arguments`` is its pluginConfig args (defaults filled in
    for the default plugins), ``profile_name`` the schedulerName, ``waiting_pods`` the WaitingPods of Permit.
    """

    state: Any
    new_id: Any
    features: Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    profile_name: str = ""
    waiting_pods: Any = None


class PluginFactory(Protocol):
    """What the registry and entry points hold: the plugin class itself."""

    def __call__(self, handle: Handle) -> Plugin:
        """Build the plugin; raise ConfigError(path, problem) for bad arguments."""

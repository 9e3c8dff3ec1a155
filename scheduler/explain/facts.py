"""What an explanation says, as data: the shape of ``explain -o json``. Rendered as text by ``explain.text``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class DeviceGroup:
    """Devices refused for the same reason. ``reason`` is a word of the closed vocabulary (dra.rejections).

    ``detail``: the facts they share. ``holders``: who uses them, number of devices by claim. ``values``: what the
    selector read there: name → value → number of devices. Of a folded group holders and values are those of all its
    nodes. ``devices``: ``pool/name``, with the driver before it where a
    node sees several drivers; one node's of a folded group.
    """

    reason: str
    count: int
    detail: dict[str, str] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    holders: dict[str, int] = field(default_factory=dict)
    values: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class RequestReport:
    """One request (``name`` or ``name/alternative``). ``wants`` in words; ``refused`` by reason, most devices first.

    ``devices``: how many the node sees; ``left``: those of them that nothing refuses.
    """

    request: str
    wants: str
    devices: int = 0
    left: int = 0
    refused: list[DeviceGroup] = field(default_factory=list)


@dataclass(slots=True)
class ClaimReport:
    """One claim of the Pod on some nodes."""

    claim: str
    requests: list[RequestReport] = field(default_factory=list)


@dataclass(slots=True)
class Cause:
    """Numbers and names behind a refusal. ``about``: what it is about, the same on all nodes of a group.

    ``text`` and ``facts``: on ``node``, and on ``nodes`` nodes of the group alike.
    """

    about: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    node: str = ""
    nodes: int = 1
    short: int = 0


@dataclass(slots=True)
class Verdict:
    """Why a plugin refuses a node. ``code``: upstream's name of it. ``because``: the nearest to fitting first.

    ``more``: causes that differ in their numbers only and are not listed.
    """

    plugin: str
    code: str
    reasons: list[str] = field(default_factory=list)
    because: list[Cause] = field(default_factory=list)
    more: int = 0


@dataclass(slots=True)
class PoolTrouble:
    """A pool or slice that cannot be used, or a search that was cut off, with a word of the closed vocabulary.

    ``subject``: ``pool driver/name``, ``slice name``, ``node name``, "" for a search.
    """

    reason: str
    subject: str
    detail: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class NodeGroup:
    """Nodes about which the same can be said. ``devices``: usable devices that each of them sees, or the first one of
    nodes of which nobody refuses devices.

    ``verdicts``: every plugin that refuses, not only the first. ``troubles``: pools and slices that cannot be used, of
    the first node; ``notes``: the same in words.
    """

    nodes: list[str]
    fits: bool
    devices: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    claims: list[ClaimReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    troubles: list[PoolTrouble] = field(default_factory=list)


@dataclass(slots=True)
class HeldClaim:
    """A claim that has its devices. ``usable_on``: the nodes its allocation allows, "any" without a selector.

    ``awaits``: what the driver has to report before a Pod is bound with them, or that it failed; "" for nothing.
    """

    claim: str
    devices: list[str]
    usable_on: str
    since: str = ""
    users: list[str] = field(default_factory=list)
    awaits: str = ""


@dataclass(slots=True)
class ClaimUse:
    """Who uses a claim that is in the way. ``gone``: Pods it is reserved for that do not exist; ``since``: RFC 3339.

    ``schedulers``: schedulerNames of the Pods.
    """

    pods: list[str] = field(default_factory=list)
    schedulers: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    since: str = ""


@dataclass(slots=True)
class ScoreRow:
    """One feasible node: total, and per plugin the score (0..100) that its weight multiplies; ``raw``: unscaled."""

    node: str
    total: int
    scores: dict[str, int] = field(default_factory=dict)
    raw: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class NodeChoice:
    """Why this node: the next best (or, for a node that would not win now, the best) and where the points differ.

    ``ahead_by`` is negative when ``runner_up`` has more. ``by_plugin``: weighted points more or fewer than
    ``runner_up``, where they differ. ``ties``: other nodes with as many points; ``feasible``: nodes that were scored.
    """

    node: str
    total: int
    runner_up: str
    runner_up_total: int
    ahead_by: int
    by_plugin: dict[str, int] = field(default_factory=dict)
    ties: int = 0
    feasible: int = 0


@dataclass(slots=True)
class DeviceChoice:
    """Why these devices, named as in DeviceGroup: the first that suit in the order of pools.

    ``passed``: those before them that do not, by reason; ``later``: devices of the node that were not needed. ``now``:
    what would be taken if it were decided now, when that differs from ``devices``.
    """

    claim: str
    request: str
    wants: str
    devices: list[str]
    passed: list[DeviceGroup] = field(default_factory=list)
    later: int = 0
    now: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Hint:
    """One change that makes the Pod fit, tried in a simulation: it would then be placed on ``node``.

    ``change`` names the kind of change, ``subject`` what it is about; ``text`` is a sentence.
    """

    change: str
    subject: str
    node: str
    text: str


@dataclass(slots=True)
class Explanation:
    """One Pod. ``phase``: waiting, held back (before the queue), fits (would be placed now), scheduled, ended.

    ``message``: what the PodScheduled condition says, in upstream's words. ``node``: where it is or would go;
    for a waiting Pod the node on which it may preempt others.
    ``culprit``: the plugin that holds it back, "" when nodes refuse it; ``because``: what it waits for then.
    ``users``: claim that is in the way → who uses
    it. ``summary``: what is seen only when all nodes are looked at together. ``caveats``: what the answer cannot know.
    ``warnings``: what is wrong with a bound Pod although it has its place.
    """

    pod: str
    phase: str
    scheduler: str
    message: str = ""
    culprit: str = ""
    because: list[Cause] = field(default_factory=list)
    node: str = ""
    nodes: list[NodeGroup] = field(default_factory=list)
    users: dict[str, ClaimUse] = field(default_factory=dict)
    held: list[HeldClaim] = field(default_factory=list)
    scores: list[ScoreRow] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    choice: NodeChoice | None = None
    devices: list[DeviceChoice] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    warnings: list[Cause] = field(default_factory=list)

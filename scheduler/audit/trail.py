"""Trail: turns what the scheduler is told and does into Records.

Nothing here blocks or writes: records go to ``sink``, which keeps the newest of each id. What is remembered is bounded
by what is alive: one open decision and one rejection per waiting Pod, the last users of each claim.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import msgspec

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM
from scheduler.api.resource import ConsumerReference, ResourceClaim
from scheduler.audit.best import best_scores
from scheduler.audit.freeing import cause_of_freeing, found_id, node_named
from scheduler.audit.records import ClaimUse, NodeScore, Record, device_uses
from scheduler.cycle.decision import Decision, Placed
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import Promise


class Origin(msgspec.Struct, frozen=True):
    """Who keeps the trail. ``run`` begins every id: unique per process, so that trails of replicas can be merged."""

    run: str
    replica: str = ""
    version: str = ""
    config: str = ""


class Trail:
    """The trail of one process. ``profiles``: whose Pods are ours. ``leading``: a standby tells nothing.

    ``clock``: Unix seconds. ``position``: the journal's position of the newest decision of a Pod, and its id there;
    None where nothing is recorded.
    """

    def __init__(
        self,
        state: ClusterState,
        profiles: Container[str],
        origin: Origin,
        sink: Callable[[Record], None],
        *,
        clock: Callable[[], float],
        leading: Callable[[], bool] = lambda: True,
        position: Callable[[str], tuple[str, int] | None] = lambda uid: None,
    ) -> None:
        self._state, self._profiles, self._origin = state, profiles, origin
        self._sink, self._clock, self._leading, self._position = sink, clock, leading, position
        self._count = 0
        self._open: dict[str, Record] = {}
        self._settled: set[str] = set()
        self._rejected: dict[str, Record] = {}
        self._scores: dict[str, tuple[NodeScore, ...]] = {}
        self._ours: set[str] = set()
        self._freeing: dict[str, str] = {}
        self._users: dict[str, tuple[ConsumerReference, ...]] = {}
        self._nodes: dict[str, str] = {}
        self._named: dict[str, str] = {}

    def _id(self) -> str:
        self._count += 1
        return f"{self._origin.run}-{self._count}"

    def _name(self, pod: Pod) -> tuple[str, int]:
        """Id and position of the newest decision about the Pod: the journal's, if it is not told already."""
        journal = self._position(pod.uid)
        if journal is None or self._named.get(pod.uid) == journal[0]:
            return self._id(), 0
        self._named[pod.uid] = journal[0]
        return journal

    # decisions

    def decided(self, decision: Decision) -> None:
        """An attempt ended; scores have to be read now, before the state moves."""
        if isinstance(decision, Placed) and decision.scores is not None:
            self._scores[decision.pod.uid] = best_scores(decision.scores, decision.node)

    def reserved(self, placed: Placed, promised: Sequence[Promise], attempt: int) -> None:
        """A decision is counted from now on; nothing has been written yet."""
        pod, origin = placed.pod, self._origin
        name, position = self._name(pod)
        record = Record(
            id=name,
            kind="decision",
            time=self._clock(),
            replica=origin.replica,
            pod=pod.key,
            pod_uid=pod.uid,
            pod_version=pod.metadata.resourceVersion,
            node=placed.node,
            node_uid=placed.node_uid,
            outcome="reserved",
            claims=self._uses(pod, promised),
            scores=self._scores.pop(pod.uid, ()),
            evaluated=placed.evaluated_nodes,
            feasible=placed.feasible_nodes,
            attempt=attempt,
            profile=placed.profile.name,
            seed=f"{pod.uid}/{placed.cycle.now}",
            version=origin.version,
            config=origin.config,
            position=position,
        )
        self._open[pod.uid] = record
        self._settled.discard(pod.uid)
        self._sink(record)

    def _uses(self, pod: Pod, promised: Sequence[Promise]) -> tuple[ClaimUse, ...]:
        given = {promise.claim.uid: promise for promise in promised}
        uses = []
        for claim in self._state.devices.claims_of(pod):
            promise = given.pop(claim.uid, None)
            allocation = claim.status.allocation if promise is None else promise.allocation
            version = claim.metadata.resourceVersion
            uses.append(ClaimUse(claim.key, claim.uid, version, promise is not None, device_uses(allocation)))
        # What is left is made for the Pod's extended resources and has no real name yet.
        uses += [ClaimUse(p.claim.key, p.claim.uid, "", True, device_uses(p.allocation)) for p in given.values()]
        return tuple(uses)

    def bound(self, placed: Placed) -> None:
        """The Pod has its node."""
        self._rejected.pop(placed.pod.uid, None)
        made = {claim.key: claim.uid for claim in self._state.devices.claims_of(placed.pod)}
        special = self._state.devices.special_claim_of(placed.pod.metadata.namespace, placed.pod.uid)
        self._settle(placed.pod.uid, "bound", "", special)
        for uid in made.values():
            self._nodes[uid] = placed.node

    def lost(self, pod: Pod, text: str) -> None:
        """Another scheduler was first."""
        self._settle(pod.uid, "lost", text)

    def _settle(self, uid: str, outcome: str, text: str, special: ResourceClaim | None = None) -> bool:
        record = self._open.pop(uid, None)
        if record is None:
            return False
        now = self._clock()
        claims = record.claims
        if special is not None:
            claims = tuple(
                use
                if use.version or not use.given
                else ClaimUse(special.key, special.uid, special.metadata.resourceVersion, True, use.devices)
                for use in claims
            )
        self._settled.add(uid)
        self._sink(
            msgspec.structs.replace(
                record, outcome=outcome, text=text, duration_s=round(now - record.time, 6), until=now, claims=claims
            )
        )
        return True

    def failed(self, pod: Pod, text: str, attempt: int) -> None:
        """An attempt ended without a node, or a decision was undone. ``attempt`` 0: it was held back before any."""
        self._scores.pop(pod.uid, None)
        if self._settle(pod.uid, "undone", text) or pod.uid in self._settled:
            self._settled.discard(pod.uid)
            return
        now, known = self._clock(), self._rejected.get(pod.uid)
        if known is not None and known.text == text:
            record = msgspec.structs.replace(known, count=known.count + 1, until=now, attempt=attempt)
        else:
            name, position = self._name(pod) if attempt else (self._id(), 0)
            record = self._record(
                "rejection",
                id=name,
                pod=pod.key,
                pod_uid=pod.uid,
                text=text,
                attempt=attempt,
                profile=pod.spec.schedulerName,
                position=position,
                config=self._origin.config,
            )
        self._rejected[pod.uid] = record
        self._sink(record)

    def preempted(self, victim: Pod, preemptor: Pod, node: str, in_memory: bool) -> None:
        """A Pod had to go for a more important one."""
        text = "gave back a place it was about to get" if in_memory else "was deleted to make room"
        self._tell("preempted", pod=victim.key, pod_uid=victim.uid, node=node, by=preemptor.key, text=text)

    def given_twice(self, pod: Pod, text: str) -> None:
        """Another scheduler gave away what the Pod has."""
        placement = self._state.placements.get(pod.uid)
        node = "" if placement is None else placement.node
        uses = tuple(
            ClaimUse(claim.key, claim.uid, "", False, device_uses(claim.status.allocation))
            for claim in self._state.devices.claims_of(pod)
        )
        self._tell("given-twice", pod=pod.key, pod_uid=pod.uid, node=node, text=text, claims=uses)

    def _record(self, kind: str, **fields: object) -> Record:
        origin = self._origin
        values = {"version": origin.version, "replica": origin.replica, **fields}
        if "id" not in values:
            values["id"] = self._id()
        return Record(kind=kind, time=self._clock(), **values)  # type: ignore[arg-type]  # fields of Record by name

    def _tell(self, kind: str, **fields: object) -> None:
        self._sink(self._record(kind, **fields))

    # our own claim writes, told before they are sent

    def allocating(self, uid: str) -> None:
        """We are about to write this claim's allocation."""
        self._ours.add(uid)

    def deallocating(self, uid: str, pod_uid: str) -> None:
        """We are about to take this claim's allocation back, on behalf of a Pod."""
        pod = self._state.pods.get(pod_uid)
        self._freeing[uid] = "" if pod is None else pod.key

    def not_deallocated(self, uid: str) -> None:
        """That write failed."""
        self._freeing.pop(uid, None)

    # what the watches show

    def changed(self, change: Change) -> None:
        """A Pod or claim changed; told before the state takes it in. Cost: a few look-ups."""
        if change.kind.name == RESOURCE_CLAIM.name:
            self._claim_changed(change)
        elif change.kind.name == POD.name and change.old is not None and (change.new is None or change.new.terminal):
            self._pod_gone(change.old)

    def _pod_gone(self, pod: Pod) -> None:
        known = self._rejected.pop(pod.uid, None)
        self._scores.pop(pod.uid, None)
        self._named.pop(pod.uid, None)
        self._settle(pod.uid, "undone", "the Pod was deleted before it was bound")
        self._settled.discard(pod.uid)
        ours = pod.spec.schedulerName in self._profiles
        if not ours or not self._leading() or (not pod.spec.nodeName and known is None):
            return
        deleted = pod.metadata.deletionTimestamp is not None
        text = "was deleted" if deleted else "ended or was deleted"
        self._tell("ended", pod=pod.key, pod_uid=pod.uid, node=pod.spec.nodeName, text=text)

    def _claim_changed(self, change: Change) -> None:
        old: ResourceClaim | None = change.old
        new: ResourceClaim | None = change.new
        held = None if old is None else old.status.allocation
        holds = None if new is None else new.status.allocation
        if new is not None and new.consumers:
            self._users[new.uid] = tuple(new.consumers)
        if old is not None and held is not None and holds is None:
            self._freed(old, new)
        elif new is not None and holds is not None and held is None:
            self._allocated(new, found=change.by_list and old is None)
        if old is not None and new is None:
            for known in (self._users, self._nodes, self._freeing):
                known.pop(old.uid, None)
            self._ours.discard(old.uid)

    def _freed(self, old: ResourceClaim, new: ResourceClaim | None) -> None:
        users = tuple(old.consumers) or self._users.get(old.uid, ())
        by, text = cause_of_freeing(self._state, old, new, users, self._freeing.pop(old.uid, None))
        node = self._nodes.pop(old.uid, "") or node_named(old.status.allocation)
        self._ours.discard(old.uid)
        if not self._leading():
            return
        pod = next((user for user in users if user.resource == "pods"), None)
        self._tell(
            "freed",
            pod="" if pod is None else f"{old.metadata.namespace}/{pod.name}",
            pod_uid="" if pod is None else pod.uid,
            node=node,
            outcome="deleted" if new is None else "deallocated",
            by=by,
            text=text,
            claims=(_held(old),),
        )

    def _allocated(self, claim: ResourceClaim, found: bool) -> None:
        if claim.uid in self._ours or not (self._leading() or found):
            return
        pod = next((user for user in claim.consumers if user.resource == "pods"), None)
        placement = None if pod is None else self._state.placements.get(pod.uid)
        node = placement.node if placement is not None else node_named(claim.status.allocation)
        what = "was allocated when this replica began to watch" if found else "another scheduler allocated it"
        values = {"id": found_id(claim)} if found else {}
        self._tell(
            "found" if found else "foreign",
            pod="" if pod is None else f"{claim.metadata.namespace}/{pod.name}",
            pod_uid="" if pod is None else pod.uid,
            node=node,
            text=what,
            claims=(_held(claim),),
            **values,
        )


def _held(claim: ResourceClaim) -> ClaimUse:
    version = claim.metadata.resourceVersion
    return ClaimUse(claim.key, claim.uid, version, False, device_uses(claim.status.allocation))

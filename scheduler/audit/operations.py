"""Operations: everything that can change a ClusterState, and what attempts ask and answer, as lines of a journal.

An operation is a tuple: name, then arguments. ``encode`` makes one JSON line of it, ``Operations.decode`` reads that,
``Operations.perform`` does to another state what was done to the first. Objects are written as the Structs hold them,
in resource.k8s.io/v1, whatever version the server served; a Pod that the state knows, and the old version in a change,
go by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.deep import decode_deep
from scheduler.api.kinds import NAMESPACE, NODE, POD, WATCHED, Kind
from scheduler.api.meta import ObjectMeta
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.api.resource import AllocationResult, ResourceClaim
from scheduler.api.storage import STORAGE_KINDS, PersistentVolume, PersistentVolumeClaim
from scheduler.api.workloads import WORKLOADS
from scheduler.errors import UserError
from scheduler.state.cluster import ClusterState

Operation = tuple[Any, ...]
FORMAT = 1
KIND_OF = {
    kind.name: kind for kind in (*WATCHED, NAMESPACE, POD_DISRUPTION_BUDGET, POD_GROUP, *WORKLOADS, *STORAGE_KINDS)
}
ATTEMPT_OPERATIONS = frozenset(("begin", "gang", "needed", "answered", "decided", "reserved", "abandoned"))
"""Operations that change nothing: what was asked, and what came out."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ENCODER = msgspec.json.Encoder()
_LINE = msgspec.json.Decoder(list[msgspec.Raw])
_PLAIN: dict[str, tuple[type[Any], ...]] = {
    "serves": (list[str],),
    "unplaced": (Pod,),
    "place": (str,),
    "flight": (str, str, AllocationResult, int),
    "land": (str, bool),
    "victims": (list[str],),
    "spared": (list[str],),
    "learn-claim": (ResourceClaim,),
    "learn-volume": (PersistentVolume,),
    "learn-volume-claim": (PersistentVolumeClaim,),
    "volume-assumed": (str, PersistentVolume),
    "volume-restored": (str,),
    "volume-claim-assumed": (str, PersistentVolumeClaim),
    "volume-claim-restored": (str,),
    "group-begin": (str,),
    "group-end": (),
    "group-promised": (str,),
    "needed": (str, Any),
    "answered": (str, Any, list[tuple[Any, bytes]]),
    "decided": (str, Any),
    "reserved": (str, Any),
    "abandoned": (str, str),
}
"""Operation → the types of its arguments, for those without references."""


def encode(position: int, operation: Operation) -> bytes:
    """One line, without its end. What kubectl notes of a manifest stays out: it may hold passwords."""
    return _ENCODER.encode([position, *map(_without_manifest, operation)])


def _without_manifest(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_without_manifest(entry) for entry in argument]
    metadata = getattr(argument, "metadata", None)
    if not isinstance(metadata, ObjectMeta) or _LAST_APPLIED not in metadata.annotations:
        return argument
    annotations = {key: value for key, value in metadata.annotations.items() if key != _LAST_APPLIED}
    change = msgspec.structs.replace
    return change(argument, metadata=change(metadata, annotations=annotations))


def pod_reference(state: ClusterState, pod: Pod) -> Pod | str:
    """The Pod's uid when the state holds this very object, else the object."""
    return pod.uid if state.pods.get(pod.uid) is pod else pod


class Operations:
    """Reads operations back and performs them on ``state``."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.orders = False
        """True once the snapshot is over: the node list is built after every change of a node, as while recording."""
        self._shown: dict[tuple[str, str], Any] = {}
        self._unplaced: dict[str, tuple[Pod, Pod]] = {}
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
        state_methods: dict[str, Callable[..., Any]] = {
            "serves": self._serves,
            "unplaced": self._show_unplaced,
            "place": self._place,
            "assume": state.assume,
            "forget": state.forget,
            "revise": state.revise,
            "nominate": state.nominate,
            "victims": state.choose_victims,
            "spared": state.spare_victims,
            "flight": state.devices.ledger.set_in_flight,
            "land": state.devices.ledger.drop_in_flight,
            "special": state.devices.promise_special,
            "learn-claim": state.learn_claim,
            "learn-volume": state.learn_volume,
            "learn-volume-claim": state.learn_volume_claim,
            "volume-assumed": state.volumes.volumes.assume,
            "volume-restored": state.volumes.volumes.restore,
            "volume-claim-assumed": state.volumes.claims.assume,
            "volume-claim-restored": state.volumes.claims.restore,
            "group-begin": state.pod_groups.begin,
            "group-end": state.pod_groups.end,
            "group-promised": state.pod_groups.note_promised,
        }
        self._methods: Mapping[str, Callable[..., Any]] = state_methods

    def decode(self, line: bytes) -> tuple[int, Operation]:
        """Position and operation of a line. Raises UserError for one that cannot be read."""
        try:
            position, name, *raw = decode_deep(_LINE, line)
            operation: str = msgspec.json.decode(name, type=str)
            return msgspec.json.decode(position, type=int), (operation, *self._arguments(operation, raw))
        except (msgspec.DecodeError, ValueError, KeyError) as error:
            raise UserError("journal", "", f"a line cannot be read: {error}") from error

    def _arguments(self, name: str, raw: list[msgspec.Raw]) -> list[Any]:
        read = self._read
        if name == "apply":
            kind = KIND_OF[read(raw[0], str)]
            old = self._object_or_name(raw[1], kind)
            return [kind, old, read(raw[2], kind.struct | None), read(raw[3], int), read(raw[4], bool)]
        if name in ("assume", "nominate"):
            return [self._pod(raw[0]), read(raw[1], str)]
        if name in ("forget", "revise"):
            return [self._pod(raw[0])]
        if name == "special":
            return [read(raw[0], str), read(raw[1], ResourceClaim | None)]
        if name == "begin":
            return [*(read(r, str) for r in raw[:2]), self._pod(raw[2]), read(raw[3], float), read(raw[4], int)]
        if name == "gang":
            pods = [self._pod(entry) for entry in read(raw[4], list[msgspec.Raw])]
            head = [read(raw[0], str), read(raw[1], str), read(raw[2], bool), read(raw[3], str)]
            return [*head, pods, read(raw[5], float), read(raw[6], int)]
        return [read(entry, kind) for entry, kind in zip(raw, _PLAIN[name], strict=True)]

    def _read(self, raw: msgspec.Raw, kind: Any) -> Any:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        return decode_deep(decoder, raw)

    def _pod(self, raw: msgspec.Raw) -> Pod | str:
        found: Pod | str = self._read(raw, str if _is_text(raw) else Pod)
        return found

    def _object_or_name(self, raw: msgspec.Raw, kind: Kind) -> Any:
        return self._read(raw, str if _is_text(raw) else kind.struct | None)

    def pod(self, reference: Pod | str) -> Pod:
        """The Pod that is meant. Raises UserError when the state does not have it."""
        if not isinstance(reference, str):
            return reference
        pod = self.state.pods.get(reference)
        if pod is None:
            raise UserError("journal", "", f"pod with uid {reference} is not known at this position")
        return pod

    def perform(self, operation: Operation) -> None:
        """Do what was done. What raised then raises here too; that is left to the caller."""
        name, arguments = operation[0], operation[1:]
        if name == "apply":
            self._apply(*arguments)
        elif name in ("assume", "nominate", "forget", "revise"):
            self._methods[name](self.pod(arguments[0]), *arguments[1:])
        elif name not in ATTEMPT_OPERATIONS:
            self._methods[name](*arguments)

    def _serves(self, namespaces: list[str]) -> None:
        self.state.served = frozenset(namespaces)

    def _show_unplaced(self, pod: Pod) -> None:
        """Of a snapshot: a Pod that has a node, as if it still waited; ``place`` follows."""
        waiting = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, nodeName=""))
        self._unplaced[pod.uid] = waiting, pod
        note_shown(self._shown, POD.name, None, pod)
        self.state.apply(Change(POD, None, waiting))

    def _place(self, uid: str) -> None:
        if uid not in self._unplaced:
            raise UserError("journal", "", f"pod with uid {uid} is not known at this position")
        waiting, pod = self._unplaced.pop(uid)
        self.state.apply(Change(POD, waiting, pod))

    def _apply(self, kind: Kind, old: Any, new: Any, revision: int, by_list: bool) -> None:
        if isinstance(old, str):
            if (kind.name, old) not in self._shown:
                raise UserError("journal", "", f"{kind.name} {old} is not known at this position")
            old = self._shown[(kind.name, old)]
        note_shown(self._shown, kind.name, old, new)
        self.state.apply(Change(kind, old, new, revision, by_list))
        if self.orders and kind.name == NODE.name:
            self.state.nodes.order()


def _is_text(raw: msgspec.Raw) -> bool:
    """A name stands here, not an object."""
    return bytes(memoryview(raw)[:1]) == b'"'


def note_shown(shown: dict[tuple[str, str], Any], kind: str, old: Any, new: Any) -> None:
    """Keep ``shown`` what the changes so far leave: kind and key → object."""
    if new is not None:
        shown[(kind, new.metadata.key)] = new
    elif old is not None:
        shown.pop((kind, old.metadata.key), None)


def apply_operation(change: Change, shown: Mapping[tuple[str, str], Any]) -> Operation:
    """The operation for a change; ``shown``: the object of each kind and key that the journal has shown last."""
    kind, old = change.kind, change.old
    if old is not None:
        key = old.metadata.key
        if shown.get((kind.name, key)) is old:
            old = key
    return ("apply", kind.name, old, change.new, change.revision, change.by_list)

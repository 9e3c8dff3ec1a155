"""Edits as people write them: a YAML list of single-key entries, or flags that mean the same. Decoded, not applied.

- add: {file: job.yaml, count: 3}
- addNodes: {like: node-1, count: 2}
- drain: {node: node-7}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.errors import UserError

Json = dict[str, Any]
EFFECTS = ("NoSchedule", "NoExecute", "None")
NODE_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
COUNT_MAX = 100_000
DELETABLE = {
    "pod": "Pod",
    "pods": "Pod",
    "po": "Pod",
    "claim": "ResourceClaim",
    "resourceclaim": "ResourceClaim",
    "resourceclaims": "ResourceClaim",
    "node": "Node",
    "nodes": "Node",
    "resourceslice": "ResourceSlice",
    "slice": "ResourceSlice",
    "deviceclass": "DeviceClass",
    "devicetaintrule": "DeviceTaintRule",
    "pvc": "PersistentVolumeClaim",
    "persistentvolumeclaim": "PersistentVolumeClaim",
}
"""What may be deleted: as written, in small letters → kind."""
CLUSTER_WIDE = frozenset(("Node", "ResourceSlice", "DeviceClass", "DeviceTaintRule"))


@dataclass(frozen=True, slots=True)
class Add:
    """Create what ``file`` or ``objects`` hold; Pods and workloads ``count`` times."""

    file: str = ""
    objects: tuple[Any, ...] = ()
    count: int = 1
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Delete:
    """``kind`` as the API spells it; ``key``: ``namespace/name`` or the name."""

    kind: str
    key: str


@dataclass(frozen=True, slots=True)
class AddNodes:
    """``count`` nodes like the node ``like``, with copies of its slices; ``names`` when they are to have certain ones.

    ``labels`` are laid over those of ``like``.
    """

    like: str
    count: int = 1
    names: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drain:
    """Cordon, then evict all Pods but those of DaemonSets and mirror Pods."""

    node: str


@dataclass(frozen=True, slots=True)
class Cordon:
    """Take no new Pods (``on``), or take them again."""

    node: str
    on: bool = True


@dataclass(frozen=True, slots=True)
class TaintNode:
    """A taint on a node."""

    node: str
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class TaintDevice:
    """A taint on one published device, as its driver would set it."""

    driver: str
    pool: str
    device: str
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Weight:
    """Another weight for a score plugin, 0 to leave it out; in ``profile``, "" for all."""

    plugin: str
    weight: int
    profile: str = ""


@dataclass(frozen=True, slots=True)
class NewConfig:
    """Another configuration file."""

    file: str


@dataclass(frozen=True, slots=True)
class Serve:
    """Waiting Pods of the scheduler ``scheduler_name`` are given to ``profile``."""

    scheduler_name: str
    profile: str


Edit = Add | Delete | AddNodes | Drain | Cordon | TaintNode | TaintDevice | Weight | NewConfig | Serve


@dataclass(frozen=True, slots=True)
class Placed:
    """An edit and where it was written: ``edit 3 (drain)``."""

    subject: str
    edit: Edit


def decode_edits(entries: Any, namespace: str = "default") -> list[Placed]:
    """The edits of a YAML list. Raises UserError that names position and field of whatever is wrong.

    ``namespace``: of objects that name none.
    """
    if entries is None:
        return []
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise UserError("edits", "", f"a list is needed, not {_shown(entries)}")
    return [_decoded(entry, f"edit {number}", namespace) for number, entry in enumerate(entries, start=1)]


def _decoded(entry: Any, subject: str, namespace: str) -> Placed:
    if not isinstance(entry, dict) or len(entry) != 1:
        what = f"{len(entry)} fields" if isinstance(entry, dict) else _shown(entry)
        raise UserError(subject, "", f"one field that names the edit is needed ({', '.join(_DECODERS)}), not {what}")
    ((name, body),) = entry.items()
    decode = _DECODERS.get(str(name))
    if decode is None:
        raise UserError(subject, str(name), f"is no edit; known are {', '.join(_DECODERS)}")
    subject = f"{subject} ({name})"
    if not isinstance(body, dict):
        raise UserError(subject, str(name), f"an object is needed, not {_shown(body)}")
    fields = _Fields(subject, str(name), body, namespace)
    edit = decode(fields)
    fields.finish()
    return Placed(subject, edit)


class _Fields:
    """Typed access to one edit's fields; ``finish`` refuses what nobody asked for."""

    def __init__(self, subject: str, path: str, body: Json, namespace: str) -> None:
        self._subject, self._path, self._body, self.namespace = subject, path, body, namespace
        self._asked: set[str] = set()

    def fail(self, name: str, problem: str) -> UserError:
        """The error for a field."""
        return UserError(self._subject, f"{self._path}.{name}" if name else self._path, problem)

    def names(self) -> list[str]:
        """What is written, in order."""
        return [str(name) for name in self._body]

    def raw(self, name: str) -> Any:
        """As it was written, None when absent."""
        self._asked.add(name)
        return self._body.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without ``default`` it is needed."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if value is None or value == "":
            raise self.fail(name, "is missing")
        if not isinstance(value, str):
            raise self.fail(name, f"a text is needed, not {_shown(value)}")
        return value

    def whole(self, name: str, default: int | None, least: int, most: int) -> int:
        """A whole number within limits."""
        value = self.raw(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.fail(name, "is missing")
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.fail(name, f"a number from {least} to {most} is needed, not {_shown(value)}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.raw(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
            raise self.fail(name, f"a list of texts is needed, not {_shown(value)}")
        return tuple(value)

    def mapping(self, name: str) -> dict[str, str]:
        """A map of texts."""
        value = self.raw(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(entry, str) for pair in value.items() for entry in pair):
            raise self.fail(name, f"a map of texts is needed, not {_shown(value)}")
        return dict(value)

    def one_of(self, name: str, allowed: Sequence[str], default: str) -> str:
        """One of a few words."""
        value = self.text(name, default)
        if value not in allowed:
            raise self.fail(name, f"{value!r} is not one of {', '.join(allowed)}")
        return value

    def finish(self) -> None:
        """Unknown fields are mistakes."""
        for name in self._body:
            if name not in self._asked:
                raise self.fail(str(name), f"unknown field; known are {', '.join(sorted(self._asked))}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _add(fields: _Fields) -> Edit:
    objects = fields.raw("objects")
    objects = [] if objects is None else objects
    if not isinstance(objects, list):
        raise fields.fail("objects", f"a list of objects is needed, not {_shown(objects)}")
    file = fields.text("file", "")
    if bool(file) == bool(objects):
        raise fields.fail("", "either file or objects is needed")
    count, namespace = fields.whole("count", 1, 1, COUNT_MAX), fields.text("namespace", fields.namespace)
    return Add(file, tuple(objects), count, namespace)


def _delete(fields: _Fields) -> Edit:
    for name in fields.names():
        kind = DELETABLE.get(name.lower())
        if kind is None:
            raise fields.fail(name, f"cannot be deleted here; known are {', '.join(DELETABLE)}")
        return Delete(kind, _key(fields, name, kind))
    raise fields.fail("", "what is to be deleted is missing, for example {pod: ns/name}")


def _key(fields: _Fields, name: str, kind: str) -> str:
    given = fields.text(name)
    if kind in CLUSTER_WIDE or "/" in given:
        return given
    return f"{fields.namespace}/{given}"


def _add_nodes(fields: _Fields) -> Edit:
    names = fields.texts("names")
    count = fields.whole("count", len(names) or 1, 1, COUNT_MAX)
    if names and len(names) != count:
        raise fields.fail("names", f"{len(names)} names for {count} nodes")
    return AddNodes(fields.text("like"), count, names, fields.mapping("labels"))


def _taint_node(fields: _Fields) -> Edit:
    effect = fields.one_of("effect", NODE_EFFECTS, "NoSchedule")
    return TaintNode(fields.text("node"), fields.text("key"), fields.text("value", ""), effect)


def _taint_device(fields: _Fields) -> Edit:
    parts = fields.text("device").split("/")
    if len(parts) < 3 or not all(parts):
        raise fields.fail("device", "DRIVER/POOL/DEVICE is needed")
    effect = fields.one_of("effect", EFFECTS, "NoSchedule")
    driver, pool, device = parts[0], "/".join(parts[1:-1]), parts[-1]
    return TaintDevice(driver, pool, device, fields.text("key"), fields.text("value", ""), effect)


def _weight(fields: _Fields) -> Edit:
    return Weight(fields.text("plugin"), fields.whole("weight", None, 0, 2**31 - 1), fields.text("profile", ""))


_DECODERS: dict[str, Callable[[_Fields], Edit]] = {
    "add": _add,
    "delete": _delete,
    "addNodes": _add_nodes,
    "drain": lambda fields: Drain(fields.text("node")),
    "cordon": lambda fields: Cordon(fields.text("node")),
    "uncordon": lambda fields: Cordon(fields.text("node"), False),
    "taintNode": _taint_node,
    "taintDevice": _taint_device,
    "weight": _weight,
    "config": lambda fields: NewConfig(fields.text("file")),
    "serve": lambda fields: Serve(fields.text("schedulerName"), fields.text("profile", "")),
}

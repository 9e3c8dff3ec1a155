"""Seeded mutations of JSON objects, down to bytes that no JSON library would write (duplicate keys, huge numbers).

``Mutator(kind, seed).mutate(body)`` gives ``Mutant``s: what was done, and the bytes. Equal seeds give equal bytes.
Besides spoiling what is there, fields of the kind's schema that the sample lacks are grafted in, with hostile values
of the right type, so that every field we decode is met.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from e2e.fuzz.hostile import (
    BAD_BYTES,
    CEL_BOMBS,
    DEPTHS,
    HUGE_NUMBERS,
    LONG,
    NAMES,
    NUMBERS,
    QUANTITIES,
    TEXTS,
    TIMES,
    UNICODE,
    WORDS,
)
from scheduler.api.kinds import Kind

Object = dict[str, Any]
Slot = tuple[Any, Any]
"""A container and the key or index in it."""
GENERATED_DEPTH_MAX = 5
BYTES_MAX = 3 * 1024 * 1024
"""The API server takes no larger request, and etcd stores half of that."""
_TIME_FIELDS = ("Time", "timeAdded", "Timestamp")


@dataclass(frozen=True)
class Verbatim:
    """Bytes written as they are where a value is expected."""

    raw: bytes


@dataclass(frozen=True)
class Twice:
    """A value that is written under its key twice; the first one is ``first``."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Mutant:
    """``how``: the mutations in order; ``raw``: the JSON text, possibly none."""

    how: str
    raw: bytes


class Mutator:
    """Mutates objects of one kind."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self._rng = random.Random(f"{seed} {kind.name} {kind.version}")
        self._schema = msgspec.inspect.type_info(kind.wire or kind.struct)
        self._ways: tuple[tuple[str, Callable[[Object], None]], ...] = (
            ("drop", self._drop),
            ("wrong type", self._wrong_type),
            ("hostile value", self._hostile),
            ("hostile value", self._hostile),
            ("graft", self._graft),
            ("graft", self._graft),
            ("graft", self._graft),
            ("huge number", self._huge_number),
            ("bad text", self._bad_text),
            ("deep", self._deep),
            ("twice", self._twice),
            ("many", self._many),
            ("key", self._key),
            ("bytes", self._bytes),
        )

    def mutate(self, body: Object) -> Mutant:
        """One mutant of ``body``, of at most BYTES_MAX; one to three mutations. Cost: a millisecond."""
        while (mutant := self._mutant(body)) is None or len(mutant.raw) > BYTES_MAX:
            pass
        return mutant

    def _mutant(self, body: Object) -> Mutant | None:
        changed = copy.deepcopy(body)
        how = []
        for _ in range(self._rng.choice((1, 1, 1, 2, 3))):
            name, way = self._rng.choice(self._ways)
            how.append(name)
            way(changed)
        _keep_identity(body, changed)
        if room_left(changed, BYTES_MAX) < 0:
            return None  # writing it out first took gigabytes: a copy of a copy of something large
        raw = encode(changed)
        if "bytes" in how:
            raw = self._spoil(raw)
        return Mutant(", ".join(how), raw)

    # where

    def _slots(self, value: Any, found: list[Slot]) -> list[Slot]:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in list(items):
            found.append((value, key))
            self._slots(child, found)
        return found

    def _slot(self, body: Object) -> Slot:
        found = self._slots(body, [])
        if not found:
            body["metadata"] = {}
            return body, "metadata"
        # A name or uid that is spoilt leaves little to decide about: rarely.
        for _ in range(3):
            container, key = self._rng.choice(found)
            if key not in ("metadata", "name", "uid", "namespace", "spec"):
                break
        return container, key

    # what

    def _drop(self, body: Object) -> None:
        container, key = self._slot(body)
        del container[key]

    def _wrong_type(self, body: Object) -> None:
        container, key = self._slot(body)
        container[key] = self._rng.choice(
            (None, True, 0, -1, 1.5, "", "text", [], {}, [None], [[]], {"": {}}, [{}], {"a": None}, [1, "a", None])
        )

    def _hostile(self, body: Object) -> None:
        container, key = self._slot(body)
        container[key] = self._like(key, container[key])

    def _like(self, key: Any, value: Any) -> Any:
        """A hostile value of the type that is there."""
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._rng.choice(NUMBERS)
        if isinstance(value, str):
            return self._text(str(key), value)
        if isinstance(value, list):
            return [*value, *value] if self._rng.random() < 0.5 else value[:0]
        return {}

    def _text(self, key: str, value: str = "") -> str:
        if key == "expression":
            return self._rng.choice(CEL_BOMBS)
        if key.endswith(_TIME_FIELDS):
            return self._rng.choice(TIMES)
        if value[:1].isdigit() and self._rng.random() < 0.8:
            return self._rng.choice(QUANTITIES)
        if self._rng.random() < 0.4:
            return self._rng.choice((*NAMES, *WORDS))
        return self._rng.choice((*TEXTS, value[:-1], value + value, value.upper()))

    def _huge_number(self, body: Object) -> None:
        container, key = self._slot(body)
        container[key] = Verbatim(self._rng.choice(HUGE_NUMBERS))

    def _bad_text(self, body: Object) -> None:
        container, key = self._slot(body)
        container[key] = Verbatim(self._rng.choice(BAD_BYTES))

    def _deep(self, body: Object) -> None:
        container, key = self._slot(body)
        depth = self._rng.choice(DEPTHS)
        opened, closed = self._rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"metadata":', b"}")))
        inner = b"" if opened == b"[" else b"1"
        deep = Verbatim(opened * depth + inner + closed * depth)
        if isinstance(container, dict) and self._rng.random() < 0.5:
            container["unknown"] = deep
        else:
            container[key] = deep
        if self._rng.random() < 0.3:  # fields that are null are read another way
            container, key = self._slot(body)
            container[key] = None

    def _twice(self, body: Object) -> None:
        container, key = self._slot(body)
        if isinstance(container, dict):
            value = container[key]
            other = self._like(key, value)
            container[key] = Twice(other, value) if self._rng.random() < 0.5 else Twice(value, other)

    def _many(self, body: Object) -> None:
        """Lists and maps far beyond what the API allows."""
        found = [slot for slot in self._slots(body, []) if isinstance(slot[0][slot[1]], list | dict)]
        if not found:
            return
        container, key = self._rng.choice(found)
        value, count = container[key], self._rng.choice((33, 300, 3000))
        if isinstance(value, list):
            container[key] = (value or [{}]) * (count if len(encode(value)) < 500 else 33)
        elif value:
            pattern = next(iter(value.values()))
            if len(encode(pattern)) < 500:
                container[key] = {**value, **{f"k{index}": pattern for index in range(count)}}

    def _key(self, body: Object) -> None:
        """A key that is almost right."""
        container, key = self._slot(body)
        if isinstance(container, dict):
            value = container.pop(key)
            for name in self._rng.choice(((str(key).upper(),), (f"{key} ",), ("",), (LONG,), UNICODE[:3], ("\x00",))):
                container[name] = value

    def _bytes(self, body: Object) -> None:
        """The text is spoilt after it was written."""

    def _spoil(self, raw: bytes) -> bytes:
        at = self._rng.randrange(len(raw) + 1)
        return self._rng.choice(
            (
                raw[:at],
                raw[:at] + bytes([self._rng.randrange(1, 256)]).replace(b"\n", b" ") + raw[at + 1 :],
                raw[:at] + raw[at + 1 :],
                raw + b"}",
                b"[" + raw + b"]",
                b"null",
                b"",
                raw[:at] + b"\x00" + raw[at:],
            )
        )

    # grafts

    def _graft(self, body: Object) -> None:
        """Lay a random path of the schema over the object, with a hostile end."""
        merge(body, self._path(self._schema, GENERATED_DEPTH_MAX + 2))

    def _path(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, msgspec.inspect.StructType):
            field = self._rng.choice(schema.fields)
            return {field.encode_name: self._path_or_value(field.encode_name, field.type, depth)}
        return self.value("", schema, depth)

    def _path_or_value(self, name: str, schema: Any, depth: int) -> Any:
        inner = _without_none(schema)
        if isinstance(inner, msgspec.inspect.StructType) and depth > 0 and self._rng.random() < 0.7:
            return self._path(inner, depth - 1)
        return self.value(name, inner, depth - 1)

    def value(self, name: str, schema: Any, depth: int) -> Any:  # one answer per type
        """A hostile value of the type ``schema``."""
        info = msgspec.inspect
        schema = _without_none(schema)
        if isinstance(schema, info.UnionType):  # a quantity
            return self._rng.choice(QUANTITIES) if self._rng.random() < 0.8 else self._rng.choice(NUMBERS)
        if isinstance(schema, info.BoolType):
            return self._rng.random() < 0.5
        if isinstance(schema, info.IntType):
            return self._rng.choice(NUMBERS)
        if isinstance(schema, info.FloatType):
            return self._rng.choice((0.0, -1.5, 1e300))
        if isinstance(schema, info.StrType):
            return self._text(name)
        if depth <= 0:
            return {} if isinstance(schema, info.StructType | info.DictType) else []
        if isinstance(schema, info.VarTupleType | info.ListType):
            return [self.value(name, schema.item_type, depth - 1) for _ in range(self._rng.choice((0, 1, 1, 2, 3)))]
        if isinstance(schema, info.DictType):
            keys = [self._text(name) for _ in range(self._rng.choice((0, 1, 2)))]
            return {key: self.value(name, schema.value_type, depth - 1) for key in keys}
        if isinstance(schema, info.StructType):
            chosen = [field for field in schema.fields if self._rng.random() < 0.6]
            return {field.encode_name: self.value(field.encode_name, field.type, depth - 1) for field in chosen}
        return self._rng.choice((None, {}, [], "text", 1, {"uid": 1}, {"name": "x"}))


def _keep_identity(body: Object, changed: Object) -> None:
    """An object under another name has another uid: the one thing that no server gets wrong."""
    before, after = body["metadata"], changed.get("metadata")
    if isinstance(after, dict) and after.get("uid") == before["uid"]:
        names = [(meta.get("namespace"), meta.get("name")) for meta in (before, after)]
        if names[0] != names[1]:
            after["uid"] = "uid-mutant"


def _without_none(schema: Any) -> Any:
    """The type of a field that may be absent."""
    if isinstance(schema, msgspec.inspect.UnionType):
        others = [one for one in schema.types if not isinstance(one, msgspec.inspect.NoneType)]
        if len(others) == 1:
            return others[0]
    return schema


def merge(into: Any, graft: Any) -> None:
    """Lay ``graft`` over ``into``: maps are merged, everything else is replaced."""
    for key, value in graft.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def room_left(value: Any, room: int) -> int:
    """``room`` less at least the bytes of the texts in ``value``; below 0 as soon as they do not fit."""
    if isinstance(value, Verbatim):
        return room - len(value.raw)
    if isinstance(value, Twice):
        return room_left(value.second, room_left(value.first, room))
    if isinstance(value, str):
        return room - len(value)
    parts: list[Any] = [*value.keys(), *value.values()] if isinstance(value, dict) else []
    for part in parts or (value if isinstance(value, list) else ()):
        room = room_left(part, room - 1)
        if room < 0:
            break
    return room


def encode(value: Any) -> bytes:
    """JSON, with Verbatim and Twice."""
    if isinstance(value, Verbatim):
        return value.raw
    if isinstance(value, Twice):  # in a list, or looked at alone
        return encode(value.second)
    if isinstance(value, dict):
        parts = []
        for key, child in value.items():
            name = json.dumps(key).encode() + b":"
            both = (child.first, child.second) if isinstance(child, Twice) else (child,)
            parts += [name + encode(one) for one in both]
        return b"{" + b",".join(parts) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(encode, value)) + b"]"
    return json.dumps(value).encode()

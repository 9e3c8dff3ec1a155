"""What the two-variable macros call to fill a map (cel-go 0.29, ext/comprehensions.go)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.cel.attributes import shown
from scheduler.cel.errors import CelError
from scheduler.cel.registry import Library
from scheduler.cel.values import MapValue, stored_key


def _insert(target: MapValue, key: Any, value: Any) -> MapValue:
    # In place: the map being filled is seen by nobody else before its loop ends.
    stored = stored_key(key)
    if stored in target.data:
        raise CelError(f"insert failed: key {shown(key)} already exists")
    target.data[stored] = value
    return target


def _insert_all(target: MapValue, update: MapValue) -> MapValue:
    for key, value in update.items():
        target = _insert(target, key, value)
    return target


LIBRARY: Final = Library(
    table="""
cel.@mapInsert  @mapInsert_map_key_value  (map(K, V), K, V) map(K, V)
cel.@mapInsert  @mapInsert_map_map        (map(K, V), map(K, V)) map(K, V)
""",
    implementations={"@mapInsert_map_key_value": _insert, "@mapInsert_map_map": _insert_all},
)

"""Closures for list and map literals that are not constant."""

from __future__ import annotations

from typing import Any

from scheduler.cel.attributes import Closure, shown
from scheduler.cel.errors import CelError
from scheduler.cel.frame import Frame
from scheduler.cel.nodes import Node
from scheduler.cel.values import MapValue, OptionalValue, stored_key


def list_literal(elements: list[Closure], optional: frozenset[int], cost: int, node: Node) -> Closure:
    """A list that is not constant."""

    def evaluate(frame: Frame) -> list[Any]:
        values: list[Any] = []
        try:
            for index, element in enumerate(elements):
                value = element(frame)
                if index in optional:
                    if type(value) is not OptionalValue:
                        text = f"cannot initialize optional list element from non-optional value {shown(value)}"
                        raise CelError(text, node)
                    if not value.present:
                        continue
                    value = value.value
                values.append(value)
        finally:
            frame.cost += cost
        return values

    return evaluate


def map_literal(entries: list[tuple[Closure, Closure, bool]], cost: int, node: Node) -> Closure:
    """A map. A later entry with an equal key replaces the earlier one."""

    def evaluate(frame: Frame) -> MapValue:
        data: dict[Any, Any] = {}
        try:
            for key_of, value_of, optional in entries:
                key = key_of(frame)
                value = value_of(frame)
                if optional:
                    if type(value) is not OptionalValue:
                        text = f"cannot initialize optional entry '{shown(key)}' from non-optional value {shown(value)}"
                        raise CelError(text, node)
                    if not value.present:
                        data.pop(stored_key(key), None)
                        continue
                    value = value.value
                data[stored_key(key)] = value
        finally:
            frame.cost += cost
        return MapValue(data)

    return evaluate

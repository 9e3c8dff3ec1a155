"""What a Node object offers, as integers."""

from __future__ import annotations

from scheduler.api.core import Node
from scheduler.api.podrequests import PODS, amount, counts
from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.errors import UserError


def node_allocatable(node: Node) -> tuple[dict[str, int], tuple[UserError, ...]]:
    """(amount by resource, problems): cpu in milli, memory and storage in bytes, Pods and others in units.

    Resources that do not count are left out; a quantity that is nonsense or negative is left out
    and reported.
    """
    amounts: dict[str, int] = {}
    problems: list[UserError] = []
    for name, text in node.status.allocatable.items():
        if name != PODS and not counts(name):
            continue
        try:
            quantity = parse_quantity(text if isinstance(text, int) else str(text))
        except QuantityError as error:
            field = f"status.allocatable[{name}]"
            problems.append(UserError(f"Node {node.name}", field, f'"{error.text}" is not a quantity: {error}'))
            continue
        if quantity.sign() < 0:
            problems.append(UserError(f"Node {node.name}", f"status.allocatable[{name}]", f'"{text}" is negative'))
            continue
        amounts[name] = amount(name, quantity)
    return amounts, tuple(problems)

"""Where quantities stand in each kind, and their canonical form: the server stores 1024Mi as 1Gi and 1 as "1"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scheduler.api.quantity import parse_quantity
from scheduler.embedded.status import Json

Places = Iterator[tuple[Any, Any]]
"""(map or list, key or index) of each quantity."""


def canonicalise(plural: str, obj: Json) -> None:
    """Rewrites every quantity of the object in place. Raises QuantityError for the first that is none."""
    places = _PLACES.get(plural)
    for owner, key in list(places(obj)) if places else ():
        text = owner[key]
        canonical = str(parse_quantity(text))
        if canonical != text:
            owner[key] = canonical


def _all(amounts: Json | None) -> Places:
    for name in amounts or {}:
        yield amounts, name


def _pod(obj: Json) -> Places:
    spec = obj.get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        yield from _resources(container.get("resources"))
    yield from _all(spec.get("overhead"))
    yield from _resources(spec.get("resources"))


def _resources(resources: Json | None) -> Places:
    for field in ("requests", "limits"):
        yield from _all((resources or {}).get(field))


def _node(obj: Json) -> Places:
    for field in ("capacity", "allocatable"):
        yield from _all((obj.get("status") or {}).get(field))


def _claim(obj: Json) -> Places:
    yield from _claim_spec(obj.get("spec") or {})
    allocation = (obj.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        yield from _all(result.get("consumedCapacity"))


def _template(obj: Json) -> Places:
    yield from _claim_spec((obj.get("spec") or {}).get("spec") or {})


def _claim_spec(spec: Json) -> Places:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for one in [request.get("exactly") or {}, *(request.get("firstAvailable") or ())]:
            yield from _all((one.get("capacity") or {}).get("requests"))


def _slice(obj: Json) -> Places:
    spec = obj.get("spec") or {}
    for device in spec.get("devices") or ():
        for capacity in (device.get("capacity") or {}).values():
            yield from _capacity(capacity)
        for consumption in device.get("consumesCounters") or ():
            yield from _counters(consumption)
    for counter_set in spec.get("sharedCounters") or ():
        yield from _counters(counter_set)


def _capacity(capacity: Json) -> Places:
    yield from _present(capacity, "value")
    policy = capacity.get("requestPolicy") or {}
    yield from _present(policy, "default")
    yield from _all(policy.get("validRange"))
    values = policy.get("validValues") or []
    yield from ((values, index) for index in range(len(values)))


def _counters(owner: Json) -> Places:
    for counter in (owner.get("counters") or {}).values():
        yield from _present(counter, "value")


def _present(owner: Json, name: str) -> Places:
    if name in owner:
        yield owner, name


_PLACES: dict[str, Callable[[Json], Places]] = {
    "pods": _pod,
    "nodes": _node,
    "resourceclaims": _claim,
    "resourceclaimtemplates": _template,
    "resourceslices": _slice,
}

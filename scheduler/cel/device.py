"""A device as expressions see it: built once per device, used by every selector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from scheduler.api.quantity import Quantity
from scheduler.cel.semver import Semver, SemverError
from scheduler.cel.values import DomainMap, MapValue, NativeMap

AttributeKind = Literal["int", "bool", "string", "version", "ints", "bools", "strings", "versions", "unknown"]
AttributeValue = tuple[AttributeKind, Any]


class CelDevice:
    """Attributes and capacity by domain and id, and the error that the conversion met, if any.

    ``attributes``: qualified name -> (kind, value); a name without "/" belongs to the driver's domain. A version
    that does not parse, or an attribute of no known kind, makes *every* evaluation on this device fail with
    ``error`` (kube-scheduler 1.37 converts all attributes before it evaluates). Of several such attributes upstream
    names a random one; we name the first by name.
    """

    __slots__ = ("attributes", "capacity", "driver", "error", "multiple", "value")

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, AttributeValue],
        capacity: Mapping[str, Quantity],
        allow_multiple_allocations: bool = False,
    ) -> None:
        self.driver = driver
        self.multiple = allow_multiple_allocations
        self.error = ""
        self.attributes: dict[str, MapValue] = {}
        self.capacity: dict[str, MapValue] = {}
        for name in sorted(attributes):
            try:
                value = _converted(attributes[name])
            except ValueError as error:
                self.error = self.error or f"attribute {name}: {error}"
                continue
            _store(self.attributes, name, driver, value)
        for name, quantity in capacity.items():
            _store(self.capacity, name, driver, quantity)
        self.value = NativeMap(
            {
                "driver": driver,
                "allowMultipleAllocations": allow_multiple_allocations,
                "attributes": DomainMap(dict(self.attributes)),
                "capacity": DomainMap(dict(self.capacity)),
            }
        )

    def attribute(self, domain: str, name: str) -> Any:
        """The converted value, or None if there is none."""
        found = self.attributes.get(domain)
        return None if found is None else found.data.get(name)

    def capacity_of(self, domain: str, name: str) -> Quantity | None:
        """The capacity, or None if there is none."""
        found = self.capacity.get(domain)
        return None if found is None else found.data.get(name)


def split_name(name: str, driver: str) -> tuple[str, str]:
    """(domain, id) of a qualified name: split at the first "/", else in the driver's domain."""
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)


def _store(domains: dict[str, MapValue], name: str, driver: str, value: Any) -> None:
    domain, short = split_name(name, driver)
    domains.setdefault(domain, NativeMap({})).data[short] = value


def _converted(attribute: AttributeValue) -> Any:
    kind, value = attribute
    if kind == "version":
        return _version(value)
    if kind == "versions":
        return [_version(text) for text in value]
    if kind in ("ints", "bools", "strings"):
        return list(value)
    if kind == "unknown":
        raise ValueError("unsupported attribute value")
    return value


def _version(text: str) -> Semver:
    try:
        return Semver.parse(text)
    except SemverError as error:
        raise ValueError(f"parse semantic version: {error}") from None

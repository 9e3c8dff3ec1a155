"""The type system of the checker: assignability, type parameters and their substitution.

Follows the CEL specification's gradual typing as cel-go 0.29 implements it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """A type: ``kind`` groups, ``name`` identifies, ``params`` are the element types.

    kinds: bool int uint double string bytes null dyn any error duration timestamp list map type struct opaque param.
    ``nullable`` marks protobuf wrapper types; it plays no part in equality.
    """

    kind: str
    name: str
    params: tuple[Type, ...] = ()
    nullable: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.kind == "null":
            return "null"
        if self.kind == "type" and not self.params:
            return "type"
        if self.params:
            return f"{self.name}({', '.join(map(str, self.params))})"
        if self.nullable:
            return f"wrapper({self.name})"
        return self.name


def _primitive(kind: str, name: str = "") -> Type:
    return Type(kind, name or kind)


BOOL: Final = _primitive("bool")
INT: Final = _primitive("int")
UINT: Final = _primitive("uint")
DOUBLE: Final = _primitive("double")
STRING: Final = _primitive("string")
BYTES: Final = _primitive("bytes")
NULL: Final = _primitive("null", "null_type")
DYN: Final = _primitive("dyn")
ANY: Final = _primitive("any", "google.protobuf.Any")
ERROR: Final = _primitive("error", "*error*")
DURATION: Final = _primitive("duration", "google.protobuf.Duration")
TIMESTAMP: Final = _primitive("timestamp", "google.protobuf.Timestamp")
TYPE: Final = _primitive("type")


def list_of(element: Type) -> Type:
    """list(element)"""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """map(key, value)"""
    return Type("map", "map", (key, value))


def type_of(described: Type) -> Type:
    """type(described): the type of a type."""
    return Type("type", "type", (described,))


def optional_of(value: Type) -> Type:
    """optional_type(value)"""
    return Type("opaque", "optional_type", (value,))


def struct(name: str) -> Type:
    """A named object type."""
    return Type("struct", name)


def param(name: str) -> Type:
    """A type parameter."""
    return Type("param", name)


QUANTITY: Final = struct("kubernetes.Quantity")
SEMVER: Final = struct("kubernetes.Semver")
URL: Final = struct("kubernetes.URL")
IP: Final = Type("opaque", "net.IP")
CIDR: Final = Type("opaque", "net.CIDR")
FORMAT: Final = struct("kubernetes.NamedFormat")
DEVICE: Final = struct("kubernetes.DRADevice")

_NESTING: Final = frozenset({"opaque", "list", "map"})


def is_optional(kind: Type) -> bool:
    """Is it an optional?"""
    return kind.kind == "opaque" and kind.name == "optional_type"


def unwrap_optional(kind: Type) -> tuple[Type, bool]:
    """(the type inside, True) of an optional, else (the type, False)."""
    return (kind.params[0], True) if is_optional(kind) else (kind, False)


def is_dyn(kind: Type) -> bool:
    """dyn and google.protobuf.Any: checked only at run time."""
    return kind.kind in ("dyn", "any")


class Mapping:
    """What is known about type parameters so far. Copied before each attempt, so a failed one leaves no trace."""

    __slots__ = ("known",)

    def __init__(self, known: dict[str, Type] | None = None) -> None:
        self.known = known if known is not None else {}

    def assignable(self, left: list[Type], right: list[Type]) -> bool:
        """Can each ``right`` be used where its ``left`` is wanted? What was learned stays only on success."""
        attempt = Mapping(dict(self.known))
        if len(left) == len(right) and all(attempt._assignable(one, two) for one, two in zip(left, right, strict=True)):
            self.known = attempt.known
            return True
        return False

    def substitute(self, kind: Type, params_to_dyn: bool = False) -> Type:
        """Replace known type parameters; the others become dyn on request."""
        if kind.kind == "param":
            if kind.name in self.known:
                return self.substitute(self.known[kind.name], params_to_dyn)
            return DYN if params_to_dyn else kind
        if not kind.params:
            return kind
        inner = tuple(self.substitute(part, params_to_dyn) for part in kind.params)
        return kind if inner == kind.params else Type(kind.kind, kind.name, inner)

    def _assignable(self, left: Type, right: Type) -> bool:
        if right.kind == "param":
            valid, known = self._valid_substitution(left, right)
            if valid or known:
                return valid
        if left.kind == "param":
            return self._valid_substitution(right, left)[0]
        if left.kind in ("dyn", "any", "error") or right.kind in ("dyn", "any", "error"):
            # Any is a wildcard on either side, as dyn.
            return True
        if left.kind == "null":
            return _nullable(right)
        if right.kind == "null":
            return _nullable(left)
        if left.kind == "type":
            return right.kind == "type"
        if left.kind in _NESTING:
            return (
                left.kind == right.kind
                and left.name == right.name
                and len(left.params) == len(right.params)
                and all(self._assignable(one, two) for one, two in zip(left.params, right.params, strict=True))
            )
        return left == right

    def _valid_substitution(self, kind: Type, parameter: Type) -> tuple[bool, bool]:
        """(may ``kind`` stand for the parameter, was the parameter known)."""
        if kind == parameter:
            return True, True
        known = self.known.get(parameter.name)
        if known is not None:
            if kind == known:
                return True, True
            if self._assignable(kind, known):
                general = most_general(kind, known)
                if self._not_inside(parameter, general):
                    self.known[parameter.name] = general
                return True, True
            return False, True
        if self._not_inside(parameter, kind):
            self.known[parameter.name] = kind
            return True, False
        return False, False

    def _not_inside(self, parameter: Type, within: Type) -> bool:
        if parameter == within:
            return False
        if within.kind == "param":
            known = self.known.get(within.name)
            return known is None or self._not_inside(parameter, known)
        return all(self._not_inside(parameter, part) for part in within.params)


def _nullable(kind: Type) -> bool:
    return kind.nullable or kind.kind in ("null", "opaque", "struct", "any", "duration", "timestamp")


def most_general(left: Type, right: Type) -> Type:
    """The less specific of two compatible types; the left one when they agree."""
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    if is_dyn(left) or left.kind == "param":
        return True
    if is_dyn(right) or right.kind == "param" or left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    if left.kind in _NESTING:
        return (
            left.name == right.name
            and len(left.params) == len(right.params)
            and all(_less_specific(one, two) for one, two in zip(left.params, right.params, strict=True))
        )
    return left == right


_NAMED: Final = {
    "bool": BOOL, "int": INT, "uint": UINT, "double": DOUBLE, "string": STRING, "bytes": BYTES, "null": NULL,
    "dyn": DYN, "duration": DURATION, "timestamp": TIMESTAMP, "type": TYPE, "Quantity": QUANTITY, "Semver": SEMVER,
    "URL": URL, "IP": IP, "CIDR": CIDR, "Format": FORMAT,
}  # fmt: skip


def parse_type(text: str) -> Type:
    """A type from the notation of the declaration tables: ``map(K, list(V))``; single capitals are parameters."""
    kind, rest = _parse(text.strip())
    if rest:
        raise ValueError(f"not a type: {text!r}")
    return kind


def _parse(text: str) -> tuple[Type, str]:
    end = 0
    while end < len(text) and text[end].isalnum():
        end += 1
    word, rest = text[:end], text[end:].lstrip()
    params: list[Type] = []
    if rest.startswith("("):
        while rest[0] in "(,":
            inner, rest = _parse(rest[1:].lstrip())
            params.append(inner)
        rest = rest[1:].lstrip()
    if word == "list":
        return list_of(params[0]), rest
    if word == "map":
        return map_of(params[0], params[1]), rest
    if word == "optional":
        return optional_of(params[0]), rest
    if word == "type" and params:
        return type_of(params[0]), rest
    if len(word) == 1 and word.isupper():
        return param(word), rest
    return _NAMED[word], rest

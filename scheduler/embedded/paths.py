"""From a URL path to what it names: kind, namespace, object, sub-resource."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.embedded.kinds import GROUPS, Kind, by_path
from scheduler.embedded.status import no_such_path

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
_REVIEWS = frozenset({"tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"})


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about. `kind` is None for paths that hold no objects (bindings, reviews)."""

    group: str
    version: str
    plural: str
    kind: Kind | None
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str) -> Target:
    """The target of an API path. Raises 404 for what this server does not serve."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_path()
    if (group, version) not in GROUPS:
        raise no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        raise no_such_path()
    plural, name, subresource = (*rest, "", "")[:3]
    kind = by_path(group, version, plural)
    if kind is None and plural not in _REVIEWS and (group, plural) != ("", "bindings"):
        raise no_such_path()
    if kind is not None:
        if bool(namespace) and not kind.namespaced:
            raise no_such_path()
        if name and kind.namespaced and not namespace:
            raise no_such_path()
        if subresource and subresource not in subresources(kind):
            raise no_such_path()
    return Target(group, version, plural, kind, namespace, name, subresource)


def subresources(kind: Kind) -> tuple[str, ...]:
    """The sub-resources this kind has here."""
    own = ("binding", "eviction") if kind.plural == "pods" else ()
    return (("status",) if kind.has_status else ()) + own

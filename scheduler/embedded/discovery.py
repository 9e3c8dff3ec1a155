"""Discovery documents, version and health: what kubectl and client libraries ask before anything else."""

from __future__ import annotations

from scheduler.embedded.kinds import GROUPS, KINDS, Kind
from scheduler.embedded.openapi import openapi
from scheduler.embedded.paths import subresources
from scheduler.embedded.status import Json

GIT_VERSION = "v1.37.2+embedded"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_HEALTH = frozenset({"/livez", "/readyz", "/healthz"})


def document(path: str, server: str) -> Json | str | None:
    """The document at a path without objects, or None when there is none. A str is plain text."""
    path = path.rstrip("/") or "/"
    if path in _HEALTH:
        return "ok"
    if path == "/version":
        return _version()
    if path == "/api":
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": server}
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}
    if path == "/apis":
        groups = [_group(group) for group in dict.fromkeys(group for group, _ in GROUPS if group)]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    parts = path.strip("/").split("/")
    if parts[0] == "openapi":
        return openapi(path)
    if parts[0] == "api" and len(parts) == 2 and parts[1] == "v1":
        return _resources("", "v1")
    if parts[0] == "apis" and len(parts) == 2 and any(group == parts[1] for group, _ in GROUPS):
        return {**_group(parts[1]), "kind": "APIGroup", "apiVersion": "v1"}
    if parts[0] == "apis" and len(parts) == 3 and (parts[1], parts[2]) in GROUPS:
        return _resources(parts[1], parts[2])
    return None


def _version() -> Json:
    return {
        "major": "1",
        "minor": "37",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "emulationMajor": "1",
        "emulationMinor": "37",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36",
        "platform": "linux/amd64",
    }


def _group(group: str) -> Json:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for name, version in GROUPS if name == group]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(group: str, version: str) -> Json:
    resources: list[Json] = []
    for kind in KINDS:
        if (kind.group, kind.version) == (group, version):
            resources.append(_resource(kind))
            resources += [_subresource(kind, name) for name in subresources(kind)]
    for plural, name in _REVIEWS.get(group, ()):
        resources.append(
            {"name": plural, "singularName": name.lower(), "namespaced": False, "kind": name, "verbs": ["create"]}
        )
    if not group:
        resources.append(
            {"name": "bindings", "singularName": "binding", "namespaced": True, "kind": "Binding", "verbs": ["create"]}
        )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


_REVIEWS = {
    "authentication.k8s.io": (("tokenreviews", "TokenReview"), ("selfsubjectreviews", "SelfSubjectReview")),
    "authorization.k8s.io": (
        ("subjectaccessreviews", "SubjectAccessReview"),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ),
}


def _resource(kind: Kind) -> Json:
    out: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS,
    }
    if kind.short_names:
        out["shortNames"] = list(kind.short_names)
    if kind.categories:
        out["categories"] = list(kind.categories)
    return out


def _subresource(kind: Kind, name: str) -> Json:
    out: Json = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": {"binding": "Binding", "eviction": "Eviction"}.get(name, kind.kind),
        "verbs": ["get", "patch", "update"] if name == "status" else ["create"],
    }
    if name == "eviction":
        out |= {"group": "policy", "version": "v1"}
    return out

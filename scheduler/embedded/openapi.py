"""OpenAPI v3, as much of it as kubectl asks for before it sends an object: whether the server checks fields itself.

Source: kubectl 1.32 to 1.37 (client-go's QueryParamVerifierV3): a PATCH operation of the kind that names the parameter
fieldValidation. Without one, kubectl checks fields against /openapi/v2 and fails where there is none. There are no
schemas, and the parameter itself is not looked at: unknown fields are kept.
"""

from __future__ import annotations

from scheduler.embedded.kinds import GROUPS, KINDS, Kind
from scheduler.embedded.status import Json

ROOT = "/openapi/v3"
_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}


def openapi(path: str) -> Json | None:
    """The document at a path below ``/openapi/v3``, None when there is none."""
    if path == ROOT:
        bases = [_base(group, version) for group, version in GROUPS]
        return {"paths": {base: {"serverRelativeURL": f"{ROOT}/{base}"} for base in bases}}
    for group, version in GROUPS:
        if path == f"{ROOT}/{_base(group, version)}":
            kinds = [kind for kind in KINDS if (kind.group, kind.version) == (group, version)]
            return {
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": "v1.37.2"},
                "paths": dict(map(_operations, kinds)),
                "components": {"schemas": {}},
            }
    return None


def _base(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _operations(kind: Kind) -> tuple[str, Json]:
    """The path of one object of a kind, and that it can be patched."""
    within = "/namespaces/{namespace}" if kind.namespaced else ""
    patch = {
        "operationId": f"patch{kind.kind}",
        "parameters": [_FIELD_VALIDATION],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
    return f"/{_base(kind.group, kind.version)}{within}/{kind.plural}/{{name}}", {"patch": patch}

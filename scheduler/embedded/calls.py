"""Reading requests: the verb and target for faults and audit, bodies, delete options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from scheduler.embedded import patch
from scheduler.embedded.faults import Call
from scheduler.embedded.paths import Target
from scheduler.embedded.registry import DeleteOptions
from scheduler.embedded.status import Json, bad_request, unsupported_media_type, unsupported_patch

_WRITE_TYPES = ("application/json", "application/yaml")
_JSON_TYPES = frozenset({"", "application/json", "application/octet-stream", patch.JSON, patch.MERGE, patch.STRATEGIC})
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """The API verb: get, list, watch, create, update, patch, delete, deletecollection; "" for other methods."""
    verb = _VERBS.get(method, "")
    if target.name:
        return verb
    if verb == "get":
        return "watch" if truth(query.get("watch")) else "list"
    return "deletecollection" if verb == "delete" else verb


def call_of(verb: str, target: Target, user_agent: str) -> Call:
    return Call(verb, target.plural, target.namespace, target.name, target.subresource, user_agent)


def truth(text: str | None) -> bool:
    return text is not None and text.lower() not in ("", "0", "false")


def parse_body(raw: bytes, content_type: str, *, patching: bool) -> Any:
    """The decoded body; content types other than JSON and YAML are refused (415)."""
    kind = content_type.split(";")[0].strip()
    if kind in ("application/yaml", "application/apply-patch+yaml"):
        try:
            return yaml.safe_load(raw)
        except yaml.YAMLError as error:
            raise bad_request(f"error decoding YAML: {error}") from error
    if kind not in _JSON_TYPES:
        raise unsupported_patch() if patching else unsupported_media_type(_WRITE_TYPES)
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        if patching:
            raise bad_request("invalid JSON patch") from error
        raise bad_request(f"the object provided is unrecognized: json parse error: {error}") from error


def delete_options(body: Any, query: Mapping[str, str]) -> DeleteOptions:
    """DeleteOptions from the body, else from the query."""
    options: Json = body if isinstance(body, dict) else {}
    preconditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    try:
        grace_s = None if grace is None else int(grace)
    except (TypeError, ValueError) as error:
        raise bad_request(f"invalid gracePeriodSeconds: {grace!r}") from error
    return DeleteOptions(
        grace_period_s=grace_s,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        propagation=str(options.get("propagationPolicy") or query.get("propagationPolicy") or ""),
        dry_run=bool(options.get("dryRun")) or "All" in query.get("dryRun", ""),
    )

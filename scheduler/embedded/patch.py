"""The three patch formats: JSON merge (RFC 7386), JSON patch (RFC 6902) and strategic merge. Pure functions.

Every function returns a new object and leaves its inputs alone; unchanged parts may be shared with the input.
"""

from __future__ import annotations

import copy
from typing import Any

from scheduler.embedded.merge_keys import SET, merge_key
from scheduler.embedded.status import ApiError, Json, bad_request

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def merge_patch(current: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else (lists too) replaces."""
    if not isinstance(patch, dict):
        return patch
    out = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merge_patch(out.get(name), value)
    return out


def strategic_merge_patch(kind: str, current: Json, patch: Json) -> Json:
    """Kubernetes' strategic merge: lists with a merge key merge by it, others are replaced. `kind` picks the keys."""
    return _merge_object(kind, (), current, patch)


_ORDER = "$setElementOrder/"
_DELETE_FROM = "$deleteFromPrimitiveList/"


def _merge_object(kind: str, path: tuple[str, ...], current: Any, patch: Json) -> Json:
    directive = patch.get("$patch")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    out: Json = dict(current) if isinstance(current, dict) else {}
    retain = patch.get("$retainKeys")
    if isinstance(retain, list):
        out = {name: value for name, value in out.items() if name in retain}
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            field = name.removeprefix(_DELETE_FROM)
            out[field] = [item for item in out.get(field) or [] if item not in value]
        elif not name.startswith("$"):
            _merge_field(kind, (*path, name), out, patch, name)
    return out


def _merge_field(kind: str, path: tuple[str, ...], out: Json, patch: Json, name: str) -> None:
    value = patch[name]
    if value is None:
        out.pop(name, None)
    elif isinstance(value, dict):
        out[name] = _merge_object(kind, path, out.get(name), value)
    elif isinstance(value, list):
        key = merge_key(kind, path)
        current = list(out.get(name) or [])
        if key is None:
            out[name] = _without_directives(value)
        elif key == SET:
            merged = current + [item for item in value if item not in current]
            out[name] = _in_order(merged, current, patch.get(_ORDER + name) or value, SET)
        else:
            merged = _merge_list(kind, path, key, current, value)
            order = patch.get(_ORDER + name) or [item for item in value if "$patch" not in item]
            out[name] = _in_order(merged, current, order, key)
    else:
        out[name] = value


def _without_directives(value: list[Any]) -> list[Any]:
    return [item for item in value if not (isinstance(item, dict) and "$patch" in item)]


def _merge_list(kind: str, path: tuple[str, ...], key: str, current: list[Any], patch: list[Any]) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return _without_directives(patch)
    out = list(current)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {key}")
        at = next((i for i, old in enumerate(out) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            out = [old for old in out if old.get(key) != item[key]]
        elif at is None:
            out.append(_merge_object(kind, path, {}, item))
        else:
            out[at] = _merge_object(kind, path, out[at], item)
    return out


def _in_order(items: list[Any], current: list[Any], order: list[Any], key: str) -> list[Any]:
    """Items of the patch in the patch's order, others in theirs; where the two meet, a new item comes first.

    Observed on kube-apiserver 1.37: a patch that adds to a list puts the new items in front.
    """

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    before = [identity(item) for item in current]
    wanted = [identity(item) for item in order]
    ours = sorted((i for i in items if identity(i) in wanted), key=lambda item: wanted.index(identity(item)))
    others = [item for item in items if identity(item) not in wanted]
    out: list[Any] = []
    while ours and others:
        left, right = identity(others[0]), identity(ours[0])
        known = left in before and right in before
        out.append((others if known and before.index(left) < before.index(right) else ours).pop(0))
    return out + ours + others


def json_patch(current: Json, operations: Any) -> Json:
    """RFC 6902. A failing test or a missing path is 422, a malformed operation 400."""
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    document: Any = copy.deepcopy(current)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("error decoding patch: an operation needs op and path")
        document = _apply_operation(document, operation)
    if not isinstance(document, dict):
        raise bad_request("the patch does not leave an object")
    return document


def _apply_operation(document: Any, operation: Json) -> Any:
    op, path = operation.get("op"), _pointer(operation["path"])
    match op:
        case "test":
            if _look_up(document, path) != operation.get("value"):
                raise _unprocessable()
            return document
        case "remove":
            return _remove(document, path)
        case "add":
            return _insert(document, path, copy.deepcopy(operation.get("value")))
        case "replace":
            return _replace(document, path, copy.deepcopy(operation.get("value")))
        case "move" | "copy":
            source = _pointer(operation.get("from") or "")
            value = copy.deepcopy(_look_up(document, source))
            return _insert(_remove(document, source) if op == "move" else document, path, value)
        case _:
            raise bad_request(f"Unexpected kind: {op}")


def _unprocessable() -> ApiError:
    """What the real server answers whatever is wrong with an operation: it names neither operation nor path."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def _pointer(path: str) -> list[str]:
    if path == "":
        return []
    return [part.replace("~1", "/").replace("~0", "~") for part in path.lstrip("/").split("/")]


def _index(items: list[Any], part: str, *, end: bool = False) -> int:
    if end and part == "-":
        return len(items)
    if not part.isdigit() or int(part) > len(items) - (0 if end else 1):
        raise _unprocessable()
    return int(part)


def _look_up(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, list):
            document = document[_index(document, part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise _unprocessable()
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    _look_up(document, path)
    parent = _look_up(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1])]
    else:
        del parent[path[-1]]
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    """The real server adds a field that is missing; only a missing parent or index is an error."""
    if not path:
        return value
    parent = _look_up(document, path[:-1])
    if isinstance(parent, list):
        parent[_index(parent, path[-1])] = value
        return document
    return _insert(document, path, value)


def _insert(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _look_up(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(_index(parent, path[-1], end=True), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise _unprocessable()
    return document

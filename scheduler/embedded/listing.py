"""LIST: pages over one consistent revision, and the rules of resourceVersion and resourceVersionMatch."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from scheduler.embedded.kinds import Kind
from scheduler.embedded.selectors import matcher
from scheduler.embedded.status import (
    EXPIRED_LIST_TEXT,
    ApiError,
    bad_request,
    expired,
    field_forbidden,
    invalid,
    too_large_revision,
)
from scheduler.embedded.store import Key, Record, Store


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list. `token` continues it; `remaining` is unknown (None) under a selector."""

    records: Sequence[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct):
    rv: int
    after: Key


def parse_revision(text: str) -> int:
    if not text:
        return 0
    if not text.isdigit():
        problem = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}": {problem}')
    return int(text)


def page(store: Store, kind: Kind, namespace: str, query: Mapping[str, str]) -> Page:
    """One page of a list for the query's limit, continue, selectors and resourceVersion. Raises 400, 410 or 504."""
    match = matcher(query.get("labelSelector", ""), query.get("fieldSelector", ""), kind)
    limit = _limit(query.get("limit", ""))
    revision, after = _start(store, kind, query)
    records = store.table(kind.table).at(revision)
    if records is None:
        raise expired(EXPIRED_LIST_TEXT if after else "The resourceVersion for the provided list is too old.")
    if after is not None:
        records = records[bisect_right(records, after, key=lambda record: record.key) :]
    if namespace:
        records = [record for record in records if record.key[0] == namespace]
    if match is not None:
        records = [record for record in records if match(record.obj)]
    if not limit or len(records) <= limit:
        return Page(records, revision)
    shown = records[:limit]
    token = base64.urlsafe_b64encode(msgspec.json.encode(_Token(revision, shown[-1].key))).decode().rstrip("=")
    return Page(shown, revision, token, len(records) - limit if match is None else None)


def _limit(text: str) -> int:
    if text and not text.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or 0)


def _start(store: Store, kind: Kind, query: Mapping[str, str]) -> tuple[int, Key | None]:
    """The revision a list shows and the key it continues after."""
    wanted_text, rule = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    token = query.get("continue", "")
    if token:
        if wanted_text not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return _parse_token(token)
    wanted = parse_revision(wanted_text)
    if rule and not wanted_text:
        raise _bad_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if rule == "Exact" and wanted == 0:
        raise _bad_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if wanted > store.revision:
        raise too_large_revision(wanted, store.revision)
    return (wanted if rule == "Exact" else store.revision), None


def _bad_match(text: str) -> ApiError:
    return invalid("ListOptions", "meta.k8s.io", "", [field_forbidden("resourceVersionMatch", text)])


def _parse_token(token: str) -> tuple[int, Key]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        found = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    return found.rv, found.after

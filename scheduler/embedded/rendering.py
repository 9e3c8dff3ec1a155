"""Bytes of replies: objects, lists and watch events as JSON, as Tables for kubectl, or as metadata only."""

from __future__ import annotations

import json
from datetime import datetime
from enum import Enum

import msgspec

from scheduler.embedded import tables
from scheduler.embedded.kinds import Kind
from scheduler.embedded.listing import Page
from scheduler.embedded.objects import translation
from scheduler.embedded.status import Json
from scheduler.embedded.store import Record

_META = "meta.k8s.io/v1"


class Form(Enum):
    """How the client wants to see objects."""

    JSON = "JSON"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


def form(accept: str) -> Form:
    """The first form the Accept header names that this server has."""
    for part in accept.split(","):
        words = {word.strip() for word in part.split(";")}
        if "as=Table" in words and "v=v1" in words:
            return Form.TABLE
        if words & {"as=PartialObjectMetadata", "as=PartialObjectMetadataList"} and "v=v1" in words:
            return Form.METADATA
        if "application/json" in words and not any(word.startswith("as=") for word in words):
            return Form.JSON
    return Form.JSON


class Renderer:
    """Renders objects of one kind in one form. `now` dates the AGE column."""

    def __init__(self, kind: Kind, wanted: Form, now: datetime, *, with_columns: bool = True) -> None:
        self._kind = kind
        self._form = wanted
        self._now = now
        self._translate = translation(kind)
        self._prefix = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
        self._with_columns = with_columns

    def one(self, record: Record) -> bytes:
        """One object, with kind and apiVersion. Table rows repeat the column definitions only the first time."""
        if self._form is Form.JSON:
            return self._prefix + record.json(self._translate)[1:]
        if self._form is Form.METADATA:
            return msgspec.json.encode(_metadata_only(record))
        table = tables.table(self._kind, [record], self._now, str(record.revision))
        if not self._with_columns:
            table["columnDefinitions"] = None
        self._with_columns = False
        return msgspec.json.encode(table)

    def page(self, page: Page) -> bytes:
        metadata: Json = {"resourceVersion": str(page.revision)}
        if page.token:
            metadata["continue"] = page.token
        if page.remaining:
            metadata["remainingItemCount"] = page.remaining
        if self._form is Form.TABLE:
            table = tables.table(self._kind, page.records, self._now, str(page.revision))
            table["metadata"] = metadata
            return msgspec.json.encode(table)
        if self._form is Form.METADATA:
            items = [_metadata_only(record) for record in page.records]
            head = {"kind": "PartialObjectMetadataList", "apiVersion": _META, "metadata": metadata}
            return msgspec.json.encode({**head, "items": items})
        head_text = json.dumps(metadata, separators=(",", ":"))
        start = f'{{"kind":"{self._kind.kind}List","apiVersion":"{self._kind.api_version}",'
        start += f'"metadata":{head_text},"items":['
        return b"".join([start.encode(), b",".join(r.json(self._translate) for r in page.records), b"]}"])

    def event(self, event_type: str, record: Record) -> bytes:
        """One line of a watch."""
        return b'{"type":"' + event_type.encode() + b'","object":' + self.one(record) + b"}\n"

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        metadata: Json = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: Json = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        if self._form is Form.TABLE:
            partial = {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": metadata}
            rows = [{"cells": [], "object": partial}]
            obj = {"kind": "Table", "apiVersion": _META, "metadata": {"resourceVersion": str(revision)}, "rows": rows}
        return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"


def error_event(status: Json) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"


def _metadata_only(record: Record) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": record.obj["metadata"]}


def deleted_status(kind: Kind, record: Record) -> Json:
    """The Status that answers a DELETE of kinds that don't return the object."""
    details: Json = {"name": record.key[1]}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.plural, "uid": record.uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def created_status() -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

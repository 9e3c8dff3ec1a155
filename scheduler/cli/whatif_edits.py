"""The flags that mean edits, in the order they are written, and the file that holds a list of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scheduler.cli.options import Arguments
from scheduler.errors import UserError

Entry = dict[str, Any]
FILES = "files"


def add_edit_flags(parser: argparse.ArgumentParser) -> None:
    """Each flag appends one entry, as a file of edits would hold it; they are carried out in the order written."""

    def flag(name: str, metavar: str, text: str, entry: Callable[[str], Entry]) -> None:
        parser.add_argument(
            name, dest="edits", action="append", default=[], metavar=metavar, help=text, type=_entry(name, entry)
        )

    flag("--add", "FILE[,count=N]", "create what a manifest holds, Pods and workloads N times", _add)
    flag(
        "--apply",
        "FILE",
        "the same for any other object, a DeviceTaintRule for example",
        lambda v: {"add": {"file": v}},
    )
    flag("--delete", "KIND/[NAMESPACE/]NAME", "delete a pod, claim, node, slice, taint rule, …", _delete)
    flag("--add-nodes", "NODE[,count=N]", "N nodes like NODE, with copies of its slices", _add_nodes)
    flag("--drain", "NODE", "cordon a node and evict its Pods", lambda value: {"drain": {"node": value}})
    flag("--cordon", "NODE", "a node takes no new Pods", lambda value: {"cordon": {"node": value}})
    flag("--uncordon", "NODE", "a node takes Pods again", lambda value: {"uncordon": {"node": value}})
    flag("--taint-node", "NODE=KEY[=VALUE]:EFFECT", "taint a node", lambda v: {"taintNode": _taint(v, "node")})
    taint = "DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT"
    flag("--taint-device", taint, "taint a published device", lambda v: {"taintDevice": _taint(v, "device")})
    flag("--weight", "[PROFILE:]PLUGIN=N", "another weight for a score plugin, 0 to leave it out", _weight)
    flag("--new-config", "FILE", "another KubeSchedulerConfiguration", lambda value: {"config": {"file": value}})
    flag("--serve", "SCHEDULER[=PROFILE]", "waiting Pods of another scheduler are served by a profile", _serve)
    flag("--edits", "FILE", "a YAML list of edits, - for standard input", lambda value: {FILES: value})


def _entry(name: str, make: Callable[[str], Entry]) -> Callable[[str], Entry]:
    def parse(value: str) -> Entry:
        try:
            return make(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{value!r}: {error}") from error

    return parse


def edit_entries(arguments: Arguments, read: Callable[[str], Iterable[Any]]) -> list[Any]:
    """All entries in order; files of edits are read, and the paths in them are relative to their folder."""
    entries: list[Any] = []
    for entry in arguments.edits:
        if FILES not in entry:
            entries.append(entry)
            continue
        path = entry[FILES]
        folder = Path() if path == "-" else Path(path).parent
        for document in read(path):
            entries.extend(_relative(one, folder) for one in _listed(path, document))
    return entries


def _listed(path: str, document: Any) -> list[Any]:
    """The edits of one document: a list, an object whose field ``edits`` is one, or one entry of a JSON list."""
    if isinstance(document, dict) and list(document) == ["edits"]:
        document = document["edits"]
    if isinstance(document, dict) and len(document) == 1:
        return [document]
    if document is not None and not isinstance(document, list):
        raise UserError(f"file {path}", "edits", "a list of edits is needed")
    return document or []


def _relative(entry: Any, folder: Path) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {
        name: {**body, "file": str(folder / body["file"])}
        if isinstance(body, dict) and isinstance(body.get("file"), str) and body["file"] not in ("", "-")
        else body
        for name, body in entry.items()
    }


def _options(value: str) -> tuple[str, Entry]:
    """``FILE,count=3`` → (FILE, {count: 3})."""
    head, _, rest = value.partition(",")
    if not head:
        raise ValueError("a name is missing before the comma")
    options: Entry = {}
    for part in filter(None, rest.split(",")):
        name, equals, text = part.partition("=")
        if name != "count" or not equals:
            raise ValueError(f"unknown option {part!r}; only count=N is known")
        if not text.isdigit():
            raise ValueError(f"count {text!r} is not a number")
        options["count"] = int(text)
    return head, options


def _add(value: str) -> Entry:
    file, options = _options(value)
    return {"add": {"file": file, **options}}


def _add_nodes(value: str) -> Entry:
    like, options = _options(value)
    return {"addNodes": {"like": like, **options}}


def _delete(value: str) -> Entry:
    kind, slash, key = value.partition("/")
    if not slash or not key:
        raise ValueError("KIND/NAME or KIND/NAMESPACE/NAME is needed")
    return {"delete": {kind: key}}


def _taint(value: str, what: str) -> Entry:
    target, equals, taint = value.partition("=")
    key_value, colon, effect = taint.rpartition(":")
    key, _, text = key_value.partition("=")
    if not (target and equals and colon and key and effect):
        raise ValueError(f"{what.upper()}=KEY[=VALUE]:EFFECT is needed")
    entry = {what: target, "key": key, "effect": effect}
    return {**entry, "value": text} if text else entry


def _weight(value: str) -> Entry:
    name, equals, number = value.rpartition("=")
    profile, _, plugin = name.rpartition(":")
    if not equals or not plugin or not number.isdigit():
        raise ValueError("PLUGIN=N is needed")
    entry: Entry = {"plugin": plugin, "weight": int(number)}
    return {"weight": {**entry, "profile": profile} if profile else entry}


def _serve(value: str) -> Entry:
    scheduler, _, profile = value.partition("=")
    if not scheduler:
        raise ValueError("the name of a scheduler is needed")
    return {"serve": {"schedulerName": scheduler, **({"profile": profile} if profile else {})}}

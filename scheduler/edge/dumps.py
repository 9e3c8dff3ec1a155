"""Reads what ``kubectl get … -o yaml`` or ``-o json`` wrote: Lists, single objects, several documents, folders."""

from __future__ import annotations

import codecs
import gc
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from scheduler.api.deep import outline
from scheduler.errors import UserError

SUFFIXES = (".yaml", ".yml", ".json")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What stands at the very beginning of a line: a key of a document's own mapping, or the line between two documents.
_AT_THE_MARGIN = re.compile(rb"^(?:(?:---|\.\.\.)(?=\s|$)|(?P<key>[A-Za-z]\w*):(?=\s|$))", re.MULTILINE)
_GAP = re.compile(r"(?:\s|---)*")


def read_dumps(paths: Sequence[str]) -> Iterator[Any]:
    """Every document of the files, in order, as ``read_named_dumps`` finds them."""
    return (document for _, document in read_named_dumps(paths))


def origins(documents: Iterable[tuple[str, Any]]) -> dict[tuple[str, str], str]:
    """(kind, ``namespace/name``) → the file that it was read from; the last one counts. Nonsense is left out."""
    found: dict[tuple[str, str], str] = {}
    for file, document in documents:
        for item in _objects(document):
            metadata = item.get("metadata")
            if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
                continue
            for key in (metadata["name"], f"{metadata.get('namespace') or 'default'}/{metadata['name']}"):
                found[str(item.get("kind")), key] = file
    return found


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if not str(document.get("kind", "")).endswith("List") or not isinstance(items, list):
        yield document
        return
    kind = str(document["kind"]).removesuffix("List")
    for item in items:
        for found in _objects(item):
            yield found if found.get("kind") or not kind else {**found, "kind": kind}


def read_named_dumps(paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(file, document) in order. ``-`` is standard input; a folder stands for its YAML and JSON files.

    Raises OSError for a file that cannot be read and UserError for one that is neither YAML nor JSON. Cost: YAML about
    a third of a second per MB, JSON a fiftieth of that.
    """
    for given in paths:
        if given == "-":
            name = "standard input"
            yield from ((name, document) for document in _documents(name, sys.stdin.buffer.read()))
            continue
        path = Path(given)
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES) if path.is_dir() else [path]
        if not files:
            raise UserError(f"folder {given}", "", f"no file that ends with {', '.join(SUFFIXES)}")
        for file in files:
            yield from ((str(file), document) for document in _documents(str(file), file.read_bytes()))


def _documents(name: str, content: bytes) -> Iterator[Any]:
    try:
        content = _as_utf8(content)
        found = _json_documents(content)
        if found is None:
            with uncollected():
                found = _yaml_documents(name, content)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UserError(f"file {name}", "", " ".join(f"not YAML or JSON: {error}".split())) from error
    yield from found


def _as_utf8(content: bytes) -> bytes:
    """Without a byte order mark, as some shells write it in front of what they redirect."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16").encode()
    return content.removeprefix(codecs.BOM_UTF8)


def _json_documents(content: bytes) -> list[Any] | None:
    """One JSON document or several behind each other, lists taken apart; None for what is not all JSON."""
    if content.lstrip()[:1] not in (b"{", b"["):
        return None
    content = outline(content)
    try:
        found = [msgspec.json.decode(content)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            found = list(_json_stream(content.decode()))
        except (ValueError, RecursionError):
            return None  # YAML in flow style, or nothing that can be read
    return [document for one in found for document in (one if isinstance(one, list) else [one])]


def _json_stream(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = _GAP.match(text, 0).end()  # type: ignore[union-attr]  # it matches everywhere, if only nothing
    while at < len(text):
        document, at = decoder.raw_decode(text, at)
        yield document
        at = _GAP.match(text, at).end()  # type: ignore[union-attr]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _yaml_documents(name: str, content: bytes) -> list[Any]:
    found: list[Any] = []
    for begin, end in _parts(name, content):
        try:
            found += yaml.load_all(content[begin:end], Loader=_LOADER)  # the safe loader, in C where it is built
        except yaml.YAMLError:
            # Once more behind as many empty lines as stand before the part, for an error that names the right line.
            found += yaml.load_all(b"\n" * content.count(b"\n", 0, begin) + content[begin:end], Loader=_LOADER)
    return found


def _parts(name: str, content: bytes) -> Iterator[tuple[int, int]]:
    """The content cut where an object begins that no ``---`` separates from the one before it.

    Files that several ``kubectl get … >> FILE`` wrote look like that, and the loader would let the last ``items`` win
    without a word. Raises UserError for a name that stands twice in one object.
    """
    begin, keys, cut = 0, set[bytes](), False

    def check() -> None:
        if cut and not {b"apiVersion", b"kind"} <= keys:
            line, key = content.count(b"\n", 0, begin) + 1, content[begin:].partition(b":")[0].decode()
            raise UserError(f"file {name}", "", f"line {line}: {key} stands a second time in one object")

    for match in _AT_THE_MARGIN.finditer(content):
        key = match["key"]
        if key is None:
            check()
            keys, cut = set(), False
        elif key in keys:
            check()
            yield begin, match.start()
            begin, keys, cut = match.start(), {key}, True
        else:
            keys.add(key)
    check()
    yield begin, len(content)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection: it would look at the growing tree again and again, for much of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

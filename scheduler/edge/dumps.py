"""Reads what ``kubectl get … -o yaml`` or ``-o json`` wrote: Lists, single objects, several documents, folders."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from scheduler.errors import UserError

SUFFIXES = (".yaml", ".yml", ".json")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
    if content.lstrip()[:1] in (b"{", b"["):
        try:
            found = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # several documents, or YAML in flow style
        else:
            yield from found if isinstance(found, list) else [found]
            return
    try:
        with uncollected():
            found = list(yaml.load_all(content, Loader=_LOADER))  # the safe loader, in C where it is built
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UserError(f"file {name}", "", " ".join(f"not YAML or JSON: {error}".split())) from error
    yield from found


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

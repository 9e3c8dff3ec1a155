"""Reads what ``kubectl get … -o yaml`` or ``-o json`` wrote: Lists, single objects, several documents, folders."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from scheduler.errors import UserError

SUFFIXES = (".yaml", ".yml", ".json")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_dumps(paths: Sequence[str]) -> Iterator[Any]:
    """Every document of the files, in order. ``-`` is standard input; a folder stands for its YAML and JSON files.

    Raises OSError for a file that cannot be read and UserError for one that is neither YAML nor JSON. Cost: YAML about
    a third of a second per MB, JSON a fiftieth of that.
    """
    for given in paths:
        if given == "-":
            yield from _documents("standard input", sys.stdin.buffer.read())
            continue
        path = Path(given)
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES) if path.is_dir() else [path]
        if not files:
            raise UserError(f"folder {given}", "", f"no file that ends with {', '.join(SUFFIXES)}")
        for file in files:
            yield from _documents(str(file), file.read_bytes())


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
        with _uncollected():
            found = list(yaml.load_all(content, Loader=_LOADER))  # the safe loader, in C where it is built
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UserError(f"file {name}", "", " ".join(f"not YAML or JSON: {error}".split())) from error
    yield from found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection: it would look at the growing tree again and again, for three quarters of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""Dumps that are cut off, partial, doubled or nonsense: told in plain words, exit code 0, 1 or 2, never a traceback."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.cli.main import main
from tests.explain.test_situations import ALL

Object = dict[str, Any]
COMMANDS = (["explain", "pod/p"], ["lint"], ["inventory", "--by", "device"], ["inventory"])
ITEMS = [situation.items for situation in ALL if len(str(situation.items)) < 6000]
KINDS = ("Node", "Pod", "ResourceSlice", "ResourceClaim", "DeviceClass")
JUNK: tuple[Any, ...] = (None, "", "text", 0, -1, 1e400, True, [], {}, [None], {"a": None}, "9" * 400, "\u0000", "ä\n")


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, int, str, str]]:
    """Every command on the file: name, exit code, output, errors."""
    for command in COMMANDS:
        code = main([*command, "-f", str(path)])
        shown = capsys.readouterr()
        yield command[0], code, shown.out, shown.err


def check(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command ends with a code of its own, and says something."""
    for command, code, out, err in run(path, capsys):
        assert code in (0, 1, 2), command
        assert "Traceback" not in out + err
        assert out or err
        if code == 1:
            assert err.startswith(f"dra-scheduler {command}: "), err


def listed(items: list[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": items}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.sampled_from(ITEMS), where=st.floats(0, 1), as_json=st.booleans())
def test_a_file_that_is_cut_off(
    items: list[Object], where: float, as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it ends."""
    text = json.dumps(listed(items)) if as_json else yaml.safe_dump(listed(items))
    file = tmp_path / "dump.yaml"
    file.write_text(text[: int(len(text) * where)])
    check(file, capsys)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, (*path, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _places(inner, (*path, place))


def _mangled(items: list[Object], seed: int) -> list[Any]:
    """One to three fields of the objects replaced with nonsense, or gone."""
    source = random.Random(seed)
    made: Any = copy.deepcopy(items)
    for _ in range(source.randint(1, 3)):
        path = source.choice([place for place in _places(made) if place])
        holder = made
        for step in path[:-1]:
            holder = holder[step]
        if source.random() < 0.3:
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(source.choice(JUNK))
    found: list[Any] = made
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.sampled_from(ITEMS), seed=st.integers(0, 10**6))
def test_fields_of_nonsense(items: list[Object], seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be used is left out and named; the rest is judged."""
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump(listed(_mangled(items, seed)), allow_unicode=True))
    check(file, capsys)


def test_a_reservation_that_cannot_be_read_is_a_user_nobody_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The device stays in use, and the rest of the answer is whole."""
    items = copy.deepcopy(next(one.items for one in ALL if one.name == "in use by a Pod's claim"))
    next(item for item in items if "status" in item and "allocation" in item["status"])["status"]["reservedFor"] = ["x"]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump(listed(items)))
    assert "1 in use" in next(run(file, capsys))[2]
    check(file, capsys)


@pytest.mark.parametrize("missing", KINDS)
def test_a_kind_that_is_missing_is_named(missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which kind, and what cannot be judged without it."""
    items = [item for item in ALL[0].items if item["kind"] != missing]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump(listed(items)))
    for command, code, out, err in run(file, capsys):
        if command == "explain" and missing == "Pod":
            assert code == 1
            assert "not found; no Pod in the input: " in err
            continue
        assert f"note: no {missing} in the input: " in out, out


CONTENTS: dict[str, Callable[[list[Object]], str]] = {
    "nothing": lambda items: "",
    "an empty list": lambda items: yaml.safe_dump(listed([])),
    "empty typed lists": lambda items: "---\n".join(
        yaml.safe_dump({"apiVersion": "v1", "kind": f"{kind}List", "items": []}) for kind in KINDS
    ),
    "lists without items": lambda items: yaml.safe_dump({"apiVersion": "v1", "kind": "List"}),
    "items that are no list": lambda items: yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": "all"}),
    "a list in a list": lambda items: yaml.safe_dump(listed([listed(items)])),
    "foreign kinds": lambda items: yaml.safe_dump({"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "t"}}),
    "wrong versions": lambda items: yaml.safe_dump(listed([item | {"apiVersion": "v9"} for item in items])),
    "no versions": lambda items: yaml.safe_dump(listed([item | {"apiVersion": None} for item in items])),
    "wrong kinds": lambda items: yaml.safe_dump(listed([item | {"kind": "Node"} for item in items])),
    "everything twice": lambda items: yaml.safe_dump(listed([*items, *items])),
    "a name twice, and different": lambda items: yaml.safe_dump(listed([*items, *(i | {"spec": {}} for i in items)])),
    "text": lambda items: "Error from server (Forbidden): nodes is forbidden\n",
    "a number": lambda items: "42\n",
    "binary": lambda items: "\x00\x01\x02",
    "aliases without end": lambda items: "a: &a [*a]\n",
    "a bomb": lambda items: "a: &a [x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    ),
    "deep": lambda items: "[" * 3000,
    "deep yaml": lambda items: "".join(" " * n + "a:\n" for n in range(900)),
    "tags": lambda items: "!!python/object/apply:os.system ['true']\n",
}  # fmt: skip


@pytest.mark.parametrize("content", CONTENTS, ids=lambda name: name.replace(" ", "-"))
def test_files_that_are_no_dump(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing, nonsense, another kind of nonsense."""
    file = tmp_path / "dump.yaml"
    file.write_text(CONTENTS[content](ALL[0].items))
    check(file, capsys)


def test_bytes_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in no encoding at all, a folder without dumps, a file that is not there."""
    file = tmp_path / "dump.yaml"
    file.write_bytes(b"\xff\xfe\x00kind: \xe9")
    check(file, capsys)
    (tmp_path / "empty").mkdir()
    check(tmp_path / "empty", capsys)
    check(tmp_path / "nowhere", capsys)


def test_objects_that_were_left_out_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kind, name, field and problem."""
    items = copy.deepcopy(ALL[0].items)
    next(item for item in items if item["kind"] == "Node")["spec"] = {"taints": "none"}
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump(listed(items)))
    for _, _, out, _ in run(file, capsys):
        assert "note: left out: Node n1: $.spec.taints: " in out, out

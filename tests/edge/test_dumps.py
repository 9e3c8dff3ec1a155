"""Reading kubectl's files: every shape they come in, and a clear word for those that are none."""

from __future__ import annotations

import gc
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from scheduler.edge.dumps import read_dumps
from scheduler.errors import UserError

ITEMS = [{"kind": "Node", "metadata": {"name": "a"}}, {"kind": "Node", "metadata": {"name": "b"}}]


@pytest.mark.parametrize(
    "content",
    [
        yaml.safe_dump_all(ITEMS),
        "# a comment\n---\n" + yaml.safe_dump_all(ITEMS, explicit_start=True),
        json.dumps(ITEMS),
        "\n".join(json.dumps(item) + "\n---" for item in ITEMS).removesuffix("\n---"),
        yaml.safe_dump_all(ITEMS, default_flow_style=True, explicit_start=True),
    ],
    ids=["documents", "comment first", "json list", "json documents", "flow style"],
)
def test_every_shape_gives_the_same_documents(tmp_path: Path, content: str) -> None:
    """YAML documents, a JSON list, JSON documents: always the two nodes, in order."""
    file = tmp_path / "dump"
    file.write_text(content)
    assert [item for item in read_dumps([str(file)]) if item] == ITEMS
    assert gc.isenabled()


def test_a_folder_stands_for_its_yaml_and_json_files(tmp_path: Path) -> None:
    """In the order of their names; other files are left alone."""
    (tmp_path / "2.yaml").write_text("kind: B")
    (tmp_path / "1.json").write_text('{"kind": "A"}')
    (tmp_path / "notes.txt").write_text("{")
    assert list(read_dumps([str(tmp_path)])) == [{"kind": "A"}, {"kind": "B"}]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` reads what is piped in."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"kind: A")))
    assert list(read_dumps(["-"])) == [{"kind": "A"}]


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"{", b"a: b: c", b"\x00\x01"])
def test_what_is_neither_yaml_nor_json_is_told_with_its_name(tmp_path: Path, content: bytes) -> None:
    """One line that names the file; collection of garbage is on again afterwards."""
    file = tmp_path / "broken.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.yaml: not YAML or JSON") as caught:
        list(read_dumps([str(file)]))
    assert "\n" not in str(caught.value)
    assert gc.isenabled()


def test_an_empty_folder_and_a_missing_file(tmp_path: Path) -> None:
    """A folder without a dump is a mistake, a file that is not there an OSError."""
    with pytest.raises(UserError, match="no file that ends with"):
        list(read_dumps([str(tmp_path)]))
    with pytest.raises(FileNotFoundError):
        list(read_dumps([str(tmp_path / "none.yaml")]))

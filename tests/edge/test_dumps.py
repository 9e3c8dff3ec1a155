"""Reading kubectl's files: every shape they come in, and a clear word for those that are none."""

from __future__ import annotations

import gc
import io
import json
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

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
        "".join(json.dumps(item, indent=4) + "\n" for item in ITEMS),
        "".join(yaml.safe_dump({"apiVersion": "v1", **item}) for item in ITEMS),
        "".join(yaml.safe_dump({"kind": "Node", "apiVersion": "v1", **item}, sort_keys=False) for item in ITEMS),
        "%YAML 1.1\n---\n" + yaml.safe_dump_all(ITEMS),
        "---\n" + "---\n---\n".join(yaml.safe_dump(item) for item in ITEMS) + "---\n",
    ],
    ids=[
        "documents",
        "comment first",
        "json list",
        "json documents",
        "flow style",
        "json appended",
        "yaml appended",
        "yaml appended, kind first",
        "directive",
        "kinds that the server lacks",
    ],
)
def test_every_shape_gives_the_same_documents(tmp_path: Path, content: str) -> None:
    """YAML documents, a JSON list, JSON documents: always the two nodes, in order."""
    file = tmp_path / "dump"
    file.write_text(content)
    found = [
        {key: value for key, value in item.items() if key != "apiVersion"} for item in read_dumps([str(file)]) if item
    ]
    assert found == ITEMS
    assert gc.isenabled()


def _kubectl(*names: str) -> str:
    """What ``kubectl get nodes -o yaml`` prints, without a ``---``."""
    items = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
    return yaml.safe_dump({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lists_that_were_appended_lose_nothing(tmp_path: Path, encoding: str) -> None:
    """``kubectl get … >> dump`` twice is two Lists, not one whose last ``items`` counts; whatever shell wrote it."""
    file = tmp_path / "dump.yaml"
    file.write_text(_kubectl("a", "b") + _kubectl("c") + "---\n" + _kubectl("d") + _kubectl("e"), encoding=encoding)
    names = [[item["metadata"]["name"] for item in found["items"]] for found in read_dumps([str(file)])]
    assert names == [["a", "b"], ["c"], ["d"], ["e"]]


def test_a_name_that_stands_twice_in_one_object_is_an_error(tmp_path: Path) -> None:
    """Nothing is chosen silently: file, line and name are told."""
    file = tmp_path / "dump.yaml"
    file.write_text("kind: Node\n---\napiVersion: v1\nkind: List\nitems:\n- kind: Node\nitems: []\n")
    with pytest.raises(UserError, match=r"dump\.yaml: line 7: items stands a second time in one object"):
        list(read_dumps([str(file)]))


def test_an_error_in_an_appended_list_names_its_line(tmp_path: Path) -> None:
    """Lines are those of the file, not of the part."""
    file = tmp_path / "dump.yaml"
    file.write_text("apiVersion: v1\nkind: A\napiVersion: v1\nkind: B\nspec: [\n")
    with pytest.raises(UserError, match="line 6"):
        list(read_dumps([str(file)]))


def test_appended_json_takes_no_longer_than_one_document(tmp_path: Path) -> None:
    """The YAML parser, a hundred times slower, never sees it."""
    file = tmp_path / "dump.json"
    items = [{"kind": "Node", "metadata": {"name": str(number)}} for number in range(2000)]
    file.write_text("\n".join(json.dumps({"kind": "List", "items": items}, indent=4) for _ in range(2)))
    with mock.patch("yaml.load_all", side_effect=AssertionError):
        assert [len(found["items"]) for found in read_dumps([str(file)])] == [2000, 2000]


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


@pytest.mark.parametrize("times", [1, 2])
def test_json_that_is_nested_deeply_is_read(tmp_path: Path, times: int) -> None:
    """The API server stores parameters of thousands of levels: one such claim must not cost the whole dump."""
    file = tmp_path / "dump.json"
    deep = "[" * 3000 + "]" * 3000
    file.write_text(f'{{"kind":"ResourceClaim","metadata":{{"name":"c"}},"spec":{{"parameters":{deep}}}}}\n' * times)
    found = list(read_dumps([str(file)]))
    assert [item["metadata"]["name"] for item in found] == ["c"] * times

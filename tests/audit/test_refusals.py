"""What replay refuses, and that it notices a decision that comes out otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.app.replaying import replay
from scheduler.app.trails import all_records
from scheduler.cli.main import main
from scheduler.edge.journal import JournalError, segment_files
from scheduler.errors import UserError
from tests.app.objects import Object, gpu_class, gpu_slice, node, pod, template
from tests.app.race import PODS_PATH, create, until_bound
from tests.app.test_gangs import GATES, GROUPS_PATH, group, member
from tests.app.test_preemption import classes as priorities
from tests.app.test_preemption import of
from tests.app.world import world
from tests.audit.recording import auditing, recorded_world, replay_all
from tests.audit.test_replay import CONFIG


def objects() -> list[Object]:
    nodes = [node("n1"), node("n2")]
    return [gpu_class(), template("one"), *nodes, gpu_slice("n1", 2), gpu_slice("n2", 2)]


async def recorded(folder: Path, *names: str, **options: Any) -> None:
    """Pods with a device each, one after the other."""
    async with recorded_world(folder, objects(), CONFIG, **options) as w:
        for name in names:
            await create(w, pod(name, template="one"))
            await until_bound(w, name)


def changed(folder: Path, old: str, new: str, operation: str) -> None:
    """Change a text in the recorded lines of one operation."""
    for file in segment_files(folder / "journal"):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line.replace(old, new) if f'"{operation}"' in line[:30] else line for line in lines))


async def test_the_decision_of_the_trail_is_found_by_its_id(tmp_path: Path, capsys: Any) -> None:
    """audit shows an id; replay takes it, and a Pod's name; each answers for that decision alone."""
    await recorded(tmp_path, "a", "b", "c")
    replay_all(tmp_path)
    by_pod = {record.pod: record for record in all_records([str(tmp_path / "audit.db")]) if record.kind == "decision"}
    record = by_pod["default/b"]
    found = replay(str(tmp_path / "journal"), decision=record.id)
    (result,) = found.results
    assert (result.pod, result.equal, result.position) == ("default/b", True, record.position)
    assert result.replayed["node"] == record.node
    devices = [device["device"] for entry in result.replayed_devices for device in entry["devices"]]
    assert devices == [device.device for use in record.claims for device in use.devices]
    assert main(["replay", str(tmp_path / "journal"), "--pod", "c", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["decisions"], told["equal"]) == (1, 1)
    assert main(["replay", str(tmp_path / "journal"), "--decision", record.id]) == 0
    assert f"the same: node {record.node}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "operation"),
    [
        ('"outcome":"placed","node":"n', '"outcome":"placed","node":"x', "decided"),
        ("/gpu-0", "/gpu-9", "reserved"),
        ('"total":4', '"total":5', "decided"),
        ('"feasible":2', '"feasible":3', "decided"),
        ('"all":"', '"all":"0', "decided"),
    ],
)
async def test_another_answer_is_noticed(tmp_path: Path, capsys: Any, old: str, new: str, operation: str) -> None:
    """A recorded node, device, score or count that the replay does not come to: exit code 2, both answers shown."""
    await recorded(tmp_path, "a")
    changed(tmp_path, old, new, operation)
    assert main(["replay", str(tmp_path / "journal")]) == 2
    shown = capsys.readouterr().out
    assert "default/a: different" in shown
    assert "recorded: " in shown
    assert "replayed: " in shown
    assert "1 decision: 0 equal, 1 different, 0 refused" in shown


async def test_another_cluster_gives_another_answer(tmp_path: Path) -> None:
    """The replay really decides: with the chosen node cordoned in the recorded snapshot it chooses the other one."""
    await recorded(tmp_path, "a")
    chosen = replay_all(tmp_path).results[0].recorded["node"]
    for file in segment_files(tmp_path / "journal"):
        lines = file.read_text().splitlines(keepends=True)
        cordoned = [
            line.replace('"spec":{', '"spec":{"unschedulable":true', 1)
            if '"apply","Node"' in line and f'"name":"{chosen}"' in line
            else line
            for line in lines
        ]
        assert cordoned != lines
        file.write_text("".join(cordoned))
    (result,) = replay(str(tmp_path / "journal")).results
    assert not result.equal
    assert result.replayed["node"] != chosen


async def test_the_namespaces_that_are_served_come_along(tmp_path: Path) -> None:
    """Whom a preemptor may displace depends on them: without, the replay would find victims elsewhere."""
    served = frozenset(("default",))
    built = auditing(tmp_path, CONFIG)
    foreign = {**of("low", "foreign", cpu="4"), "metadata": {"name": "foreign", "namespace": "other"}}
    foreign["spec"]["nodeName"] = "n1"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    cluster = [namespace, node("n1", cpu="4"), *priorities(), foreign]
    async with world(cluster, CONFIG, auditing=built, namespaces=served) as w:
        await create(w, of("high", "big", cpu="4"))

        async def told() -> bool:
            return bool((await w.pod("big"))["status"].get("conditions"))

        await w.until(told, "the preemptor is told that it waits")
        assert w.service.state.served == served
    found = replay_all(tmp_path)
    assert {result.recorded["outcome"] for result in found.results} == {"rejected"}
    changed(tmp_path, '["default"]', "[]", "serves")
    (result, *_) = replay(str(tmp_path / "journal")).results
    assert not result.equal


async def test_what_lies_outside_is_refused_with_the_window(tmp_path: Path, capsys: Any) -> None:
    """Unknown Pods and ids, and decisions of a part that is gone: refused, with what the recording holds."""
    await recorded(tmp_path, "a", "b")
    with pytest.raises(UserError, match=r"pod default/z: is outside the recording, which holds 2 decisions from 2"):
        replay(str(tmp_path / "journal"), pod="default/z")
    with pytest.raises(UserError, match="decision run-j1: is outside the recording"):
        replay(str(tmp_path / "journal"), decision="run-j1")
    assert main(["replay", str(tmp_path / "journal"), "--decision", "nonsense"]) == 1
    assert "outside the recording" in capsys.readouterr().err
    (file,) = segment_files(tmp_path / "journal")
    lines = file.read_bytes().splitlines(keepends=True)
    second = [number for number, line in enumerate(lines) if b'"begin"' in line[:20]][1]
    file.write_bytes(b"".join([*lines[: second - 2], b"garbage\n", *lines[second - 2 :]]))
    with pytest.raises(UserError, match=r"outside .* line \d+: .* cannot be read.* nothing after it can be replayed"):
        replay(str(tmp_path / "journal"), pod="default/b")
    assert replay(str(tmp_path / "journal"), pod="default/a").results[0].equal


async def test_a_decision_that_is_cut_off_is_refused(tmp_path: Path, capsys: Any) -> None:
    """The recording ends between a decision's beginning and its end, as after kill -9."""
    await recorded(tmp_path, "a")
    (file,) = segment_files(tmp_path / "journal")
    lines = file.read_bytes().splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if b'"begin"' in line[:20])
    file.write_bytes(b"".join(lines[: begin + 1]))
    assert main(["replay", str(tmp_path / "journal"), "--pod", "a"]) == 1
    assert "cannot be replayed: the recording ends before the decision did" in capsys.readouterr().out


async def test_a_segment_without_its_first_line_spoils_itself_only(tmp_path: Path, capsys: Any) -> None:
    """Killed, or out of disk, before the header was written: told, and everything else is replayed."""
    await recorded(tmp_path, "a", "b")
    empty = tmp_path / "journal" / "000000000001000-run-000000000001.journal"
    empty.write_bytes(b"")
    assert main(["replay", str(tmp_path / "journal")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{empty}: ends before its first line does",
        "2 decisions: 2 equal, 0 different, 0 refused",
    ]
    with pytest.raises(UserError, match=r"holds 2 decisions .*000000000001\.journal: .*ends before its first line"):
        replay(str(tmp_path / "journal"), pod="default/z")
    for file in segment_files(tmp_path / "journal"):
        file.write_bytes(b"")
    with pytest.raises(JournalError, match="ends before its first line does"):
        replay(str(tmp_path / "journal"))


def test_a_folder_without_a_recording_is_named(tmp_path: Path) -> None:
    """No folder, an empty folder."""
    with pytest.raises(JournalError, match="there is no such folder"):
        replay(str(tmp_path / "no"))
    with pytest.raises(JournalError, match="there is no segment in it"):
        replay(str(tmp_path))


async def test_the_decisions_of_a_gang_are_replayed_together(tmp_path: Path) -> None:
    """All members' nodes and devices; a gang that did not fit, too."""
    cluster = [gpu_class(), template("one"), node("n1", cpu="4"), gpu_slice("n1", 4)]
    async with recorded_world(tmp_path, cluster, CONFIG, GATES) as w:
        await w.call("POST", GROUPS_PATH, group("g", 2))
        await w.call("POST", GROUPS_PATH, group("big", 2))
        await create(w, member("a", "g", template="one"), member("b", "g", template="one"))
        await until_bound(w, "a", "b")
        await create(w, member("c", "big", cpu="3"), member("d", "big", cpu="3"))

        async def told() -> bool:
            return bool((await w.pod("d"))["status"].get("conditions"))

        await w.until(told, "the second gang is told that it does not fit")
        await w.call("GET", PODS_PATH)
    found = replay_all(tmp_path)
    (placed,) = [one for one in found.results if one.recorded_devices]
    assert set(placed.recorded_devices) == {"default/a", "default/b"}
    refused = [one for one in found.results if one.pod == "group default/big"]
    assert refused
    assert all(one.replayed["text"] for one in refused)
    record = next(one for one in all_records([str(tmp_path / "audit.db")]) if one.pod == "default/b")
    assert replay(str(tmp_path / "journal"), decision=record.id).results[0].equal

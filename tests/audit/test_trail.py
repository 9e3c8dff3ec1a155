"""The audit trail of a whole service: every decision, every device, and who let go of it, told after all is gone."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.app.service import Service
from scheduler.app.trails import all_records, tell
from scheduler.audit.records import Record
from scheduler.cli.main import main
from scheduler.config import load_config
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import insecure
from scheduler.edge.errors import NotFound
from scheduler.embedded.faults import Action, Fault
from scheduler.errors import UserError
from tests.app.objects import Object, claim, gpu_class, gpu_slice, node, pod, template
from tests.app.race import PODS_PATH, create, foreign_claim, idle, once_before, until_bound
from tests.app.test_preemption import classes as priorities
from tests.app.test_preemption import of, running
from tests.app.world import Counts, Lines, World, world
from tests.audit.recording import Meter, auditing, recorded_world
from tests.audit.test_replay import AT_ONCE, CLAIMS_PATH, CONFIG


def one_node(devices: int = 1) -> list[Object]:
    return [gpu_class(), template("one"), node("n1"), gpu_slice("n1", devices)]


def records(folder: Path, kind: str = "") -> list[Record]:
    return [found for found in all_records([str(folder / "audit.db")]) if kind in ("", found.kind)]


async def gone(w: World, path: str) -> None:
    """Delete an object and wait until it is gone."""
    await w.call("DELETE", path, AT_ONCE)

    async def missing() -> bool:
        try:
            await w.call("GET", path)
        except NotFound:
            return True
        return False

    await w.until(missing, f"{path} is gone")


async def freed(w: World, claim_name: str) -> None:
    """Wait until the scheduler sees that the claim holds nothing any more."""

    async def free() -> bool:
        known = w.service.state.devices.claims.get(f"default/{claim_name}")
        return known is None or known.status.allocation is None

    await w.until(free, f"claim {claim_name} is free")


async def test_the_story_is_told_after_pod_and_claim_are_gone(tmp_path: Path, capsys: Any) -> None:
    """Pod → claim → node → device, and who freed the device: from each end, as text and as data."""
    async with recorded_world(tmp_path, one_node(), CONFIG) as w:
        await create(w, pod("p", template="one", terminationGracePeriodSeconds=0))
        await until_bound(w, "p")
        name = next(iter(w.service.state.devices.claims)).partition("/")[2]
        await gone(w, f"{PODS_PATH}/p")
        await w.until(lambda: _no_claims(w), "the generated claim is gone")
    file = ["--file", str(tmp_path / "audit.db")]
    for subject in (["pod", "p"], ["claim", name], ["device", "n1/gpu-0"], ["node", "n1"]):
        assert main(["audit", *subject, *file]) == 0
        text = capsys.readouterr().out
        assert "bound to node n1" in text, subject
        assert "device gpu.example.com/n1/gpu-0 for request gpu" in text
        assert f"claim default/{name}" in text
        assert "freed (d" in text, subject
        assert "still held" not in text
    assert main(["audit", "pod/p", "-o", "json", *file]) == 0
    told = json.loads(capsys.readouterr().out)
    (holding,) = told["holdings"]
    assert (holding["device"], holding["pod"], holding["node"]) == ("gpu.example.com/n1/gpu-0", "default/p", "n1")
    assert holding["since"] < holding["until"]
    assert holding["freed_by"] == "claim controller"
    (decision,) = [entry for entry in told["records"] if entry["kind"] == "decision"]
    assert decision["outcome"] == "bound"
    assert decision["claims"][0]["given"]
    assert decision["version"]
    assert decision["config"]
    assert decision["seed"].startswith(decision["pod_uid"])


async def _no_claims(w: World) -> bool:
    return not w.service.state.devices.claims


async def test_a_decision_holds_the_scores_of_the_best_nodes(tmp_path: Path) -> None:
    """Totals and each plugin's score; the chosen node is the first of them."""
    nodes = [node(f"n{number}", cpu=str(number + 1)) for number in range(9)]
    async with recorded_world(tmp_path, nodes) as w:
        await create(w, pod("p"))
        chosen = (await until_bound(w, "p"))["p"]
    (decision,) = records(tmp_path, "decision")
    assert (decision.evaluated, decision.feasible, decision.attempt) == (9, 9, 1)
    totals = [score.total for score in decision.scores]
    assert len(totals) == 5
    assert totals == sorted(totals, reverse=True)
    assert decision.scores[0].node == decision.node == chosen
    assert decision.scores[0].plugins["NodeResourcesFit"] > 0


async def test_equal_rejections_are_one_record_that_counts(tmp_path: Path) -> None:
    """A Pod that waits for long fills no file; another reason is another record."""
    async with recorded_world(tmp_path, one_node(), CONFIG) as w:
        await create(w, pod("p", cpu="100"))

        async def tried() -> bool:
            for number in range(3):
                await w.call("PATCH", "/api/v1/nodes/n1", _label(f"{number}"), "application/merge-patch+json")
            w.service.loop.activate((await w.pod("p"))["metadata"]["uid"])
            return w.counts.seen["unschedulable"] >= 4

        await w.until(tried, "several attempts")
        await w.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, "application/merge-patch+json")

        async def otherwise() -> bool:
            w.service.loop.activate((await w.pod("p"))["metadata"]["uid"])
            conditions = (await w.pod("p"))["status"].get("conditions", [])
            return any("unschedulable" in condition.get("message", "") for condition in conditions)

        await w.until(otherwise, "another reason")
        attempts = lambda: w.counts.seen["unschedulable"]  # noqa: E731  # more may follow until the world ends
    first, second = records(tmp_path, "rejection")
    assert "Insufficient cpu" in first.text
    assert "node(s) were unschedulable" in second.text
    assert first.count + second.count == attempts()
    assert first.until > first.time


def _label(value: str) -> Object:
    return {"metadata": {"labels": {"turn": value}}}


async def test_a_lost_race_a_foreign_allocation_and_a_device_given_twice(tmp_path: Path) -> None:
    """All three are told with the devices, and what we gave back is told as ours."""
    async with recorded_world(tmp_path, one_node(2), CONFIG) as w:
        once_before(w, "writing", lambda: foreign_claim(w, "foreign", "n1", "gpu-0"))
        await create(w, pod("p", template="one"))
        await until_bound(w, "p")
        await foreign_claim(w, "twice", "n1", "gpu-1")
        await idle(w)
        await w.until(lambda: _overlaps(w), "the pair is noticed")
    lost, bound = records(tmp_path, "decision")
    assert (lost.outcome, bound.outcome) == ("lost", "bound")
    assert "which was first" in lost.text
    (back,) = records(tmp_path, "freed")
    assert (back.by, back.outcome, back.pod) == ("dra-scheduler", "deallocated", "default/p")
    foreign = records(tmp_path, "foreign")
    assert [use.claim for one in foreign for use in one.claims] == ["default/foreign", "default/twice"]
    (twice,) = records(tmp_path, "given-twice")
    assert twice.pod == "default/p"
    told = tell([str(tmp_path / "audit.db")], "device", "gpu.example.com/n1/gpu-1")
    assert [holding.claim for holding in told.holdings] == [bound.claims[0].claim, "default/twice"]


async def _overlaps(w: World) -> bool:
    return w.counts.seen["overlap"] > 0


async def test_a_preempted_pod_is_told_with_its_preemptor(tmp_path: Path) -> None:
    """Both Pods' stories name it."""
    async with recorded_world(tmp_path, [node("n1", cpu="2"), *priorities()], CONFIG) as w:
        await running(w, of("low", "small", cpu="2"))
        await create(w, of("high", "big", cpu="2"))
        await until_bound(w, "big")
    (preempted,) = records(tmp_path, "preempted")
    assert (preempted.pod, preempted.by, preempted.node) == ("default/small", "default/big", "n1")
    for name in ("small", "big"):
        told = tell([str(tmp_path / "audit.db")], "pod", f"default/{name}")
        assert preempted in told.records


async def test_an_undone_decision_says_why(tmp_path: Path) -> None:
    """A Binding that the server refuses: the decision is there, undone, with the server's words."""
    refused = Fault(Action.ANSWER, verb="create", subresource="binding", code=403, message="not today", times=1)
    async with recorded_world(tmp_path, [node("n1")], CONFIG) as w:
        w.server.faults.add(refused)
        await create(w, pod("p"))
        await until_bound(w, "p")
    undone, bound = records(tmp_path, "decision")
    assert (undone.outcome, bound.outcome) == ("undone", "bound")
    assert "not today" in undone.text
    assert records(tmp_path, "rejection") == []


async def test_shared_claims_and_other_clients(tmp_path: Path) -> None:
    """A second Pod of a shared claim had the devices already; who deletes an allocated claim is another client."""
    async with recorded_world(tmp_path, [*one_node(), claim("shared")], CONFIG) as w:
        for name in ("a", "b"):
            await create(w, pod(name, claim="shared", terminationGracePeriodSeconds=0))
            await until_bound(w, name)
        for name in ("a", "b"):
            await gone(w, f"{PODS_PATH}/{name}")
        await freed(w, "shared")
        await gone(w, f"{CLAIMS_PATH}/shared")
    decisions = {one.pod: one for one in records(tmp_path, "decision")}
    assert sorted(use.given for one in decisions.values() for use in one.claims) == [False, True]
    (back,) = records(tmp_path, "freed")
    assert back.by == "claim controller"
    assert "has ended or is gone" in back.text
    told = tell([str(tmp_path / "audit.db")], "pod", "default/b")
    assert {use.claim for one in told.records for use in one.claims} == {"default/shared"}


@asynccontextmanager
async def standby(w: World, folder: Path, leads: list[str]) -> AsyncIterator[Service]:
    """A second replica on the same server, with a trail of its own; it decides once ``leads`` says so."""
    async with ApiClient(insecure(w.server.url)) as client:
        service = Service(
            load_config(CONFIG),
            client,
            Counts(),
            Lines(),
            clock=time.time,
            instance=lambda name: f"{name}-b",
            may_decide=lambda: leads == ["b"],
            auditing=auditing(folder, CONFIG, run_id="two", record=""),
        )
        service.start()
        await service.wait_synced()
        task = asyncio.create_task(service.run())
        try:
            yield service
        finally:
            service.stop()
            await asyncio.wait_for(task, 15)
            await service.close(drain=False)


async def test_trails_of_two_replicas_are_one_story(tmp_path: Path, capsys: Any) -> None:
    """One replica decides, the standby takes over and sees the Pod go: merged, the story has each fact once."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    leads = ["a"]
    objects = [*one_node(2), claim("before"), claim("while"), claim("after")]
    async with world(
        objects, CONFIG, auditing=auditing(first, CONFIG, run_id="one"), may_decide=lambda: leads == ["a"]
    ) as w:
        await create(w, pod("p", claim="before", terminationGracePeriodSeconds=0))
        await until_bound(w, "p")
        async with standby(w, second, leads) as other:
            await create(w, pod("q", claim="while"))
            await until_bound(w, "q")
            leads[:] = ["b"]
            other.loop._wake.set()
            await gone(w, f"{PODS_PATH}/p")
            await w.until(lambda: _holds_nothing(other, "before"), "the standby sees it")
            await create(w, pod("r", claim="after"))
            await until_bound(w, "r")
    files = [str(first / "audit.db"), str(second / "audit.db")]
    told = tell(files, "claim", "default/before")
    assert [one.kind for one in told.records] == ["decision", "freed"]
    assert [(holding.until > 0, holding.freed_by) for holding in told.holdings] == [(True, "claim controller")]
    assert [one.kind for one in tell(files[1:], "claim", "default/before").records] == ["found", "freed"]
    assert [one.kind for one in tell(files, "claim", "default/while").records] == ["decision"]
    assert [one.kind for one in tell(files, "claim", "default/after").records] == ["decision"]
    shutil.copy(files[0], tmp_path / "copy.db")
    assert all_records([*files, str(tmp_path / "copy.db")]) == all_records(files)
    arguments = [part for file in files for part in ("--file", file)]
    assert main(["audit", "claim", "before", *arguments]) == 0
    assert "still held" not in capsys.readouterr().out


async def _holds_nothing(service: Service, name: str) -> bool:
    return service.state.devices.claims[f"default/{name}"].status.allocation is None


async def test_export_gives_every_record_and_device(tmp_path: Path, capsys: Any) -> None:
    """JSON lines come back as the same records; CSV has one line per device; a window of time narrows both."""
    async with recorded_world(tmp_path, [*one_node(3), claim("two", 2)], CONFIG) as w:
        await create(w, pod("p", claim="two"))
        await until_bound(w, "p")
    file = ["--file", str(tmp_path / "audit.db")]
    assert main(["audit", "export", *file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [msgspec.json.decode(line, type=Record) for line in lines] == records(tmp_path)
    assert main(["audit", "export", "-o", "csv", *file]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["device"] for row in table] == ["gpu.example.com/n1/gpu-0", "gpu.example.com/n1/gpu-1"]
    assert main(["audit", "export", "--until", "1h", *file]) == 0
    assert capsys.readouterr().out == ""
    assert main(["audit", "export", "--since", "1h", *file]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(lines)


def test_what_is_not_recorded_is_said_with_what_is_alike(tmp_path: Path, capsys: Any) -> None:
    """Names that were mistyped, flags that do not go together, files that are not there: one sentence, code 1."""
    from tests.edge.test_audit_store import record, store

    open_store = store(tmp_path)
    open_store.write([record(1), record(2)])
    open_store.close()
    path = str(tmp_path / "audit.db")
    with pytest.raises(UserError, match="nothing is recorded; there is default/p1"):
        tell([path], "pod", "other/p1")
    assert tell([path], "device", "gpu-2").name == "d/p/gpu-2"
    for argv, text in (
        (["pod", "p1", "-o", "csv"], "-o csv goes with export"),
        (["planet", "x"], "planet: one of pod, claim, device, node, export is needed"),
        (["pod"], "the name of the pod is needed"),
        (["export", "x"], "export takes no name"),
        (["pod", "p1", "--since", "yesterday"], "--since=yesterday is neither a time"),
        (["pod", "p1", "--since", "1h", "--until", "2h"], "--since is later than --until"),
        (["pod", "p1", "--file", path + "x"], "there is no such file"),
        (["pod", "p1", "--since", "1h"], "nothing is recorded in this window of time"),
    ):
        assert main(["audit", *argv, *([] if "--file" in argv else ["--file", path])]) == 1
        error = capsys.readouterr().err
        assert text in error
        assert "Traceback" not in error


async def test_a_file_that_refuses_costs_no_pod_anything(tmp_path: Path) -> None:
    """The folder is missing: Pods are bound as ever, the trouble is logged by name and counted."""
    async with recorded_world(tmp_path, one_node(3), CONFIG, file=str(tmp_path / "no/audit.db"), record="") as w:
        await create(w, pod("a", template="one"), pod("b"))
        await until_bound(w, "a", "b")
        built: Any = w.service._auditing
        meter: Meter = built.writer._meter
        await built.writer.flush()
        assert meter.failed >= 1
        assert meter.dropped == 0
    assert meter.dropped >= 2


async def test_a_trail_that_breaks_is_an_internal_error_and_nothing_else(tmp_path: Path) -> None:
    """A fault in the trail's own code: the Pod is bound, the fault is told."""
    async with recorded_world(tmp_path, one_node(), CONFIG) as w:
        assert w.service._audited is not None
        w.service._audited._trail._uses = None  # type: ignore[assignment,method-assign]
        await create(w, pod("p", template="one"))
        await until_bound(w, "p")
        told = [fields for level, event, fields in w.log.lines if event == "internal error"]
        assert {fields["where"] for fields in told} == {"the audit trail"}
        w.counts.seen["broken"] = 0  # just these were wanted

"""What-if tells what then happens: the same edits imagined on a dump and made on the real control plane.

One control plane and one scheduler serve all scenarios, which follow each other in one cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.api import Object
from e2e.controlplane import ControlPlane
from e2e.controlplane.cluster import DEFAULT_CONTROLLERS
from e2e.controlplane.fixtures import make_api
from e2e.scheduler import SchedulerProcess
from e2e.waiting import NeverHappenedError, eventually
from e2e.whatif.cluster import NS, Placements, RealCluster
from e2e.whatif.scenarios import PACK, SCENARIOS, Scenario
from scheduler.cli.main import main

GATES = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
GATES_FLAG = "--feature-gates=" + ",".join(f"{name}=true" for name in GATES)
RUNTIME = {"scheduling.k8s.io/v1beta1": True}
CONTROLLERS = (
    *DEFAULT_CONTROLLERS,
    "device-taint-eviction-controller",
    "job-controller",
    "persistentvolume-binder-controller",
    "replicaset-controller",
)
PROFILES: list[Object] = [
    {"schedulerName": "dra-scheduler"},
    {"schedulerName": "packing", "pluginConfig": [PACK]},
]
BACKOFF = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
BACKOFF_OVER_S = 2.1


def config(**first: Any) -> Object:
    """The configuration, with other fields of the first profile."""
    return {**BACKOFF, "profiles": [{**PROFILES[0], **first}, PROFILES[1]]}


def config_text(**first: Any) -> str:
    """The same as a file."""
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return yaml.safe_dump({**head, **config(**first)})


@dataclass
class Stage:
    """The cluster and the scheduler that serves it."""

    plane: ControlPlane
    real: RealCluster
    scheduler: SchedulerProcess
    folder: Path

    async def run(self, name: str, scenario: Scenario) -> list[str]:
        """Imagine, make, compare; what differs."""
        await self.real.empty()
        await self.real.fill(scenario.base, self.scheduler)
        before = await self.real.placements()
        predicted = await self._imagine(scenario)
        expected = overlay(before, predicted)
        if scenario.backoff_over:  # a Pod that was refused a moment ago has to wait longer than one that comes
            await asyncio.sleep(BACKOFF_OVER_S)
        await self._make(scenario)
        problems = [*as_written(scenario, predicted), *await self._compare(expected)]
        if not problems:
            problems = await self._compare_reasons(predicted)
        return [f"{name}: {problem}" for problem in problems]

    async def _imagine(self, scenario: Scenario) -> Object:
        answer = imagine(self.folder, await self.real.dump(), scenario)
        assert answer["stable"], answer
        assert not [text for text in answer["caveats"] if text.startswith("left out")], answer["caveats"]
        return answer

    async def _make(self, scenario: Scenario) -> None:
        """The edits happen while the scheduler stands still, so that it sees them all at once."""
        if scenario.config:
            await asyncio.to_thread(self.scheduler.stop)
        else:
            self.scheduler.signal(signal.SIGSTOP)
        try:
            for edit in scenario.edits:
                ((kind, body),) = edit.items()
                if kind not in ("weight", "config"):
                    await self.real.edit(kind, body)
        finally:
            if scenario.config:
                self.scheduler = new_scheduler(self.folder, self.real.kubeconfig, config(**scenario.config))
                await asyncio.to_thread(self.scheduler.start_and_wait)
            else:
                self.scheduler.signal(signal.SIGCONT)

    async def _compare(self, expected: Placements) -> list[str]:
        wanted = anonymous(expected)

        async def same() -> bool:
            return anonymous(await self.real.placements()) == wanted and await self.real.settled(self.scheduler)

        try:
            await eventually(same, "what was imagined", timeout_s=20.0)
        except NeverHappenedError:
            found = anonymous(await self.real.placements())
            return [f"really {found - wanted}, imagined {wanted - found}"]
        return []

    async def _compare_reasons(self, predicted: Object) -> list[str]:
        """The condition of every Pod that waits says what was imagined."""
        said: dict[str, set[str]] = {}
        for change in predicted["changes"]:
            if change["after"] is not None and change["after"]["state"] != "placed":
                said.setdefault(stem(change["pod"].partition("/")[2]), set()).add(change["after"]["reason"])
        return [
            f"{name} says {message!r}, imagined was {said[stem(name)]}"
            for name, message in (await self.real.messages()).items()
            if stem(name) in said and message not in said[stem(name)]
        ]


def imagine(folder: Path, dump: str, scenario: Scenario) -> Object:
    """What the command says about a dump."""
    texts = {
        "dump.yaml": dump,
        "edits.yaml": yaml.safe_dump(list(scenario.edits)),
        "config.yaml": config_text(),
        "new.yaml": config_text(**scenario.config),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    argv = ["whatif", "-f", str(folder / "dump.yaml"), "--edits", str(folder / "edits.yaml"), "--until-stable"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*argv, "--config", str(folder / "config.yaml"), GATES_FLAG, "-o", "json"])
    assert code in (0, 2), out.getvalue()
    answer: Object = json.loads(out.getvalue())
    return answer


def new_scheduler(folder: Path, kubeconfig: Path, document: Object) -> SchedulerProcess:
    """A scheduler with these profiles."""
    return SchedulerProcess(folder, kubeconfig, config=document, arguments=[GATES_FLAG])


def overlay(before: Placements, predicted: Object) -> Placements:
    """What the Pods will be: those that what-if says change, and all others as they are."""
    expected = dict(before)
    for change in predicted["changes"]:
        name = change["pod"].removeprefix(f"{NS}/")
        after = change["after"]
        if after is None:
            del expected[name]
        elif after["state"] == "placed":
            expected[name] = (after["node"], tuple(tuple(devices) for devices in after["devices"].values()))
        else:
            expected[name] = ("", ())
    return expected


def anonymous(placements: Placements) -> Counter[tuple[str, Any]]:
    """Which of equal Pods comes first is the claim controller's choice, and their controllers draw names: they count
    without numbers and random ends.
    """
    return Counter((stem(name), place) for name, place in placements.items())


def stem(name: str) -> str:
    """``p`` for ``p-3``, the controller's name for Pods of a ReplicaSet or Job."""
    owner = next((owner for owner in ("web", "train") if name.startswith(f"{owner}-")), "")
    return owner or re.sub(r"-\d+$", "", name)


def as_written(scenario: Scenario, predicted: Object) -> list[str]:
    """The scenario shows what it was written for."""
    waiting = {
        stem(change["pod"].partition("/")[2])
        for change in predicted["changes"]
        if change["after"] is not None and change["after"]["state"] != "placed" and change["change"] != "another reason"
    }
    moved = sum(change["after"] is None or change["after"]["state"] == "placed" for change in predicted["changes"])
    problems = []
    if waiting != set(scenario.waiting):
        problems.append(f"{sorted(waiting)} wait, not {list(scenario.waiting)}")
    if moved < scenario.moved:
        problems.append(f"{moved} Pods change place, not {scenario.moved}")
    return problems


@pytest.fixture
async def stage(own_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> AsyncIterator[Stage]:
    """A control plane with the controllers that answer to the edits, and a scheduler with two profiles."""
    plane = await asyncio.to_thread(
        own_control_plane, feature_gates=GATES, runtime_config=RUNTIME, controllers=CONTROLLERS
    )
    async with make_api(plane) as api:
        made = Stage(
            plane,
            RealCluster(api, plane.kubeconfig_for()),
            new_scheduler(tmp_path, plane.kubeconfig_for(), config()),
            tmp_path,
        )
        await asyncio.to_thread(made.scheduler.start_and_wait)
        try:
            yield made
            assert made.scheduler.errors() == []
        finally:
            await asyncio.to_thread(made.scheduler.stop)


READER = "what-if-reader"
LISTED = (
    "nodes,pods,namespaces,services,replicationcontrollers,persistentvolumes,persistentvolumeclaims,limitranges,"
    "resourcequotas,replicasets.apps,statefulsets.apps,poddisruptionbudgets.policy,priorityclasses.scheduling.k8s.io,"
    "podgroups.scheduling.k8s.io,storageclasses.storage.k8s.io,csinodes.storage.k8s.io,csidrivers.storage.k8s.io,"
    "csistoragecapacities.storage.k8s.io,volumeattachments.storage.k8s.io,resourceclaims.resource.k8s.io,"
    "resourceclaimtemplates.resource.k8s.io,resourceslices.resource.k8s.io,deviceclasses.resource.k8s.io,"
    "devicetaintrules.resource.k8s.io"
)


async def ask_live(stage: Stage) -> None:
    """A user who may list and nothing else gets the answer that a dump gives, and no object has another version."""
    real, scenario = stage.real, SCENARIOS["a node is drained"]
    await real.empty()
    await real.fill(scenario.base, stage.scheduler)
    await real.kubectl("create", "clusterrole", READER, "--verb=list", f"--resource={LISTED}")
    await real.kubectl("create", "clusterrolebinding", READER, f"--clusterrole={READER}", f"--user={READER}")
    dump = await real.dump()
    texts = {
        "dump.yaml": dump,
        "edits.yaml": yaml.safe_dump([*scenario.edits, {"addNodes": {"like": "n1", "count": 2}}]),
    }
    for name, text in texts.items():
        (stage.folder / name).write_text(text)
    flags = ["--edits", str(stage.folder / "edits.yaml"), "--until-stable", GATES_FLAG, "-o", "json"]
    answers = []
    reader = stage.plane.kubeconfig_for(READER)
    for source in (["-f", str(stage.folder / "dump.yaml")], ["--kubeconfig", str(reader)]):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = await asyncio.to_thread(main, ["whatif", *source, *flags])
        answers.append((code, json.loads(out.getvalue())))
    (from_file, told), (live, told_live) = answers
    assert (from_file, told["changes"]) == (live, told_live["changes"])
    assert told["changes"] != []
    assert told_live["caveats"] == []
    assert await real.dump() == dump


async def test_what_was_imagined_then_happens(stage: Stage) -> None:
    """Nodes and devices of every Pod, and what those that wait are told, are the same in each scenario.

    And asking a live cluster needs no right but to list.
    """
    problems = []
    for name, scenario in SCENARIOS.items():
        changed = bool(scenario.config)
        began = time.monotonic()
        try:
            problems += await stage.run(name, scenario)
        except AssertionError as error:
            problems.append(f"{name}: {error}")
        print(f"{time.monotonic() - began:5.1f} s  {name}")
        if changed:
            await asyncio.to_thread(stage.scheduler.stop)
            stage.scheduler = new_scheduler(stage.folder, stage.real.kubeconfig, config())
            await asyncio.to_thread(stage.scheduler.start_and_wait)
    assert not problems, "\n".join(problems)
    await ask_live(stage)
    print(f"{len(SCENARIOS)} scenarios: imagined and real are the same")

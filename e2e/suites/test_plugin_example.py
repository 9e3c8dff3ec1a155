"""The worked plugin of manifests/examples, configured as shipped, on the real control plane."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from e2e.api import PODS, Api
from e2e.controlplane import ControlPlane
from e2e.driver import add_node
from e2e.objects import pod
from e2e.scheduler import SchedulerProcess
from e2e.waiting import eventually

EXAMPLE = Path(__file__).resolve().parents[2] / "manifests/examples/plugins"
RACK = "topology.example.com/rack"
NS = "default"


async def node_of(api: Api, name: str) -> str:
    """The Pod's node, "" while it waits."""
    return str((await api.get(PODS, name, NS))["spec"].get("nodeName", ""))


async def test_the_shipped_plugin_and_configuration_spread_pods_over_racks(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Rack r1 has a big and empty node, which the default plugins prefer; with two Pods elsewhere in that rack the
    example sends the next Pod to the small node of the empty rack.
    """
    api = clean_cluster
    await add_node(api, "r1-full", labels={RACK: "r1"})
    await add_node(api, "r1-big", cpu="64", memory="256Gi", labels={RACK: "r1"})
    await add_node(api, "r2-small", cpu="4", memory="16Gi", labels={RACK: "r2"})
    for name in ("first", "second"):
        await api.create(PODS, pod(name, scheduler="nobody", requests={"cpu": "1"}), NS)
        await api.bind(NS, name, "r1-full")
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    without = {"profiles": [{"schedulerName": "plain"}]}
    with_example = {"profiles": config["profiles"]}
    expected = {"plain": "r1-big", "dra-scheduler": "r2-small"}
    for name, fields in (("plain", without), ("dra-scheduler", with_example)):
        scheduler = SchedulerProcess(
            tmp_path / name, control_plane.kubeconfig_for(), config=fields, python_path=[EXAMPLE]
        )
        await asyncio.to_thread(scheduler.start_and_wait)
        try:
            body = pod(name, scheduler=name, requests={"cpu": "1", "memory": "1Gi"})
            await api.create(PODS, body, NS)

            async def bound(name: str = name) -> bool:
                return bool(await node_of(api, name))

            await eventually(bound, f"the Pod of {name} is bound")
        finally:
            await asyncio.to_thread(scheduler.stop)
        assert await node_of(api, name) == expected[name]
        await api.delete(PODS, name, NS)

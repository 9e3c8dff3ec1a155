"""The examples: the demo's cluster and Pods, and the worked plugin."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.config import PluginRef, load_config

EXAMPLES = Path(__file__).resolve().parents[2] / "manifests/examples"


def demo(kind: str) -> list[dict[str, Any]]:
    """The demo's objects of one kind, in the order they are applied."""
    return [
        document
        for path in sorted((EXAMPLES / "demo").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document and document["kind"] == kind
    ]


def test_the_demo_cluster_is_mixed() -> None:
    """Two makers' devices, two models of one, and a node without any."""
    nodes = {convert(NODE, node).name for node in demo("Node")}
    slices = [convert(RESOURCE_SLICE, slice_) for slice_ in demo("ResourceSlice")]
    assert {slice_.spec.driver for slice_ in slices} == {"gpu.nvidia.example", "npu.acme.example"}
    assert {slice_.spec.nodeName for slice_ in slices} == nodes - {"cpu-1"}
    models = {slice_.spec.devices[0].attributes["model"].string for slice_ in slices}
    assert models == {"H100", "A100", "N2"}
    assert sum(len(slice_.spec.devices) for slice_ in slices) == 14


def test_every_device_knows_its_root_numa_node_and_memory() -> None:
    """What the sample claims and topology plugins look at is published for each device."""
    for data in demo("ResourceSlice"):
        for device in data["spec"]["devices"]:
            attributes = device["attributes"]
            assert attributes["resource.kubernetes.io/pcieRoot"]["string"].startswith("pci0000:")
            assert attributes["numaNode"]["int"] in (0, 1)
            assert device["capacity"]["memory"]["value"].endswith("Gi")


def test_every_reference_of_a_demo_pod_exists() -> None:
    """Claims, templates and classes are there, and each Pod asks for dra-scheduler."""
    classes = {convert(DEVICE_CLASS, data).metadata.name for data in demo("DeviceClass")}
    templates = {data["metadata"]["name"]: data["spec"]["spec"] for data in demo("ResourceClaimTemplate")}
    claims = {data["metadata"]["name"]: data["spec"] for data in demo("ResourceClaim")}
    for data in demo("ResourceClaim"):
        assert convert(RESOURCE_CLAIM, data).spec.devices.requests
    for spec in (*templates.values(), *claims.values()):
        for request in spec["devices"]["requests"]:
            assert request["exactly"]["deviceClassName"] in classes
    for data in demo("Pod"):
        pod = convert(POD, data)
        assert pod.spec.schedulerName == "dra-scheduler"
        for reference in data["spec"].get("resourceClaims", []):
            known = templates if "resourceClaimTemplateName" in reference else claims
            assert (reference.get("resourceClaimTemplateName") or reference["resourceClaimName"]) in known


def test_the_demo_shows_the_promised_stories() -> None:
    """One GPU, two on a root, a shared claim, one that never fits, one that waits for another to finish."""
    pods = {data["metadata"]["name"]: data for data in demo("Pod")}
    assert list(pods) == ["web", "trainer", "pair", "reader-1", "reader-2", "npu-batch", "npu-next", "too-big"]
    shared = [pods[name]["spec"]["resourceClaims"][0]["resourceClaimName"] for name in ("reader-1", "reader-2")]
    assert shared == ["shared-a100", "shared-a100"]
    assert int(pods["npu-batch"]["metadata"]["annotations"]["demo.dra-scheduler/run-seconds"]) > 0


def test_the_installed_demo_reads_the_same_files() -> None:
    """scheduler/cli/data, which the wheel ships, is the folder of the examples."""
    from scheduler import cli

    data = Path(cli.__file__).parent / "data"
    names = sorted(path.name for path in (EXAMPLES / "demo").glob("*.yaml"))
    assert sorted(path.name for path in data.glob("*.yaml")) == names
    for name in names:
        assert (data / name).read_bytes() == (EXAMPLES / "demo" / name).read_bytes()


@pytest.fixture(name="plugin_module")
def _plugin_module() -> ModuleType:
    """prefer_empty_racks, loaded from its file."""
    spec = importlib.util.spec_from_file_location("prefer_empty_racks", EXAMPLES / "plugins/prefer_empty_racks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_plugin_example_is_configured_as_it_is_named(plugin_module: ModuleType) -> None:
    """The configuration beside the plugin enables the class in the file, with arguments it accepts."""
    from scheduler.framework.plugin import Handle

    (profile,) = load_config((EXAMPLES / "plugins/config.yaml").read_text()).profiles
    name = plugin_module.PreferEmptyRacks.name
    assert profile.plugins["multiPoint"].enabled == (PluginRef(name, 10),)
    handle = Handle(state=None, new_id=None, features=None, arguments=profile.arguments[name])
    assert plugin_module.PreferEmptyRacks(handle).name == name


def test_the_plugin_prefers_the_emptier_rack(plugin_module: ModuleType) -> None:
    """Best rack 100, fullest 0, no label 0."""
    from scheduler.api.core import Pod
    from scheduler.framework.cycle import Cycle
    from scheduler.framework.nodeview import NodeView
    from scheduler.framework.plugin import Handle
    from scheduler.state.nodes import NodeTable
    from scheduler.state.podinfo import PodInfo

    table = NodeTable()
    racks = {"a": "r1", "b": "r1", "c": "r2", "d": None}
    for node, rack in racks.items():
        labels = {"topology.example.com/rack": rack} if rack else {}
        table.add(convert(NODE, {"metadata": {"name": node, "labels": labels}}))
    for number, node in enumerate("aabc"):
        pod = convert(POD, {"metadata": {"name": f"p{number}", "namespace": "n", "uid": f"u{number}"}})
        table.add_pod(PodInfo(pod), node)
    plugin = plugin_module.PreferEmptyRacks(Handle(state=None, new_id=None, features=None))
    cycle = Cycle(Pod(), PodInfo(Pod()), None)  # type: ignore[arg-type]  # the plugin looks at no cluster state
    rows = table.order()
    plugin.pre_score(cycle, table, rows)
    scores = {table.name_of(row): plugin.score_node(cycle, NodeView(table, row)) for row in rows.tolist()}
    assert scores == {"a": 0, "b": 0, "c": 100, "d": 0}


def test_a_wrong_plugin_argument_stops_the_start(plugin_module: ModuleType) -> None:
    """The example refuses arguments it does not know, as plugins should."""
    from scheduler.errors import ConfigError
    from scheduler.framework.plugin import Handle

    with pytest.raises(ConfigError, match="args: unknown field lable"):
        plugin_module.PreferEmptyRacks(Handle(state=None, new_id=None, features=None, arguments={"lable": "x"}))

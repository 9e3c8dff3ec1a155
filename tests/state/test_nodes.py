"""NodeTable: columns agree with the objects, whatever happened before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scheduler.api.core import Node, Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.errors import InternalError, UserError
from scheduler.state.columns import INT64_MAX
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import PodInfo, pod_info


def make_node(name: str, uid: str = "", **fields: Any) -> Node:
    """A node with 4 cpu, 8Gi and 10 Pods; ``labels``, ``taints``, ``images``, ``allocatable``, ``unschedulable``."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", **fields.get("allocatable", {})}
    node = {
        "metadata": {"name": name, "uid": uid or f"node/{name}", "labels": fields.get("labels", {})},
        "spec": {"taints": fields.get("taints", []), "unschedulable": fields.get("unschedulable", False)},
        "status": {"allocatable": allocatable, "images": fields.get("images", [])},
    }
    result: Node = convert(NODE, node)
    return result


def make_pod(name: str, requests: dict[str, str] | None = None, ports: list[dict[str, Any]] | None = None) -> Pod:
    """A Pod with one container."""
    container = {"name": "c", "resources": {"requests": requests or {}}, "ports": ports or []}
    pod: Pod = convert(
        POD,
        {"metadata": {"name": name, "namespace": "d", "uid": f"pod/{name}"}, "spec": {"containers": [container]}},
    )
    return pod


def test_sums_follow_pods() -> None:
    """Adding a Pod adds its requests to the row, removing it takes them away again."""
    table = NodeTable()
    row = table.add(make_node("n"))
    info = pod_info(make_pod("p", {"cpu": "500m", "example.com/gpu": "2"}))
    table.add_pod(info, "n")
    assert table.requested("cpu")[row] == 500
    assert table.requested("example.com/gpu")[row] == 2
    assert table.nonzero_requested("cpu")[row] == 500
    assert table.nonzero_requested("memory")[row] == 200 * 1024 * 1024
    assert table.pod_counts[row] == 1
    assert table.remove_pod(info, "n")
    assert not table.remove_pod(info, "n")
    table.remove("n")
    assert table.row_is_empty(row)


def test_allocatable_units() -> None:
    """cpu is kept in thousandths, memory in bytes, extended resources in units, other names not at all."""
    table = NodeTable()
    row = table.add(make_node("n", allocatable={"example.com/gpu": "3", "bananas": "7", "cpu": "1500u"}))
    assert table.allocatable("cpu")[row] == 2
    assert table.allocatable("memory")[row] == 8 << 30
    assert table.allocatable("example.com/gpu")[row] == 3
    assert table.allocatable("pods")[row] == 10
    assert table.allocatable("bananas")[row] == 0


def test_ghost_keeps_pods_until_the_node_returns() -> None:
    """A deleted node with Pods is in no list, and finds their sums again when it comes back."""
    table = NodeTable()
    table.add(make_node("n"))
    info = pod_info(make_pod("p", {"cpu": "1"}))
    table.add_pod(info, "n")
    table.remove("n")
    assert table.row_of("n") is None
    assert list(table.order()) == []
    assert list(table.pods_on("n")) == [info]
    row = table.add(make_node("n"))
    assert table.requested("cpu")[row] == 1000


def test_pod_before_its_node() -> None:
    """A Pod on a node not yet seen is counted once the node appears."""
    table = NodeTable()
    table.add_pod(pod_info(make_pod("p", {"cpu": "1"})), "n")
    assert len(table) == 0
    row = table.add(make_node("n"))
    assert table.requested("cpu")[row] == 1000


def test_same_name_other_uid_is_a_new_node() -> None:
    """Of a node that was replaced under its name nothing survives: labels, taints, images, place in the list."""
    table = NodeTable()
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    image = {"names": ["a:1"], "sizeBytes": 10}
    table.add(make_node("a", "old", labels={"x": "1"}, taints=[taint], images=[image], allocatable={"x.y/z": "1"}))
    table.add(make_node("b"))
    assert table.labels("x").codes[table.row_of("a")] == 0
    row = table.add(make_node("a", "new"))
    assert table.labels("x").codes[row] == -1
    assert table.taint_sets[table.taint_set_ids[row]] == ()
    assert table.images.entry("a:1") is None
    assert table.allocatable("x.y/z")[row] == 0
    assert [table.node(int(r)).name for r in table.order()] == ["b", "a"]


def test_zone_order() -> None:
    """The list takes one node of each zone in turn, zones in order of appearance."""
    table = NodeTable()
    key = "topology.kubernetes.io/zone"
    for name, zone in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("c2", "c")):
        table.add(make_node(name, labels={key: zone}))
    names = [table.node(int(row)).name for row in table.order()]
    assert names == ["a1", "b1", "c1", "a2", "c2", "a3"]
    table.update(make_node("a1", labels={key: "b"}))
    assert [table.node(int(row)).name for row in table.order()] == names
    table.remove("c2")
    assert [table.node(int(row)).name for row in table.order()] == ["a2", "b1", "c1", "a3", "a1"]


def test_nonsense_counts_as_zero() -> None:
    """A quantity that cannot be read is 0, is listed, and is reported once."""
    reported: list[UserError] = []
    table = NodeTable(reported.append)
    row = table.add(make_node("n", allocatable={"memory": "much"}))
    table.update(make_node("n", allocatable={"memory": "much"}))
    assert table.allocatable("memory")[row] == 0
    assert [str(problem) for problem in reported] == [
        'Node n: status.allocatable[memory]: "much" is not a quantity: '
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    ]
    assert "n" in table.problems
    table.update(make_node("n"))
    assert table.problems == {}


def test_sums_beyond_int64_recover() -> None:
    """Sums past int64 stay at its largest value, and are exact again when the Pods leave."""
    table = NodeTable()
    row = table.add(make_node("n"))
    large = [pod_info(make_pod(name, {"memory": "9223372036854775000"})) for name in ("a", "b")]
    small = pod_info(make_pod("c", {"memory": "7"}))
    for info in (*large, small):
        table.add_pod(info, "n")
    assert table.requested("memory")[row] == INT64_MAX
    for info in large:
        table.remove_pod(info, "n")
    assert table.requested("memory")[row] == 7
    table.verify({"n": [small]})


def test_image_size_is_the_first_one_reported() -> None:
    """The size is kept while any node has the image, and learnt anew afterwards."""
    table = NodeTable()
    table.add(make_node("a", images=[{"names": ["i:1"], "sizeBytes": 10}]))
    table.add(make_node("b", images=[{"names": ["i:1"], "sizeBytes": 20}]))
    entry = table.images.entry("i:1")
    assert entry is not None
    assert (entry.size_bytes, len(entry.rows)) == (10, 2)
    table.remove("a")
    entry = table.images.entry("i:1")
    assert entry is not None
    assert entry.size_bytes == 10
    table.remove("b")
    assert table.images.entry("i:1") is None


def test_versions_tell_which_row_changed() -> None:
    """A node change moves the row's static version, a Pod its dynamic version, and no other row's."""
    table = NodeTable()
    a, b = table.add(make_node("a")), table.add(make_node("b"))
    before = (table.static_versions.copy(), table.dynamic_versions.copy(), table.structure_version)
    table.update(make_node("a", unschedulable=True))
    table.add_pod(pod_info(make_pod("p")), "b")
    assert table.static_versions[a] > before[0][a]
    assert table.static_versions[b] == before[0][b]
    assert table.dynamic_versions[b] > before[1][b]
    assert table.dynamic_versions[a] == before[1][a]
    assert table.structure_version == before[2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda table, row: table.requested("cpu").__setitem__(row, 1),
        lambda table, row: table.unschedulable.__setitem__(row, True),
        lambda table, row: table.pod_counts.__setitem__(row, 5),
        lambda table, row: table.labels("x").codes.__setitem__(row, -1),
        lambda table, row: table.ports.add(row, [("0.0.0.0", "TCP", 80)]),
        lambda table, row: table.images.entry("i:1").rows.add(row + 1),
    ],
)
def test_verify_finds_damage(damage: Any) -> None:
    """verify raises when a column or an index says something else than the objects."""
    table = NodeTable()
    row = table.add(make_node("a", labels={"x": "1"}, images=[{"names": ["i:1"], "sizeBytes": 10}]))
    table.add(make_node("b"))
    table.labels("x")
    info = pod_info(make_pod("p", {"cpu": "1"}))
    table.add_pod(info, "a")
    table.verify({"a": [info]})
    damage(table, row)
    with pytest.raises(InternalError, match="node columns"):
        table.verify({"a": [info]})


NAMES = st.sampled_from(["n0", "n1", "n2", "n3"])
TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("ab"), "value": st.just("v"), "effect": st.sampled_from(["NoSchedule", "NoExecute"])}
    ),
    max_size=2,
)
LABELS = st.dictionaries(
    st.sampled_from(["x", "y", "topology.kubernetes.io/zone"]), st.sampled_from(["1", "2", "3"]), max_size=3
)
IMAGES = st.lists(
    st.fixed_dictionaries(
        {"names": st.lists(st.sampled_from(["i", "j", "k"]), max_size=2), "sizeBytes": st.integers(0, 99)}
    ),
    max_size=3,
)
ALLOCATABLE = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "example.com/gpu", "hugepages-2Mi"]),
    st.sampled_from(["0", "1", "2500m", "4Gi", "nonsense", "9223372036854775807"]),
)


class TableMachine(RuleBasedStateMachine):
    """Random nodes and Pods come, change and go; the table must equal one built from what is left."""

    @initialize()
    def start(self) -> None:
        self.table = NodeTable()
        self.pods: dict[str, tuple[str, PodInfo]] = {}
        self.nodes: dict[str, Node] = {}

    @rule(
        name=NAMES,
        uid=st.sampled_from(["u1", "u2"]),
        labels=LABELS,
        taints=TAINTS,
        images=IMAGES,
        allocatable=ALLOCATABLE,
        unschedulable=st.booleans(),
    )
    def put_node(self, name: str, uid: str, **fields: Any) -> None:
        self.nodes[name] = make_node(name, uid, **fields)
        self.table.add(self.nodes[name])

    @rule(name=NAMES)
    def remove_node(self, name: str) -> None:
        self.table.remove(name)
        self.nodes.pop(name, None)

    @rule(
        pod=st.sampled_from("pqrst"),
        node=NAMES,
        requests=st.dictionaries(
            st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.sampled_from(["1", "300m", "5E", "8E"])
        ),
        ports=st.lists(
            st.fixed_dictionaries(
                {"hostPort": st.sampled_from([80, 81]), "hostIP": st.sampled_from(["", "127.0.0.1"])}
            ),
            max_size=2,
        ),
    )
    def put_pod(self, pod: str, node: str, requests: dict[str, str], ports: list[dict[str, Any]]) -> None:
        info = pod_info(make_pod(pod, requests, ports))
        if pod in self.pods and self.pods[pod][0] != node:
            self.table.remove_pod(info, self.pods[pod][0])
        self.table.add_pod(info, node)
        self.pods[pod] = (node, info)

    @rule(pod=st.sampled_from("pqrst"))
    def remove_pod(self, pod: str) -> None:
        if pod in self.pods:
            node, info = self.pods.pop(pod)
            assert self.table.remove_pod(info, node)

    @rule(key=st.sampled_from(["x", "y", "never"]))
    def look_at_labels(self, key: str) -> None:
        self.table.labels(key)

    @invariant()
    def equals_a_rebuild(self) -> None:
        by_node: dict[str, list[PodInfo]] = {}
        for node, info in self.pods.values():
            by_node.setdefault(node, []).append(info)
        self.table.verify(by_node)
        assert {self.table.node(int(row)).name for row in self.table.order()} == self.nodes.keys()
        for name, node_object in self.nodes.items():
            row = self.table.row_of(name)
            assert row is not None
            assert self.table.node(row) is node_object
            assert {info.uid for info in self.table.pods(row)} == {info.uid for info in by_node.get(name, [])}
            total = sum(info.node_requests.get("memory", 0) for info in by_node.get(name, []))
            assert self.table.requested("memory")[row] == min(total, INT64_MAX)


TestTable = TableMachine.TestCase
TestTable.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_growth_keeps_everything() -> None:
    """More nodes than the first capacity: every column keeps its values."""
    table = NodeTable()
    table.labels("x")
    infos = {}
    for i in range(100):
        table.add(make_node(f"n{i}", labels={"x": str(i % 7)}, unschedulable=i % 2 == 0))
        infos[f"n{i}"] = [pod_info(make_pod(f"p{i}", {"cpu": str(i)}))]
        table.add_pod(infos[f"n{i}"][0], f"n{i}")
    table.verify(infos)
    assert [int(table.requested("cpu")[row]) for row in table.order()] == [1000 * i for i in range(100)]
    assert table.capacity == 128

"""Waiting situations with devices: a cluster, and who or what is to blame for the Pod ``p`` in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, Object, device, held, request, slice_of, want

MODEL = f'device.attributes["{DRIVER}"].model'
MEMORY = f'device.capacity["{DRIVER}"].memory'
TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Situation:
    """``reason`` and ``detail``: of a device group (``count`` devices); or ``said``: words of the plugin's verdict.

    ``facts``: the plugin's cause has just these. ``holders``: who has the group's devices. ``trouble``: reason and
    subject of a pool or slice that cannot be used, or of a search. ``text``: a piece of the explanation for people.
    ``phase``: and who holds it back, when no node is asked. ``hints``: kinds of changes that must be told.
    """

    name: str
    items: list[Object]
    text: str
    plugin: str = "DynamicResources"
    reason: str = ""
    count: int = 0
    detail: dict[str, str] = field(default_factory=dict)
    said: str = ""
    note: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    holders: dict[str, int] = field(default_factory=dict)
    trouble: tuple[str, str] = ("", "")
    hints: tuple[str, ...] = ()
    config: str = ""
    phase: str = "waiting"
    gates: dict[str, bool] = field(default_factory=dict)


def base(devices: list[Object], *claims: Object, waiting: Object | None = None, **spec: Any) -> list[Object]:
    """One node with these devices, the claims, and the waiting Pod."""
    return [node("n1"), gpu_class(), slice_of("n1", devices, **spec), *claims, waiting or pod("p", claim="want")]


def bound(name: str, on: str = "n1", claim: str = "", **spec: Any) -> Object:
    """A Pod on a node."""
    return pod(name, claim=claim, nodeName=on, **spec)


def _matching(attribute: str = f"{DRIVER}/root", kind: str = "matchAttribute") -> list[Object]:
    return [{kind: attribute}]


def _rooted(name: str, root: str) -> Object:
    return {"name": name, "attributes": {"root": {"string": root}}}


def _counter(value: str, groups: tuple[str, ...] = ()) -> Object:
    used: Object = {"counterSet": "set", "counters": {"memory": {"value": value}}}
    if groups:
        used["compatibilityGroups"] = list(groups)
    return {"consumesCounters": [used]}


def _served_by(resource: str) -> Object:
    item = gpu_class()
    item["spec"]["extendedResourceName"] = resource
    return item


def _asking(resource: str, count: str) -> Object:
    item = pod("p")
    item["spec"]["containers"][0]["resources"] = {"requests": {resource: count}, "limits": {resource: count}}
    return item


def _limited_share(most: str) -> Object:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": most, "step": "1Gi"}}
    return device("a", allowMultipleAllocations=True) | {
        "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}}
    }


def _linked(name: str, *links: str) -> Object:
    return {"name": name, "attributes": {"links": {"strings": list(links)}}}


def _alternatives(*subs: Object) -> Object:
    return {"name": "r", "firstAvailable": list(subs)}


def _labelled(name: str, **labels: str) -> Object:
    item = node(name)
    item["metadata"]["labels"].update(labels)
    return item


def _tainted_node(key: str) -> Object:
    item = node("n1")
    item["spec"] = {"taints": [{"key": key, "value": "x", "effect": "NoSchedule"}]}
    return item


def partition_world(held_groups: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> list[Object]:
    """One node with a device of 40Gi that can be had whole or as a half, and the half is taken."""
    counters = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "n1-counters"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 2},
            "sharedCounters": [{"name": "set", "counters": {"memory": {"value": "40Gi"}}}],
        },
    }
    devices = [device("whole", **_counter("40Gi", groups)), device("half", **_counter("20Gi", held_groups))]
    return [node("n1"), gpu_class(), counters, slice_of("n1", devices, count=2), held("h", "n1", "half", pod="user")]


SELECTORS = [
    Situation(
        "request selector false",
        base([device("a"), device("b")], want(request("r", 1, f'{MODEL} == "H100"'))),
        "2 selector false: request selector #0: ",
        reason="selector false",
        count=2,
        detail={"selector": f'request selector #0: {MODEL} == "H100"'},
    ),
    Situation(
        "the value that was read",
        base([device("a")], want(request("r", 1, f'{MODEL} == "H100"'))),
        "gpu.example.com/model is A100",
        reason="selector false",
        count=1,
    ),
    Situation(
        "second selector false",
        base([device("a")], want(request("r", 1, "true", f'{MEMORY}.compareTo(quantity("64Gi")) >= 0'))),
        "gpu.example.com/memory is 40Gi",
        reason="selector false",
        count=1,
        detail={"selector": f'request selector #1: {MEMORY}.compareTo(quantity("64Gi")) >= 0'},
    ),
    Situation(
        "class selector false",
        [
            node("n1"),
            gpu_class(),
            slice_of("n1", [device("a")], driver="other.example.com"),
            want(request()),
            pod("p", claim="want"),
        ],
        "driver is other.example.com",
        reason="selector false",
        count=1,
        detail={"selector": f'class gpu selector #0: device.driver == "{DRIVER}"'},
    ),
    Situation(
        "typing error in an attribute",
        base([device("a")], want(request("r", 1, f'device.attributes["{DRIVER}"].?modle.orValue("") == "A100"'))),
        "modle is absent (there is model)",
        reason="selector false",
        count=1,
    ),
    Situation(
        "selector fails",
        base([{"name": "a"}], want(request("r", 1, f'{MODEL} == "A100"'))),
        "no such key: model",
        reason="selector error",
        count=1,
    ),
    Situation(
        "selector fails, with the guard",
        base([{"name": "a"}], want(request("r", 1, f'{MODEL} == "A100"'))),
        f"guard it with: has({MODEL})",
        reason="selector error",
        count=1,
        detail={"guard": f"has({MODEL})"},
    ),
    Situation(
        "selector does not compile",
        base([device("a")], want(request("r", 1, "nonsense("))),
        "CEL compile error",
        reason="selector error",
        count=1,
    ),
]

IN_USE = [
    Situation(
        "in use by a Pod's claim",
        base([device("a")], held("h", "n1", "a", pod="user"), want(request()), bound("user", claim="h")),
        "1 by claim default/h (pod default/user, for 60m)",
        reason="in use by claim",
        count=1,
    ),
    Situation(
        "in use by a claim nobody uses",
        base([device("a")], held("h", "n1", "a"), want(request())),
        "claim default/h (no Pod uses it, for 60m)",
        reason="in use by claim",
        count=1,
    ),
    Situation(
        "in use for a Pod that is gone",
        base([device("a")], held("h", "n1", "a", pod="ghost"), want(request())),
        "pod default/ghost, which is gone",
        reason="in use by claim",
        count=1,
    ),
    Situation(
        "too few free ones",
        base([device("a"), device("b")], held("h", "n1", "a"), want(request("r", 2))),
        "2 devices: 1 would do, 1 in use",
        reason="in use by claim",
        count=1,
    ),
    Situation(
        "taken by a sibling request",
        base([device("a")], want(request("r"), request("s"))),
        "1 taken for this Pod itself",
        reason="in use by claim",
        count=1,
    ),
    Situation(
        "all of a class, one in use",
        base([device("a"), device("b")], held("h", "n1", "a"), want(request("r", 0, allocationMode="All"))),
        "all of class gpu",
        reason="in use by claim",
        count=1,
    ),
    Situation(
        "an admin's look does not count",
        base([device("a")], held("h", "n1", "a", adminAccess=True), want(request("r", 2))),
        "1 device: 1 would do",
    ),
]

STANDING = [
    Situation(
        "tainted device",
        base([device("a", taints=[TAINT])], want(request())),
        "tainted broken=yes:NoSchedule",
        reason="tainted",
        count=1,
        detail={"taint": "broken=yes:NoSchedule"},
        hints=("tolerate device taint",),
    ),
    Situation(
        "tainted by a rule",
        [
            *base([device("a")], want(request())),
            {
                "apiVersion": "resource.k8s.io/v1beta2",
                "kind": "DeviceTaintRule",
                "metadata": {"name": "rule"},
                "spec": {"deviceSelector": {"driver": DRIVER}, "taint": TAINT},
            },
        ],
        "tainted broken=yes:NoSchedule",
        reason="tainted",
        count=1,
    ),
    Situation(
        "capacity larger than the device",
        base(
            [device("a", allowMultipleAllocations=True)],
            want(request("r", 1, capacity={"requests": {"memory": "64Gi"}})),
        ),
        "1 capacity memory short by 24Gi: 64Gi asked, 40Gi in total",
        reason="capacity short by",
        count=1,
        detail={"capacity": "memory", "asked": "64Gi", "total": "40Gi", "short by": "24Gi"},
        hints=("less capacity",),
    ),
    Situation(
        "capacity used up",
        base(
            [device("a", allowMultipleAllocations=True)],
            held("h", "n1", "a", shareID="s1", consumedCapacity={"memory": "30Gi"}),
            want(request("r", 1, capacity={"requests": {"memory": "20Gi"}})),
        ),
        "1 capacity memory short by 10Gi: 20Gi asked, 10Gi free of 40Gi",
        reason="capacity short by",
        count=1,
        detail={"asked": "20Gi", "free": "10Gi", "total": "40Gi", "short by": "10Gi"},
        holders={"default/h": 1},
        hints=("less capacity", "claim ends"),
    ),
    Situation(
        "unknown capacity",
        base(
            [device("a", allowMultipleAllocations=True)], want(request("r", 1, capacity={"requests": {"cores": "1"}}))
        ),
        "the device has no such capacity",
        reason="capacity short by",
        count=1,
        detail={"capacity": "cores"},
    ),
    Situation(
        "counter used up",
        [*partition_world(), want(request()), pod("p", claim="want")],
        "1 counter set/memory short by 20Gi: 40Gi asked, 20Gi free of 40Gi",
        reason="counter short by",
        count=1,
        detail={"counter": "set/memory", "asked": "40Gi", "free": "20Gi", "total": "40Gi", "short by": "20Gi"},
        holders={"default/h": 1},
        hints=("claim ends",),
    ),
    Situation(
        "incompatible groups",
        [*partition_world(("mig",), ("mps",)), want(request()), pod("p", claim="want")],
        "incompatible group",
        reason="incompatible group",
        count=1,
        detail={"counter set": "set"},
        gates={"DRADeviceCompatibilityGroups": True},
    ),
    Situation(
        "node that does not declare a feature",
        base([device("a")], want(request()), skipNodeOperations=["All"]),
        "the node does not declare DRAOptionalNodeOperations",
        reason="not supported",
        count=1,
        gates={"DRAOptionalNodeOperations": True},
    ),
    Situation(
        "an extended resource that devices serve",
        [
            node("n1"),
            _served_by("example.com/gpu"),
            slice_of("n1", [device("a"), device("b")]),
            held("h", "n1", "a", pod="user"),
            bound("user", claim="h"),
            _asking("example.com/gpu", "2"),
        ],
        "request container-0-request-0: 2 devices: 1 would do, 1 in use",
        reason="in use by claim",
        count=1,
        holders={"default/h": 1},
    ),
    Situation(
        "more capacity than the request policy allows",
        base([_limited_share("8Gi")], want(request("r", 1, capacity={"requests": {"memory": "16Gi"}}))),
        "capacity memory does not suit: 16Gi is more than the policy's maximum 8Gi",
        reason="capacity short by",
        count=1,
        detail={"capacity": "memory", "because": "16Gi is more than the policy's maximum 8Gi"},
        gates={"DRAConsumableCapacity": True},
    ),
    Situation(
        "lists without a common value",
        base(
            [_linked("a", "l0", "l1"), _linked("b", "l2")],
            want(request("r", 2), constraints=_matching(f"{DRIVER}/links")),
        ),
        "match of gpu.example.com/links broken: l2 here, against r=a (l0, l1)",
        reason="match broken against",
        count=1,
        detail={"attribute": f"{DRIVER}/links", "value": "l2", "against": "r=a (l0, l1)"},
        gates={"DRAListTypeAttributes": True},
    ),
    Situation(
        "needs binding conditions, gate off",
        base([device("a", bindingConditions=["ready"], bindingFailureConditions=["failed"])], want(request())),
        "DRADeviceBindingConditions is disabled",
        reason="not supported",
        count=1,
        gates={"DRADeviceBindingConditions": False},
    ),
    Situation(
        "device of another node",
        [
            node("n1"),
            node("n2"),
            gpu_class(),
            slice_of(
                None,
                [device("a", nodeName="n2"), device("b", nodeName="n1")],
                perDeviceNodeSelection=True,
                allNodes=None,
            ),
            want(request("r", 2)),
            pod("p", claim="want"),
        ],
        "1 not on this node",
        reason="not on this node",
        count=1,
    ),
]

CONSTRAINTS = [
    Situation(
        "match broken, with the sibling",
        base([_rooted("a", "r1"), _rooted("b", "r2")], want(request("r", 2), constraints=_matching())),
        "match of gpu.example.com/root broken: r2 here, against r=a (r1)",
        reason="match broken against",
        count=1,
        detail={"attribute": f"{DRIVER}/root", "value": "r2", "against": "r=a (r1)"},
    ),
    Situation(
        "match broken between requests",
        base([_rooted("a", "r1"), _rooted("b", "r2")], want(request("x"), request("y"), constraints=_matching())),
        "against x=a (r1)",
        reason="match broken against",
        count=1,
        detail={"value": "r2"},
    ),
    Situation(
        "distinct broken",
        base(
            [_rooted("a", "r1"), _rooted("b", "r1")],
            want(request("r", 2), constraints=_matching(kind="distinctAttribute")),
        ),
        "distinct gpu.example.com/root broken",
        reason="distinct broken against",
        count=1,
    ),
    Situation(
        "attribute of a constraint missing",
        base([_rooted("a", "r1"), {"name": "b"}], want(request("r", 2), constraints=_matching())),
        "attribute missing: gpu.example.com/root",
        reason="attribute missing",
        count=1,
        detail={"attribute": f"{DRIVER}/root"},
    ),
    Situation(
        "nobody publishes the attribute",
        base([device("a")], want(request(), constraints=_matching(f"{DRIVER}/numa"))),
        "attribute missing: gpu.example.com/numa",
        reason="attribute missing",
        count=1,
    ),
    Situation(
        "first alternative",
        base(
            [device("a")],
            want(
                _alternatives(
                    {
                        "name": "big",
                        "deviceClassName": "gpu",
                        "selectors": [{"cel": {"expression": f'{MODEL} == "H100"'}}],
                    },
                    {"name": "two", "deviceClassName": "gpu", "count": 2},
                )
            ),
        ),
        "request r/big (1 of class gpu)",
        reason="selector false",
        count=1,
    ),
    Situation(
        "more than a claim may have",
        base([device(f"d{n}") for n in range(40)], want(request("r", 0, allocationMode="All"))),
        "exceeds the claim limit of 32",
        said="exceeds the claim limit of 32",
        trouble=("limit", "claim default/want, request r"),
    ),
    Situation(
        "more than there are",
        base([device("a")], want(request("r", 3))),
        "request r (3 of class gpu): 1 device: 1 would do",
        said="cannot allocate all claims",
    ),
]

LIMITS = [
    Situation(
        "an alternative of more than a claim may have",
        base(
            [device(f"d{n}") for n in range(40)],
            want(
                _alternatives(
                    {"name": "many", "deviceClassName": "gpu", "count": 33},
                    {
                        "name": "one",
                        "deviceClassName": "gpu",
                        "selectors": [{"cel": {"expression": f'{MODEL} == "H100"'}}],
                    },
                )
            ),
        ),
        "limit (devices more than 32)",
        reason="limit",
        count=1,
        detail={"devices": "more than 32"},
    ),
    Situation(
        "a search that is cut off",
        base(
            [device(f"d{n:02}") for n in range(10)],
            want(*[request(f"r{n}") for n in range(7)], request("z", 1, "false")),
        ),
        "search budget: these are the reasons met in",
        reason="selector false",
        count=10,
        detail={"selector": "request selector #0: false"},
        trouble=("search budget", ""),
        hints=("drop selector",),
    ),
]

POOLS = [
    Situation(
        "pool incomplete",
        base([device("a")], want(request()), count=3),
        "pool incomplete (seen 1 of 3 slices, generation 1)",
        note="pool incomplete",
        trouble=("pool incomplete", f"pool {DRIVER}/n1"),
    ),
    Situation(
        "pool being replaced",
        [
            *base([device("a")], want(request()), generation=1),
            slice_of("n1", [device("a")], name="new", generation=2, count=2),
        ],
        "seen 1 of 2 slices, generation 2",
        note="pool incomplete",
    ),
    Situation(
        "pool invalid",
        base([device("a"), device("a")], want(request())),
        "duplicate device name a",
        note="pool invalid",
        trouble=("pool invalid", f"pool {DRIVER}/n1"),
    ),
    Situation(
        "slice that cannot be read",
        base([{"name": "a", "capacity": {"memory": {"value": "lots"}}}], want(request())),
        "slice n1-slice: not supported",
        note="not supported",
    ),
    Situation(
        "slice behind a gate",
        base([device("a", nodeName="n1")], want(request()), nodeName=None, perDeviceNodeSelection=True),
        "DRAPartitionableDevices is disabled",
        note="not supported",
        gates={"DRAPartitionableDevices": False},
    ),
    Situation(
        "no devices at all",
        [node("n1"), gpu_class(), want(request()), pod("p", claim="want")],
        "no driver has published devices for this node",
        note="not on this node",
    ),
]

CLAIMS = [
    Situation(
        "claim does not exist",
        [node("n1"), pod("p", claim="want")],
        'could not find ResourceClaim "default/want"',
        phase="held back",
        said='could not find ResourceClaim "default/want"',
    ),
    Situation(
        "template not served yet",
        [node("n1"), pod("p", template="t")],
        "ResourceClaim not created yet",
        phase="held back",
        said="ResourceClaim not created yet",
    ),
    Situation(
        "claim is being deleted",
        [
            node("n1"),
            want(request())
            | {
                "metadata": {
                    "name": "want",
                    "namespace": "default",
                    "finalizers": ["x"],
                    "deletionTimestamp": "2027-01-15T07:00:00Z",
                }
            },
            pod("p", claim="want"),
        ],
        "is being deleted",
        phase="held back",
        said="is being deleted",
    ),
    Situation(
        "claim of another Pod",
        [node("n1"), want(request()), _stolen := pod("p", template="t")],
        "was not created for Pod default/p",
        phase="held back",
        said="was not created for Pod default/p",
    ),
    Situation(
        "class of an alternative does not exist",
        base([device("a")], want(_alternatives({"name": "x", "deviceClassName": "gone", "count": 1}))),
        "device class gone does not exist",
        said="device class gone does not exist",
    ),
    Situation(
        "class does not exist",
        [node("n1"), want(request("r", 1, deviceClassName="gpus")), pod("p", claim="want")],
        "device class gpus does not exist",
        said="device class gpus does not exist",
    ),
    Situation(
        "claim allocated elsewhere",
        [
            node("n1", cpu="1"),
            node("n2"),
            gpu_class(),
            slice_of("n1", [device("a")]),
            held("want", "n1", "a"),
            pod("p", claim="want", cpu="2"),
        ],
        "claim default/want has its devices (node n1, since 2027-01-15T07:00:00Z)",
        said="resourceclaim not available on the node",
    ),
    Situation(
        "claim full",
        [
            node("n1"),
            gpu_class(),
            slice_of("n1", [device("a")]),
            _full := held("want", "n1", "a"),
            pod("p", claim="want"),
        ],
        "reserved for 256 consumers",
        said="reserved for 256 consumers",
    ),
]
_stolen["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "want"}]}
_full["status"]["reservedFor"] = [{"resource": "pods", "name": f"q{n}", "uid": f"q{n}"} for n in range(256)]

DEVICES = [*SELECTORS, *IN_USE, *STANDING, *CONSTRAINTS, *LIMITS, *POOLS, *CLAIMS]

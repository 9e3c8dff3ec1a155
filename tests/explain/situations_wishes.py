"""What users ask for and do not get elsewhere (spec/cases.md, part C), as far as it shows in a Pod that waits."""

from __future__ import annotations

from tests.app.objects import gpu_class, node, pod, template
from tests.explain.clusters import Object, device, held, quota, request, slice_of, want
from tests.explain.situations import MEMORY, TAINT, Situation, base, bound, partition_world
from tests.explain.situations_plugins import GANGS, gang

NIC = "nic.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"


def rooted(name: str, root: str) -> Object:
    """A device at a PCIe root."""
    return {"name": name, "attributes": {ROOT: {"string": root}}}


def nic_class() -> Object:
    """A class of another driver."""
    item = gpu_class("nic")
    item["spec"]["selectors"] = [{"cel": {"expression": f'device.driver == "{NIC}"'}}]
    return item


def foreign(name: str, namespace: str, *devices: str) -> list[Object]:
    """A claim of another namespace with devices of n1, and its Pod."""
    claim, user = held(name, "n1", *devices), bound(f"{name}-pod", claim=name)
    for item in (claim, user):
        item["metadata"]["namespace"] = namespace
    uid = f"pod/{namespace}/{name}-pod"
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": f"{name}-pod", "uid": uid}]
    return [claim, user]


def member(name: str, claim: str) -> Object:
    """A Pod of the gang with a claim."""
    return pod(name, claim=claim, schedulingGroup={"podGroupName": "g"})


def two_members() -> list[Object]:
    """A gang of two Pods with a claim each, and one free device."""
    return [
        node("n1"), gpu_class(), slice_of("n1", [device("a"), device("b")]), held("h", "n1", "b", pod="user"),
        bound("user", claim="h"), gang(2), want(request()), want(request(), name="more"), member("first", "more"),
        member("p", "want"),
    ]  # fmt: skip


LARGE = f'{MEMORY}.compareTo(quantity("64Gi")) >= 0'


def one_left_on_each() -> list[Object]:
    """Two nodes of two devices, one of them taken on each; the Pod wants two."""
    items = [gpu_class(), want(request("r", 2)), pod("p", claim="want")]
    for name, claim, user in (("n1", "h1", "u1"), ("n2", "h2", "u2")):
        items += [node(name), slice_of(name, [device("a"), device("b")]), held(claim, name, "a", pod=user)]
        items.append(bound(user, name, claim=claim))
    return items


WISHES = [
    Situation(
        "U1: a small request sits on the large device",
        base([device("large", memory="80Gi"), device("small")], held("h", "n1", "large", pod="user"),
             bound("user", claim="h"), want(request("r", 1, LARGE))),
        "2 devices: 1 in use, 1 selector false",
        reason="in use by claim",
        count=1,
        holders={"default/h": 1},
        hints=("claim ends", "drop selector"),
    ),
    Situation(
        "U2: what is free is spread over the nodes",
        one_left_on_each(),
        "2 devices would do in the whole cluster, but all 2 must be on one node, and no node has more than 1",
        reason="in use by claim",
        count=1,
        holders={"default/h1": 1, "default/h2": 1},
        hints=("fewer devices", "claim ends", "add node"),
    ),
    Situation(
        "U4: would it fit if the request were another",
        base([device("a")], want(request("r", 1, LARGE))),
        "1 selector false: request selector #0: ",
        reason="selector false",
        count=1,
        detail={"selector": f"request selector #0: {LARGE}"},
        hints=("drop selector",),
    ),
    Situation(
        "U6: a domain that would be nice was made a must",
        base([rooted("a", "d0"), rooted("b", "d1")],
             want(request("r", 2), constraints=[{"matchAttribute": ROOT}])),
        f"1 match of {ROOT} broken: d1 here, against r=a (d0)",
        reason="match broken against",
        count=1,
        detail={"attribute": ROOT, "value": "d1", "against": "r=a (d0)"},
        hints=("drop constraint", "fewer devices"),
    ),
    Situation(
        "U8: a small partition is in the way of a large one",
        [*partition_world(), bound("user", claim="h"), want(request()), pod("p", claim="want")],
        "counter set/memory short by 20Gi: 40Gi asked, 20Gi free of 40Gi",
        reason="counter short by",
        count=1,
        detail={"counter": "set/memory", "asked": "40Gi", "free": "20Gi", "short by": "20Gi"},
        holders={"default/h": 1},
        hints=("claim ends",),
    ),
    Situation(
        "U9: it fits once somebody has moved",
        one_left_on_each(),
        "1 by claim default/h1 (pod default/u1, for 60m)",
        reason="in use by claim",
        count=1,
        hints=("claim ends",),
    ),
    Situation(
        "U10: a tenant has asked for all it may have",
        [node("n1"), gpu_class(), slice_of("n1", [device("a"), device("b"), device("c")]), held("theirs", "n1", "a"),
         template("t"), quota("tenant", **{"gpu.deviceclass.resource.k8s.io/devices": ("1", "1")}),
         pod("p", template="t")],
        "ResourceQuota default/tenant: gpu.deviceclass.resource.k8s.io/devices: 1 asked, 1 of 1 used",
        phase="held back",
        said="ResourceClaim not created yet",
        facts={"entry": "gpu", "template": "default/t", "quota": "default/tenant",
               "resource": "gpu.deviceclass.resource.k8s.io/devices", "asked": "1", "used": "1", "limit": "1"},
    ),
    Situation(
        "U3: enough in the cluster, too few on one node",
        [node("n1"), node("n2"), gpu_class(), slice_of("n1", [device("a")]), slice_of("n2", [device("a")]),
         want(request("r", 2)), pod("p", claim="want")],
        "request r of claim default/want: 2 devices would do in the whole cluster, but all 2 must be on one node, and "
        "no node has more than 1",
        said="cannot allocate all claims",
        hints=("fewer devices",),
    ),
    Situation(
        "U5: who has gpu-3, in another namespace",
        base([device(f"gpu-{n}") for n in range(4)], *foreign("theirs", "team-b", "gpu-3"),
             want(request("r", 4))),
        "1 by claim team-b/theirs (pod team-b/theirs-pod, for 60m)",
        reason="in use by claim",
        count=1,
        holders={"team-b/theirs": 1},
        hints=("claim ends", "fewer devices"),
    ),
    Situation(
        "U7: aligned across drivers",
        [node("n1"), gpu_class(), nic_class(), slice_of("n1", [rooted("gpu", "pci0")]),
         slice_of("n1", [rooted("nic", "pci1")], name="nics", driver=NIC),
         want(request("gpu"), {"name": "nic", "exactly": {"deviceClassName": "nic", "count": 1}},
              constraints=[{"matchAttribute": ROOT}]),
         pod("p", claim="want")],
        f"match of {ROOT} broken: pci1 here, against gpu=gpu (pci0)",
        reason="match broken against",
        count=1,
        detail={"attribute": ROOT, "value": "pci1", "against": "gpu=gpu (pci0)"},
        hints=("drop constraint",),
    ),
    Situation(
        "U12: a less important Pod holds the device",
        [node("n1"), gpu_class(), slice_of("n1", [device("a")]), held("h", "n1", "a", pod="low"),
         bound("low", claim="h", priority=1), want(request()), pod("p", claim="want", priority=100)],
        "1 by claim default/h (pod default/low, for 60m)",
        reason="in use by claim",
        count=1,
        holders={"default/h": 1},
        hints=("claim ends",),
    ),
    Situation(
        "U13: another scheduler gave the device away",
        [node("n1"), gpu_class(), slice_of("n1", [device("a")]), held("h", "n1", "a", pod="other"),
         pod("other", claim="h", nodeName="n1", scheduler="default-scheduler"), want(request()),
         pod("p", claim="want")],
        "1 by claim default/h (pod default/other, scheduled by default-scheduler, for 60m)",
        reason="in use by claim",
        count=1,
        holders={"default/h": 1},
        hints=("claim ends",),
    ),
    Situation(
        "U14: a device in use that turned bad",
        base([device("a", taints=[TAINT | {"effect": "NoExecute"}])], held("h", "n1", "a", pod="user"), want(request()),
             bound("user", claim="h")),
        "tainted broken=yes:NoExecute",
        reason="tainted",
        count=1,
        detail={"taint": "broken=yes:NoExecute"},
    ),
    Situation(
        "U11: a gang of which one member finds no device",
        two_members(),
        "PodGroup default/g is placed all or none: 1 of 2 waiting Pods would have a place, 2 are wanted together",
        said="cannot allocate all claims",
        reason="in use by claim",
        count=2,
        holders={"default/h": 1, "default/more": 1},
        gates=GANGS,
        hints=("claim ends",),
    ),
]  # fmt: skip

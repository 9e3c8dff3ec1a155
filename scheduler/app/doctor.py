"""The doctor's round: looks at a cluster until its findings have settled, or once at files; repairs what is safe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from scheduler.api.deep import plain
from scheduler.api.kinds import POD, Kind
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.resource import ResourceClaim
from scheduler.api.versions import ResourceKinds
from scheduler.app.snapshot import without_objects
from scheduler.config import SchedulerConfig
from scheduler.dra.limits import DeviceLimit
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import find_access
from scheduler.edge.discovery import discover_kinds
from scheduler.edge.dumps import read_dumps
from scheduler.edge.errors import ApiError, NotFound
from scheduler.edge.lister import Lister
from scheduler.edge.repairs import DONE, Outcome, Repairer
from scheduler.errors import ClusterError
from scheduler.explain.doctor import Settling, examine
from scheduler.explain.doctor_facts import Diagnosis, Look
from scheduler.whatif.objects import Objects, Problem, known_kinds, read_objects

_PARTITION = "Partition"
_NO_OBJECT = "document"
_JUDGED_BY = {
    "Pod": "who uses a claim was not judged",
    "ResourceClaim": "nothing can be found without claims",
    "ResourceSlice": "whether devices exist, and how much they have, was not judged",
}


@dataclass(slots=True)
class Round:
    """What one run found, and what became of repairs: ``outcomes`` None when none were asked for."""

    diagnosis: Diagnosis
    outcomes: list[Outcome] | None = None

    @property
    def left(self) -> bool:
        """Whether errors or warnings are left."""
        done = {outcome.body for outcome in self.outcomes or () if outcome.result == DONE}
        findings = (one for one in self.diagnosis.findings if one.severity != "note")
        return any(one.repair is None or one.repair.body not in done for one in findings)


def from_files(paths: Sequence[str], config: SchedulerConfig) -> Round:
    """One look at dump files. Raises OSError, UserError (no YAML, no object)."""
    objects = read_objects(read_dumps(paths), known_kinds((POD, POD_GROUP, *_device_kinds(ResourceKinds()))))
    if objects.empty:
        raise without_objects(objects)
    return Round(diagnose(objects, partitions(config)))


def from_cluster(
    kubeconfig: str, config: SchedulerConfig, *, settle_s: float | None = None, fix: bool = False, dry: bool = True
) -> Round:
    """Look at a cluster; with ``fix`` repair what is safe, or with ``dry`` too only try it. Raises ClusterError.

    ``settle_s``: how long each finding must stay; None: by check.
    """
    return asyncio.run(_from_cluster(kubeconfig, partitions(config), settle_s, fix, dry))


async def _from_cluster(
    kubeconfig: str, ours: Mapping[str, DeviceLimit], settle_s: float | None, fix: bool, dry: bool
) -> Round:
    access = await find_access(kubeconfig)
    async with ApiClient(access, user_agent="dra-scheduler doctor") as client:
        kinds = await discover_kinds(client, lambda text: None)

        async def look() -> Diagnosis:
            return diagnose(await list_objects(client, kinds), ours)

        diagnosis = await settled(look, settle_s)
        outcomes: list[Outcome] | None = None
        if fix:
            repairer = Repairer(client, kinds.claim)
            repairs = {one.repair.body: one.repair for one in diagnosis.findings if one.repair is not None}
            outcomes = [await repairer.carry_out(repair, dry=dry) for repair in repairs.values()]
    return Round(diagnosis, outcomes)


async def settled(
    look: Callable[[], Any],
    settle_s: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Any] = asyncio.sleep,
) -> Diagnosis:
    """Look again until every finding of the first look has stayed long enough, or is gone."""
    began = clock()
    found: Diagnosis = await look()
    settling = Settling(found, settle_s)
    while (wait_until := settling.next_look_s()) is not None:
        await sleep(max(0.0, began + wait_until - clock()))
        later = await look()
        found = settling.look_again(later, max(wait_until, clock() - began))
    return found


async def list_objects(client: ApiClient, kinds: ResourceKinds) -> Objects:
    """One LIST per kind: Pods before claims, because a Pod's reservation is older than its Binding."""
    items: list[Any] = []
    problems: list[Problem] = []
    listed = (POD, kinds.claim, kinds.slice, POD_GROUP)
    for kind in listed:
        try:
            raw, _ = await Lister(client, kind, {}).list_raw()
        except NotFound:
            continue  # not served: there are none
        except ApiError as error:
            problems.append(Problem(kind.name, "", f"cannot be listed: {error}"))
            continue
        decoded = [plain(one) for one in raw]
        items.append({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "items": decoded})
    if not items:
        raise ClusterError(problems[0].words() if problems else "nothing can be listed")
    objects = read_objects(items, known_kinds(listed))
    objects.problems[:0] = problems
    return objects


def _device_kinds(kinds: ResourceKinds) -> tuple[Kind, ...]:
    return kinds.claim, kinds.slice, kinds.device_class, kinds.taint_rule


def diagnose(objects: Objects, ours: Mapping[str, DeviceLimit]) -> Diagnosis:
    """One look. ``ours``: see Look. Never raises for what is in the objects: that becomes a caveat."""
    known = objects.found
    claims = list(_readable_claims(objects))
    unread = _unread(objects)
    unread_slices = bool(unread.get("ResourceSlice"))
    look = Look(
        claims,
        objects.of("Pod"),
        objects.of("ResourceSlice"),
        [group.metadata.uid for group in objects.of("PodGroup")] if POD_GROUP.name in known else None,
        ours,
        pods_known=POD.name in known,
        slices_known="ResourceSlice" in known and not unread_slices,
        unread=unread,
    )
    found = examine(look)
    found.caveats += [f"no {kind} in the input: {lost}" for kind, lost in _JUDGED_BY.items() if kind not in known]
    if unread_slices and "ResourceSlice" in known:
        found.caveats.append("a ResourceSlice could not be read: whether devices exist was not judged")
    found.caveats += [f"left out: {problem.words()}" for problem in objects.problems]
    return found


def _unread(objects: Objects) -> dict[str, set[str]]:
    """See Look. A claim that was not listed is unread, too; what is no object at all may have been any."""
    listed = (*_JUDGED_BY, POD_GROUP.name)
    unread: dict[str, set[str]] = {} if "ResourceClaim" in objects.found else {"ResourceClaim": {""}}
    for problem in objects.problems:
        kind, _, key = problem.subject.partition(" ")
        namespace, slash, _ = key.partition("/")
        for one in (kind,) if kind in listed else listed if kind == _NO_OBJECT else ():
            unread.setdefault(one, set()).add(namespace if slash and kind == one else "")
    return unread


def _readable_claims(objects: Objects) -> Iterator[ResourceClaim]:
    """Claims whose reservations can be read, too: they are decoded only when they are asked for."""
    for claim in objects.of("ResourceClaim"):
        try:
            _ = claim.consumers
        except msgspec.DecodeError as error:
            objects.problems.append(Problem(f"ResourceClaim {claim.key}", "status.reservedFor", str(error)))
            continue
        yield claim


def partitions(config: SchedulerConfig) -> dict[str, DeviceLimit]:
    """schedulerName → the devices that the profile's Partition leaves to it; everything without one."""
    found: dict[str, DeviceLimit] = {}
    for profile in config.profiles:
        enabled = {one.name for plugin_set in profile.plugins.values() for one in plugin_set.enabled}
        arguments = profile.arguments.get(_PARTITION) or {} if _PARTITION in enabled else {}
        drivers, pools = arguments.get("drivers") or (), arguments.get("pools") or ()
        found[profile.scheduler_name] = DeviceLimit(frozenset(drivers), frozenset(pools))
    return found

"""A cluster as it is at one moment, with profiles to decide in it: from dump files or from LISTs of a live cluster.

Read only: nothing here writes to a cluster, and the state belongs to the caller alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from scheduler.api.core import Pod
from scheduler.api.deep import plain
from scheduler.api.kinds import POD, Kind
from scheduler.api.meta import ObjectMeta
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.api.versions import ResourceKinds
from scheduler.app.profiles import build_profiles
from scheduler.app.service import watched_kinds
from scheduler.config import SchedulerConfig
from scheduler.dra.features import Features
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import find_access
from scheduler.edge.discovery import discover_kinds
from scheduler.edge.dumps import read_dumps
from scheduler.edge.errors import ApiError, NotFound
from scheduler.edge.lister import Lister
from scheduler.errors import ClusterError, UserError
from scheduler.explain.quotas import QUOTA
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState
from scheduler.whatif.build import build_state
from scheduler.whatif.objects import JUDGED_BY, NEEDED, TEMPLATE, Objects, Problem, known_kinds, read_objects
from scheduler.whatif.templates import make_claims

RESOURCE_QUOTA = Kind(QUOTA, "", "v1", "resourcequotas", True, ObjectMeta)
"""Read for what it says of claims only."""

_TOLD_MAX = 5
"""Names and problems that an error tells at most."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``now``: Unix seconds at which times are judged. ``live``: from a cluster, not from files."""

    state: ClusterState
    profiles: Mapping[str, Profile]
    objects: Objects
    now: float
    live: bool

    def profile_for(self, pod: Pod) -> tuple[Profile, bool]:
        """The profile of the Pod's schedulerName, else the first one; and whether it is the Pod's own."""
        own = self.profiles.get(pod.spec.schedulerName)
        return (own, True) if own is not None else (next(iter(self.profiles.values())), False)

    def pod(self, namespace: str, name: str) -> Pod:
        """A Pod by name. Raises UserError that says what is there instead."""
        entry = self.objects.decoded.get(("Pod", f"{namespace}/{name}"))
        if entry is not None:
            pod: Pod = entry[1]
            return pod
        elsewhere = sorted(key for kind, key in self.objects.decoded if kind == "Pod" and key.endswith(f"/{name}"))
        told = [f"there is {', '.join(elsewhere[:_TOLD_MAX])}"] if elsewhere else []
        if POD.name not in self.objects.found:
            told.append(f"no Pod in the input: {JUDGED_BY[POD.name]}")
        raise UserError(f"pod {namespace}/{name}", "", "; ".join(["not found", *told, *left_out(self.objects)]))


def from_files(
    paths: Sequence[str], config: SchedulerConfig, gates: Mapping[str, bool], now: float | None = None
) -> Snapshot:
    """A snapshot from dump files. Raises OSError, UserError (no YAML, no object), ConfigError."""
    return from_items(read_dumps(paths), config, gates, time.time() if now is None else now)


def from_items(
    items: Iterable[Any], config: SchedulerConfig, gates: Mapping[str, bool], now: float, live: bool = False
) -> Snapshot:
    """A snapshot from decoded documents. Not live: claims that no controller has made yet are made from templates, and
    documents without any object raise UserError.
    """
    features = Features.from_gates(gates)
    objects = objects_of(items, features, live)
    state = build_state(objects, features)
    profiles = build_profiles(replace(config, extenders=()), state, imagined_ids(), features)  # nobody to ask from here
    return Snapshot(state, profiles, objects, now, live)


def objects_of(items: Iterable[Any], features: Features, live: bool) -> Objects:
    """The decoded documents alone. Raises UserError as ``from_items``."""
    objects = read_objects(items, readable_kinds(features))
    if not live:
        if objects.empty:
            raise without_objects(objects)
        make_claims(objects)
    return objects


def without_objects(objects: Objects) -> UserError:
    """The error for an input without a single object, with what could not be read."""
    return UserError("input", "", "; ".join(["there is no Kubernetes object in it", *left_out(objects)]))


def left_out(objects: Objects) -> list[str]:
    """What of the input could not be read, for the end of an error."""
    told = [problem.words() for problem in objects.problems[:_TOLD_MAX]]
    more = len(objects.problems) - len(told)
    return [*told, f"and {more} more that cannot be read"] if more else told


def readable_kinds(features: Features) -> dict[tuple[str, str], Kind]:
    """(apiVersion, kind) → how to read it, for every kind that decisions read."""
    return known_kinds(_all_kinds(ResourceKinds(), features))


def from_cluster(kubeconfig: str, config: SchedulerConfig, gates: Mapping[str, bool]) -> Snapshot:
    """A snapshot by one LIST per kind. Raises ClusterError when a kind that every answer needs cannot be listed."""
    return asyncio.run(_from_cluster(kubeconfig, config, gates))


async def _from_cluster(kubeconfig: str, config: SchedulerConfig, gates: Mapping[str, bool]) -> Snapshot:
    items, problems = await fetch_items(kubeconfig, Features.from_gates(gates), (RESOURCE_QUOTA,))
    snapshot = from_items(items, config, gates, time.time(), live=True)
    snapshot.objects.problems.extend(problems)
    return snapshot


async def fetch_items(
    kubeconfig: str, features: Features, more: Sequence[Kind] = ()
) -> tuple[list[Any], list[Problem]]:
    """As ``list_items``, of the cluster that a kubeconfig means."""
    access = await find_access(kubeconfig)
    async with ApiClient(access, user_agent="dra-scheduler explain") as client:
        kinds = await discover_kinds(client, lambda text: None)
        return await list_items(client, kinds, features, more)


async def list_items(
    client: ApiClient, kinds: ResourceKinds, features: Features, more: Sequence[Kind] = ()
) -> tuple[list[Any], list[Problem]]:
    """Every object that decisions read, and those of the kinds ``more``, as one typed List per kind.

    Kinds that may not be listed become problems.
    """
    template = msgspec.structs.replace(kinds.claim, name=TEMPLATE, plural="resourceclaimtemplates", wire=None)
    items: list[Any] = []
    problems: list[Problem] = []
    absent: list[Any] = []
    for kind in (*_all_kinds(kinds, features), template, *more):
        try:
            found, _ = await Lister(client, kind, {}).list_raw()
        except NotFound as error:
            # A kind that this server does not serve has no objects.
            if kind.name in NEEDED:
                problems.append(Problem(kind.name, "", f"is not served: {error}"))
            else:
                absent.append({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "items": []})
            continue
        except ApiError as error:
            problems.append(Problem(kind.name, "", f"cannot be listed: {error}"))
            continue
        decoded = [plain(raw) for raw in found]
        items.append({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "items": decoded})
    if not items:
        raise ClusterError(problems[0].words() if problems else "nothing can be listed")
    return [*items, *absent], problems


def _all_kinds(kinds: ResourceKinds, features: Features) -> tuple[Kind, ...]:
    listed = watched_kinds(kinds, features)
    return tuple({kind.name: kind for kind in (*listed, POD_DISRUPTION_BUDGET, POD_GROUP)}.values())


def imagined_ids() -> Any:
    """Ids for what is only imagined: the same ones every time, so that equal input gives equal output."""
    count = iter(range(1, 1 << 62))
    return lambda: f"00000000-0000-4000-8000-{next(count):012d}"

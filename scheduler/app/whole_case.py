"""A cluster given as plain objects and one Pod to place in it: state and profile as the service would have them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, Kind, convert
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.api.versions import ResourceKinds
from scheduler.app.profiles import build_profiles
from scheduler.app.service import watched_kinds
from scheduler.config import load_config
from scheduler.config.defaults import API_VERSION, KIND, UPSTREAM_SCHEDULER_NAME
from scheduler.errors import UserError
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState

Json = dict[str, Any]
_ENDED = ("Succeeded", "Failed")
_KINDS: dict[str, Kind] = {kind.name: kind for kind in (*watched_kinds(ResourceKinds()), POD_DISRUPTION_BUDGET)}


@dataclass(frozen=True, slots=True)
class WholeCase:
    """``pod`` waits in ``state``, where ``profile`` decides about it at ``now`` (wall-clock seconds)."""

    state: ClusterState
    profile: Profile
    pod: Pod
    now: float


def build_case(objects: Iterable[Json], pod: Json, config: Json | None, now: float) -> WholeCase:
    """Decode everything. What an API server would have filled in may be missing: uid, namespace, schedulerName.

    Ended Pods are left out, as the service's watch does. Raises UserError for an object that cannot be used and
    ConfigError for the configuration.
    """
    waiting: Pod = convert(POD, _completed(pod, POD))
    state = ClusterState()
    for item in objects:
        kind = _kind_of(item)
        complete = _completed(item, kind)
        if kind is not POD or (complete.get("status") or {}).get("phase") not in _ENDED:
            state.apply(Change(kind, None, convert(kind, complete)))
    state.apply(Change(POD, None, waiting))
    profiles = build_profiles(load_config(_config_text(config)), state, lambda: str(uuid.uuid4()), state.features)
    profile = profiles.get(waiting.spec.schedulerName)
    if profile is None:
        raise UserError(f"pod {waiting.key}", "spec.schedulerName", f"no profile {waiting.spec.schedulerName!r}")
    return WholeCase(state, profile, waiting, now)


def _kind_of(item: Mapping[str, Any]) -> Kind:
    name, version = item.get("kind", ""), item.get("apiVersion", "")
    kind = _KINDS.get(name)
    if kind is None or kind.api_version != version:
        raise UserError(f"{version}, Kind={name}", "", "is not a kind that the scheduler reads")
    return kind


def _completed(item: Json, kind: Kind) -> Json:
    metadata = dict(item.get("metadata") or {})
    if not metadata.get("name"):
        raise UserError(kind.name, "metadata.name", "is missing")
    if kind.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    metadata["uid"] = metadata.get("uid") or f"{kind.name}/{metadata.get('namespace', '')}/{metadata['name']}".lower()
    metadata["resourceVersion"] = metadata.get("resourceVersion") or "1"
    completed = {**item, "metadata": metadata}
    if kind is POD:
        spec = dict(item.get("spec") or {})
        spec["schedulerName"] = spec.get("schedulerName") or UPSTREAM_SCHEDULER_NAME
        completed["spec"] = spec
    return completed


def _config_text(config: Json | None) -> str:
    """The configuration with upstream's name where it leaves the only profile's open: cases speak of kube-scheduler."""
    given = config or {"apiVersion": API_VERSION, "kind": KIND}
    profiles = given.get("profiles") or [{}]
    if len(profiles) == 1:
        profiles = [{**profiles[0], "schedulerName": profiles[0].get("schedulerName") or UPSTREAM_SCHEDULER_NAME}]
    return msgspec.json.encode({**given, "profiles": profiles}).decode()

"""Builds the profiles and the queue's view of them from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scheduler.api.core import Pod
from scheduler.app.registry import find_plugins, points
from scheduler.config import PluginSet, SchedulerConfig, expand_profile
from scheduler.config import Profile as ProfileConfig
from scheduler.config.defaults import default_plugins
from scheduler.dra.features import Features
from scheduler.dra.limits import DeviceLimit
from scheduler.edge.extenders import tls_context
from scheduler.errors import ConfigError, PluginError, SchedulerError
from scheduler.framework.extenders import in_order
from scheduler.framework.permit import WaitingPods
from scheduler.framework.plugin import Handle
from scheduler.framework.profile import Profile, build_profile
from scheduler.framework.runner import answer_of, call
from scheduler.framework.status import Code, Status, error
from scheduler.queue.hooks import ProfileHooks
from scheduler.state.cluster import ClusterState


def build_profiles(
    config: SchedulerConfig,
    state: ClusterState,
    new_id: Callable[[], str],
    features: Any,
    waiting_pods: WaitingPods | None = None,
) -> dict[str, Profile]:
    """schedulerName → profile. Raises ConfigError with kube-scheduler's texts for whatever cannot be built.

    ``waiting_pods`` is shared by all of them: where Pods wait for Permit plugins.
    """
    named = {
        reference.name
        for profile in config.profiles
        for plugin_set in profile.plugins.values()
        for reference in plugin_set.enabled
    }
    classes = find_plugins(sorted(named))
    waiting = waiting_pods or WaitingPods()
    return {
        profile.scheduler_name: _build(profile, config, classes, state, new_id, features, waiting)
        for profile in config.profiles
    }


def _build(
    profile: ProfileConfig,
    config: SchedulerConfig,
    classes: Mapping[str, Any],
    state: ClusterState,
    new_id: Callable[[], str],
    features: Any,
    waiting_pods: WaitingPods,
) -> Profile:
    expanded = expand_profile(profile, points(classes), _defaults(features))
    prefix = f"initializing profiles: creating profile for scheduler name {profile.scheduler_name}: "
    built: dict[str, Any] = {}
    if "Partition" in expanded.names:
        features = _limited(features, profile.arguments.get("Partition", {}))
    for name in expanded.names:
        handle = Handle(
            state=state,
            new_id=new_id,
            features=features,
            arguments=profile.arguments.get(name, {}),
            profile_name=profile.scheduler_name,
            waiting_pods=waiting_pods,
        )
        try:
            built[name] = classes[name](handle)
        except ConfigError as problem:
            raise ConfigError(problem.path, f'{prefix}initializing plugin "{name}": {problem.problem}') from problem
        except Exception as problem:  # a user's constructor may raise anything
            text = f'{prefix}initializing plugin "{name}": {type(problem).__name__}: {problem}'
            raise ConfigError("", text) from problem
        if not isinstance(getattr(built[name], "name", None), str):
            raise ConfigError("", f'{prefix}initializing plugin "{name}": it has no attribute "name"')
    order = {
        point: [(name, expanded.weights.get(name, 1)) for name in names] for point, names in expanded.points.items()
    }
    percentage = profile.percentage_of_nodes_to_score
    made = build_profile(
        profile.scheduler_name,
        built,
        order,
        config.percentage_of_nodes_to_score if percentage is None else percentage,
    )
    return replace(made, extenders=in_order(config.extenders)) if config.extenders else made


def _defaults(features: Any) -> PluginSet:
    """What profiles start from, with the plugins of the gates that are on."""
    return default_plugins({"GenericWorkload": getattr(features, "generic_workload", False)})


def _limited(features: Any, partition: Mapping[str, Any]) -> Any:
    """``features`` with the device limit of the profile's Partition."""
    limit = DeviceLimit(frozenset(partition.get("drivers", ())), frozenset(partition.get("pools", ())))
    return replace(features, device_limit=limit)


def check_config(config: SchedulerConfig, feature_gates: Mapping[str, bool]) -> None:
    """Build everything that can be built without a cluster. Raises ConfigError for what cannot."""
    features = Features.from_gates(feature_gates)
    build_profiles(config, ClusterState(features), lambda: "", features)
    for index, extender in enumerate(config.extenders):
        tls_context(extender, f"extenders[{index}].tlsConfig")


def queue_hooks(profiles: Mapping[str, Profile]) -> dict[str, ProfileHooks]:
    """What the queue needs of each profile."""
    return {name: ProfileHooks(_pre_enqueue(profile), profile.registrations) for name, profile in profiles.items()}


def _pre_enqueue(profile: Profile) -> Callable[[Pod, str | None], Status | None]:
    """Ask the PreEnqueue plugins, the one that held the Pod back before first; an error gates like a refusal."""

    def ask(pod: Pod, first: str | None) -> Status | None:
        plugins = sorted(profile.pre_enqueue, key=lambda plugin: plugin.name != first)
        began = profile.timings.clock()
        for plugin in plugins:
            try:
                status = answer_of(plugin, "PreEnqueue", Status, call(plugin, "PreEnqueue", plugin.pre_enqueue, pod))
            except (PluginError, SchedulerError) as problem:
                status = error(str(problem))
            if status.code:
                profile.timings.point("PreEnqueue", status.code.label, began)
                return status.by(plugin.name)
        profile.timings.point("PreEnqueue", Code.SUCCESS.label, began)
        return None

    return ask

"""profiles[]: names, plugin sets, plugin arguments. Source: kube-scheduler 1.37 (spec 9.1, 9.2)."""

from __future__ import annotations

from typing import Any

from scheduler.config.arguments import decode_arguments, default_arguments, typed_plugins
from scheduler.config.defaults import (
    API_VERSION,
    DEFAULT_SCHEDULER_NAME,
    NOT_BUILT_YET,
    REMOVED_IN_V1,
    UPSTREAM_PLUGINS,
    UPSTREAM_SCHEDULER_NAME,
)
from scheduler.config.durations import go_quote
from scheduler.config.fields import Fields
from scheduler.config.model import EXTENSION_POINTS, MULTI_POINT, PluginRef, PluginSet, Profile
from scheduler.config.problems import Problems
from scheduler.errors import ConfigError

_POINTS_NOT_BUILT = ("placementGenerate", "placementScore", "podGroupPostFilter")
_UPSTREAM_NAMES = frozenset(ref.name for ref in UPSTREAM_PLUGINS)
_REMOVED_TEXT = f'was invalid in version "{API_VERSION}" (KubeSchedulerConfiguration is version "{API_VERSION}")'


def decode_profiles(fields: Fields, problems: Problems, warnings: list[str]) -> tuple[Profile, ...]:
    """The profiles in order; without any, one with all defaults.

    A single profile without a name is called dra-scheduler. Upstream's default-scheduler is served only when written,
    and then told in ``warnings``.
    """
    entries = list(fields.objects("profiles"))
    profiles = [_profile(entry, len(entries) == 1, problems) for entry in entries]
    if not profiles:
        profiles = [Profile(DEFAULT_SCHEDULER_NAME, arguments=_with_defaults({}))]
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}].schedulerName"
        if not profile.scheduler_name:
            problems.required(path)
        elif profile.scheduler_name in seen:
            problems.duplicate(path, profile.scheduler_name)
        seen.add(profile.scheduler_name)
        if profile.scheduler_name == UPSTREAM_SCHEDULER_NAME:
            warnings.append(
                f"{path} is {UPSTREAM_SCHEDULER_NAME}: make sure that no kube-scheduler serves the same Pods"
            )
    _check_common_queue_sort(profiles, problems)
    return tuple(profiles)


def _profile(fields: Fields, alone: bool, problems: Problems) -> Profile:
    name = fields.text("schedulerName") or (DEFAULT_SCHEDULER_NAME if alone else "")
    percentage = fields.optional_whole("percentageOfNodesToScore")
    plugins = _plugin_sets(fields.child("plugins"), problems)
    arguments = _plugin_config(fields, problems)
    fields.finish()
    return Profile(name, percentage, plugins, _with_defaults(arguments))


def _with_defaults(arguments: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    built = (plugin for plugin in typed_plugins() if plugin in _UPSTREAM_NAMES and plugin not in NOT_BUILT_YET)
    return {plugin: default_arguments(plugin) for plugin in built if plugin not in arguments} | arguments


def _plugin_sets(fields: Fields, problems: Problems) -> dict[str, PluginSet]:
    sets: dict[str, PluginSet] = {}
    for point in (*EXTENSION_POINTS, MULTI_POINT, *_POINTS_NOT_BUILT):
        if not fields.has(point):
            fields.raw(point)
            continue
        entry = fields.child(point)
        enabled = tuple(_plugin_ref(item, problems) for item in entry.objects("enabled"))
        disabled = tuple(_disabled_name(item) for item in entry.objects("disabled"))
        entry.finish()
        if point in _POINTS_NOT_BUILT:
            if enabled:
                raise ConfigError(entry.at("enabled"), f"the extension point {point} is not built yet in dra-scheduler")
            continue
        if point == "queueSort" and len(enabled) > 1:
            problems.invalid(entry.at("enabled"), enabled[1].name, "only one queue sort plugin can be enabled")
        sets[point] = PluginSet(enabled, disabled)
    fields.finish()
    return sets


def _plugin_ref(fields: Fields, problems: Problems) -> PluginRef:
    name, weight = fields.text("name"), fields.whole("weight", 0)
    fields.finish()
    if not name:
        problems.required(fields.at("name"))
    elif name in REMOVED_IN_V1:
        problems.invalid(fields.path, name, _REMOVED_TEXT)
    _refuse_not_built(name, fields.at("name"))
    return PluginRef(name, weight)


def _disabled_name(fields: Fields) -> str:
    name = fields.text("name")
    fields.whole("weight", 0)
    fields.finish()
    return name


def _plugin_config(fields: Fields, problems: Problems) -> dict[str, dict[str, Any]]:
    arguments: dict[str, dict[str, Any]] = {}
    for entry in fields.objects("pluginConfig"):
        name = entry.text("name")
        if name in arguments:
            problems.duplicate(entry.path, name)
        if name in REMOVED_IN_V1:
            problems.invalid(entry.path, name, _REMOVED_TEXT)
        args = entry.raw("args")
        arguments[name] = decode_arguments(name, args, entry.at("args"), problems)
        if args and name in _UPSTREAM_NAMES and name not in typed_plugins():
            raise ConfigError(entry.at("args"), f"plugin {go_quote(name)} takes no arguments")
        entry.finish()
        # Last, so that a mistake in arguments is told even while the plugin is missing.
        problems.raise_any()
        _refuse_not_built(name, entry.at("name"))
    return arguments


def _refuse_not_built(name: str, path: str) -> None:
    if name in NOT_BUILT_YET:
        raise ConfigError(path, f"plugin {go_quote(name)} of kube-scheduler is not built yet in dra-scheduler")


def _check_common_queue_sort(profiles: list[Profile], problems: Problems) -> None:
    """One queue serves all profiles, so they must order it alike."""
    first = profiles[0]
    first_sort = first.plugins.get("queueSort", PluginSet())
    for index, profile in enumerate(profiles[1:], start=1):
        sort = profile.plugins.get("queueSort", PluginSet())
        if sort != first_sort:
            shown = " ".join(ref.name for ref in sort.enabled)
            problems.invalid(f"profiles[{index}].plugins.queueSort", shown, "must be the same for all profiles")
        for ref in sort.enabled:
            if profile.arguments.get(ref.name) != first.arguments.get(ref.name):
                text = "queueSort must be the same for all profiles"
                problems.invalid(f"profiles[{index}].pluginConfig", ref.name, text)

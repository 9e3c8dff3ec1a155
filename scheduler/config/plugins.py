"""From a profile's plugin sets to plugin names per extension point.

Source: kube-scheduler 1.37, apis/config/v1 (merge with the defaults) and framework/runtime (multiPoint expansion).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from scheduler.config.defaults import DEFAULT_PLUGINS, NOT_BUILT_YET
from scheduler.config.durations import go_quote
from scheduler.config.model import EXTENSION_POINTS, MULTI_POINT, PluginRef, PluginSet, Profile
from scheduler.errors import ConfigError

_NOTHING = PluginSet()
# Upstream visits the points in this order; it decides which of several mistakes is reported.
_VISIT_ORDER = (
    "preFilter",
    "filter",
    "postFilter",
    "reserve",
    "preScore",
    "score",
    "preBind",
    "bind",
    "postBind",
    "permit",
    "preEnqueue",
    "queueSort",
)


@dataclass(frozen=True, slots=True)
class ExpandedPlugins:
    """Plugin names per extension point, in the order they run, and the weight of each score plugin (at least 1,
    unless a negative one was written).
    """

    points: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """Every plugin once, in order of first appearance over the extension points."""
        return tuple(dict.fromkeys(name for point in EXTENSION_POINTS for name in self.points[point]))


def merge_plugins(defaults: PluginSet, user: PluginSet) -> PluginSet:
    """The user's set laid over the defaults, for one extension point or multiPoint.

    A default entry is dropped when disabled (``*``: all), replaced in place when the user enables the same name;
    the user's other entries follow in their order. A name may then stand twice: ``expand`` refuses that.
    """
    disabled = user.disabled + defaults.disabled
    custom = {ref.name: (index, ref) for index, ref in enumerate(user.enabled)}
    replaced: set[int] = set()
    enabled: list[PluginRef] = []
    if "*" not in disabled:
        for ref in defaults.enabled:
            if ref.name in disabled:
                continue
            index, chosen = custom.get(ref.name, (-1, ref))
            replaced.add(index)
            enabled.append(chosen)
    enabled.extend(ref for index, ref in enumerate(user.enabled) if index not in replaced)
    return PluginSet(tuple(enabled), disabled)


def expand(sets: Mapping[str, PluginSet], implements: Mapping[str, Collection[str]]) -> ExpandedPlugins:
    """Merged sets to ordered names per extension point.

    ``sets``: extension point or ``multiPoint`` → merged set. ``implements``: every plugin that can be built → the
    extension points it has. Per point: plugins named there that multiPoint holds too, in the order named; the other
    multiPoint plugins that have the point, minus those disabled there (``*``: none); the rest of those named.
    Raises ConfigError with upstream's words: a plugin that does not exist, lacks the point, or stands twice.
    """
    for point in _VISIT_ORDER:
        _check_named(point, sets.get(point, _NOTHING), implements)
    multi = sets.get(MULTI_POINT, _NOTHING)
    points = {point: _expand_point(point, sets.get(point, _NOTHING), multi, implements) for point in _VISIT_ORDER}
    weights: dict[str, int] = {}
    for ref in (*sets.get("score", _NOTHING).enabled, *multi.enabled):
        if ref.name in points["score"]:
            weights.setdefault(ref.name, ref.weight or 1)
    return ExpandedPlugins({point: points[point] for point in EXTENSION_POINTS}, weights)


def expand_profile(
    profile: Profile, implements: Mapping[str, Collection[str]], defaults: PluginSet = DEFAULT_PLUGINS
) -> ExpandedPlugins:
    """``profile`` merged with the defaults and expanded. ``implements`` as in ``expand``.

    Raises ConfigError, prefixed as kube-scheduler does when a profile cannot be created; also for arguments of a
    plugin that does not exist, which upstream passes over in silence.
    """
    name = go_quote(profile.scheduler_name)
    try:
        sets = {point: merge_plugins(_NOTHING, profile.plugins.get(point, _NOTHING)) for point in EXTENSION_POINTS}
        sets[MULTI_POINT] = merge_plugins(defaults, profile.plugins.get(MULTI_POINT, _NOTHING))
        for plugin in profile.arguments:
            if plugin not in implements and plugin not in NOT_BUILT_YET:
                raise ConfigError("", f"pluginConfig names {go_quote(plugin)}, which does not exist")
        expanded = expand(sets, implements)
        sorters = len(expanded.points["queueSort"])
        if sorters != 1:
            raise ConfigError(
                "", f"only one queue sort plugin required for profile with scheduler name {name}, but got {sorters}"
            )
        if not expanded.points["bind"]:
            raise ConfigError("", f"at least one bind plugin is needed for profile with scheduler name {name}")
    except ConfigError as error:
        prefix = f"initializing profiles: creating profile for scheduler name {profile.scheduler_name}: "
        raise ConfigError(error.path, prefix + error.problem) from error
    return expanded


def _check_named(point: str, chosen: PluginSet, implements: Mapping[str, Collection[str]]) -> None:
    kind = _interface(point)
    seen: set[str] = set()
    for ref in chosen.enabled:
        if ref.name not in implements:
            raise ConfigError("", f"{kind} {go_quote(ref.name)} does not exist")
        if point not in implements[ref.name]:
            raise ConfigError("", f"plugin {go_quote(ref.name)} does not extend {kind} plugin")
        if ref.name in seen:
            raise ConfigError("", f"plugin {go_quote(ref.name)} already registered as {go_quote(kind)}")
        seen.add(ref.name)


def _expand_point(
    point: str, chosen: PluginSet, multi: PluginSet, implements: Mapping[str, Collection[str]]
) -> tuple[str, ...]:
    named = [ref.name for ref in chosen.enabled]
    if "*" in chosen.disabled:
        return tuple(named)
    kind = _interface(point)
    both: set[str] = set()
    others: list[str] = []
    for ref in multi.enabled:
        if ref.name not in implements:
            raise ConfigError("", f"{kind} {go_quote(ref.name)} does not exist")
        if point not in implements[ref.name] or ref.name in chosen.disabled:
            continue
        if ref.name in named:
            both.add(ref.name)
        elif ref.name in others:
            raise ConfigError("", f"plugin {go_quote(ref.name)} already registered as {go_quote(kind)}")
        else:
            others.append(ref.name)
    return (*(name for name in named if name in both), *others, *(name for name in named if name not in both))


def _interface(point: str) -> str:
    """The name of the Go interface behind a point, as messages print it: ``preFilter`` → ``PreFilterPlugin``."""
    return f"{point[0].upper()}{point[1:]}Plugin"

"""Profile: the plugins of one schedulerName, ordered per extension point.

Source: kube-scheduler 1.37, framework/runtime (spec 1.8, 2.3). Built once at start; immutable afterwards, but for the
answers it keeps per class of Pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.config.model import Extender
from scheduler.errors import ConfigError
from scheduler.framework.classes import ClassCache
from scheduler.framework.events import Registration
from scheduler.framework.points import CheckAdapter, ScoreNodeAdapter
from scheduler.framework.templates import Templates
from scheduler.framework.timings import NO_TIMINGS, Timings

MAX_TOTAL_SCORE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ScoreEntry:
    """A score plugin and its weight; ``scorer`` has the column form, ``normalizer`` is None without normalize."""

    name: str
    scorer: Any
    weight: int
    normalizer: Any = None


@dataclass(frozen=True)
class Profile:
    """Everything one schedulerName runs. Tuples are in calling order."""

    name: str
    plugins: Mapping[str, Any]
    pre_enqueue: tuple[Any, ...] = ()
    queue_sort: Any = None
    pre_filter: tuple[Any, ...] = ()
    filter: tuple[Any, ...] = ()
    post_filter: tuple[Any, ...] = ()
    pre_score: tuple[Any, ...] = ()
    score: tuple[ScoreEntry, ...] = ()
    reserve: tuple[Any, ...] = ()
    permit: tuple[Any, ...] = ()
    pre_bind: tuple[Any, ...] = ()
    bind: tuple[Any, ...] = ()
    post_bind: tuple[Any, ...] = ()
    percentage_of_nodes_to_score: int = 0
    registrations: Mapping[str, Sequence[Registration]] = field(default_factory=dict)
    extenders: tuple[Extender, ...] = ()
    timings: Timings = field(default=NO_TIMINGS, repr=False, compare=False)
    classes: ClassCache = field(default_factory=ClassCache, init=False, repr=False, compare=False)
    templates: Templates = field(default_factory=Templates, init=False, repr=False, compare=False)


def _filterer(plugin: Any) -> Any:
    return plugin if hasattr(plugin, "filter") or hasattr(plugin, "filter_steps") else CheckAdapter(plugin)


def _score_entry(plugin: Any, weight: int, profile: str) -> ScoreEntry:
    if weight <= 0:
        raise ConfigError(
            f"profiles[{profile}].plugins.score", f'score plugin "{plugin.name}" is not configured with weight'
        )
    scorer = plugin if hasattr(plugin, "score") else ScoreNodeAdapter(plugin)
    return ScoreEntry(plugin.name, scorer, weight, plugin if hasattr(plugin, "normalize") else None)


def build_profile(
    name: str,
    plugins: Mapping[str, Any],
    order: Mapping[str, Sequence[tuple[str, int]]],
    percentage_of_nodes_to_score: int = 0,
) -> Profile:
    """Put built plugins into calling order.

    ``order``: extension point → (plugin name, weight) in order, as config.plugins.expand answers. Raises ConfigError
    when the weighted scores could overflow int64. That each plugin has the points it is named for, and that one queue
    sort and a bind plugin are there, config.plugins has checked.
    """
    prefix = f"initializing profiles: creating profile for scheduler name {name}: "
    chosen: dict[str, tuple[Any, ...]] = {}
    for point, entries in order.items():
        chosen[point] = tuple(plugins[plugin_name] for plugin_name, _ in entries)
    scores = tuple(_score_entry(plugins[n], w, name) for n, w in order.get("score", ()))
    if sum(entry.weight for entry in scores) * 100 > MAX_TOTAL_SCORE:
        raise ConfigError("", f"{prefix}total score of Score plugins could overflow")
    return Profile(
        name=name,
        plugins=dict(plugins),
        pre_enqueue=chosen.get("preEnqueue", ()),
        queue_sort=chosen["queueSort"][0],
        pre_filter=chosen.get("preFilter", ()),
        filter=tuple(_filterer(p) for p in chosen.get("filter", ())),
        post_filter=chosen.get("postFilter", ()),
        pre_score=chosen.get("preScore", ()),
        score=scores,
        reserve=chosen.get("reserve", ()),
        permit=chosen.get("permit", ()),
        pre_bind=chosen.get("preBind", ()),
        bind=chosen["bind"],
        post_bind=chosen.get("postBind", ()),
        percentage_of_nodes_to_score=percentage_of_nodes_to_score,
        registrations=_registrations(chosen),
    )


def _registrations(chosen: Mapping[str, tuple[Any, ...]]) -> dict[str, Sequence[Registration]]:
    """Only plugins that can reject before binding are asked for their events (spec 1.8)."""
    result: dict[str, Sequence[Registration]] = {}
    for point in ("preEnqueue", "preFilter", "filter", "reserve", "permit"):
        for plugin in chosen.get(point, ()):
            events = getattr(plugin, "events", None)
            if events is not None and plugin.name not in result:
                result[plugin.name] = tuple(events())
    return result

"""Another weight for a score plugin, in a configuration that exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scheduler.config.model import PluginRef, PluginSet, Profile, SchedulerConfig
from scheduler.errors import UserError
from scheduler.framework.profile import Profile as BuiltProfile
from scheduler.whatif.edits import Placed, Weight


def with_weight(config: SchedulerConfig, edit: Weight) -> SchedulerConfig:
    """``config`` where the plugin weighs something else; 0 takes it out of scoring alone."""
    profiles = tuple(
        _weighed(profile, edit) if edit.profile in ("", profile.scheduler_name) else profile
        for profile in config.profiles
    )
    return replace(config, profiles=profiles)


def _weighed(profile: Profile, edit: Weight) -> Profile:
    score = profile.plugins.get("score", PluginSet())
    others = tuple(ref for ref in score.enabled if ref.name != edit.plugin)
    disabled = tuple(name for name in score.disabled if name != edit.plugin)
    if edit.weight:
        fresh = PluginSet((*others, PluginRef(edit.plugin, edit.weight)), disabled)
    else:
        fresh = PluginSet(others, (*disabled, edit.plugin))
    return replace(profile, plugins={**profile.plugins, "score": fresh})


def check_weight(placed: Placed, profiles: Mapping[str, BuiltProfile]) -> None:
    """Raises UserError when the plugin scores in none of the profiles that were meant."""
    edit = placed.edit
    assert isinstance(edit, Weight)
    meant = [profile for name, profile in profiles.items() if edit.profile in ("", name)]
    scoring = {entry.name for profile in meant for entry in profile.score}
    if edit.weight and edit.plugin not in scoring:
        known = ", ".join(sorted(scoring))
        raise UserError(placed.subject, "weight.plugin", f"{edit.plugin!r} does not score; those that do: {known}")

"""Finds plugins: the default ones, those of installed distributions, and those named ``module:Class``."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from plugins.registry import DEFAULT_PLUGINS, GATED_PLUGINS, OWN_PLUGINS
from scheduler.errors import ConfigError
from scheduler.framework.points import points_of

ENTRY_POINT_GROUP = "dra_scheduler.plugins"


def find_plugins(names: Iterable[str]) -> dict[str, Any]:
    """Every plugin of ours and the others among ``names``: configuration name → class.

    A name with a colon is ``module:Class``; any other unknown one is looked up among the entry points of group
    ``dra_scheduler.plugins``. Raises ConfigError with what went wrong while importing; a name nobody knows is left
    out, so that the profile's own check refuses it in kube-scheduler's words.
    """
    found: dict[str, Any] = {**DEFAULT_PLUGINS, **GATED_PLUGINS, **OWN_PLUGINS}
    installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    for name in names:
        if name in found:
            continue
        if ":" in name:
            found[name] = _checked(name, _import(name))
        elif name in installed:
            try:
                found[name] = _checked(name, installed[name].load())
            except Exception as error:  # importing foreign code may raise anything
                raise ConfigError("", f'plugin "{name}": {type(error).__name__}: {error}') from error
    return found


def _import(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # importing foreign code may raise anything
        raise ConfigError("", f'plugin "{name}": {type(error).__name__}: {error}') from error


def _checked(name: str, plugin_class: Any) -> Any:
    if not callable(plugin_class):
        raise ConfigError("", f'plugin "{name}" is {plugin_class!r}, not a class')
    if not points_of(plugin_class):
        raise ConfigError("", f'plugin "{name}" has no method of any extension point')
    return plugin_class


def points(classes: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Configuration name → extension points its class implements."""
    return {name: points_of(plugin_class) for name, plugin_class in classes.items()}

"""KubeSchedulerConfiguration v1: strict decoding, defaults, validation, profile merge. Never here: reading files.

``load_config(text)`` is the way in; ``plugins.expand_profile`` turns a profile into plugin names per extension point.
"""

from __future__ import annotations

from scheduler.config.load import load_config
from scheduler.config.model import (
    ClientConnection,
    Extender,
    ExtenderTls,
    LeaderElection,
    ManagedResource,
    PluginRef,
    PluginSet,
    Profile,
    SchedulerConfig,
)
from scheduler.config.options import RunOptions
from scheduler.config.plugins import ExpandedPlugins, expand_profile

__all__ = [
    "ClientConnection",
    "ExpandedPlugins",
    "Extender",
    "ExtenderTls",
    "LeaderElection",
    "ManagedResource",
    "PluginRef",
    "PluginSet",
    "Profile",
    "RunOptions",
    "SchedulerConfig",
    "expand_profile",
    "load_config",
]

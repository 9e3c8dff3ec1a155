"""Where plugins are found: the default ones, entry points of installed distributions, ``module:Class``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plugins.registry import DEFAULT_PLUGINS
from scheduler.app.profiles import build_profiles
from scheduler.app.registry import find_plugins
from scheduler.config import load_config
from scheduler.dra.features import Features
from scheduler.errors import ConfigError
from scheduler.state.cluster import ClusterState

SOURCE = """
class Even:
    name = "Even"

    def __init__(self, handle):
        self.bonus = handle.arguments["bonus"]

    def score_node(self, cycle, node):
        return self.bonus


class Empty:
    name = "Empty"


not_a_class = 3
"""
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: dra-scheduler
  plugins: {score: {enabled: [{name: NAME, weight: 7}]}}
  pluginConfig: [{name: NAME, args: {bonus: 42}}]
"""


@pytest.fixture(autouse=True)
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution whose entry points name good and bad plugins."""
    (tmp_path / "even_plugin.py").write_text(SOURCE)
    info = tmp_path / "even_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: even-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dra_scheduler.plugins]\nEven = even_plugin:Even\nGone = no_such_module:Gone\n"
        "DefaultBinder = even_plugin:Even\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "even_plugin", raising=False)


@pytest.mark.parametrize("name", ["Even", "even_plugin:Even"])
def test_a_plugin_runs_with_weight_and_arguments(name: str) -> None:
    """Found by entry point or by module, it stands in the profile as the configuration says."""
    config = load_config(CONFIG.replace("NAME", name))
    profile = build_profiles(config, ClusterState(), lambda: "id", Features())["dra-scheduler"]
    assert profile.plugins[name].bonus == 42
    assert [entry.weight for entry in profile.score if entry.name == "Even"] == [7]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Gone", 'plugin "Gone": ModuleNotFoundError'),
        ("no_such_module:X", 'plugin "no_such_module:X": ModuleNotFoundError'),
        ("even_plugin:Missing", 'plugin "even_plugin:Missing": AttributeError'),
        ("even_plugin:not_a_class", "not a class"),
        ("even_plugin:Empty", "has no method of any extension point"),
    ],
)
def test_a_plugin_that_cannot_be_had_is_named(name: str, text: str) -> None:
    """The start ends with a text that names the plugin and what went wrong while importing it."""
    with pytest.raises(ConfigError) as caught:
        find_plugins([name])
    assert text in str(caught.value)


def test_an_entry_point_does_not_replace_a_default_plugin() -> None:
    """A name of kube-scheduler means the plugin of that name, whatever is installed."""
    assert find_plugins(["DefaultBinder"])["DefaultBinder"] is DEFAULT_PLUGINS["DefaultBinder"]


def test_a_name_nobody_knows_is_left_to_the_profile() -> None:
    """It is not found here; the profile's own check refuses it."""
    assert "NoSuch" not in find_plugins(["NoSuch"])

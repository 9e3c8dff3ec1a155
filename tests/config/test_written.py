"""The effective configuration written out: upstream's names, and read back the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.app.profiles import build_profiles
from scheduler.config import SchedulerConfig, load_config
from scheduler.config.written import document
from scheduler.dra.features import Features
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState

FOLDER = Path(__file__).parent / "real"
FILES = sorted(FOLDER.glob("*.yaml"))


def running(config: SchedulerConfig) -> dict[str, Any]:
    """What of the profiles decides: plugin names per point, weights, arguments."""

    def shape(profile: Profile) -> Any:
        points = ("pre_enqueue", "pre_filter", "filter", "post_filter", "pre_score", "reserve", "pre_bind", "bind")
        names = {point: [plugin.name for plugin in getattr(profile, point)] for point in points}
        scores = [(entry.name, entry.weight) for entry in profile.score]
        return names, scores, profile.percentage_of_nodes_to_score

    profiles = build_profiles(config, ClusterState(Features()), lambda: "id", Features())
    arguments = {profile.scheduler_name: profile.arguments for profile in config.profiles}
    return {name: (shape(profile), arguments[name]) for name, profile in profiles.items()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_of_kube_scheduler_work_unchanged_and_survive_being_written(file: Path) -> None:
    """Read, written and read again they run the same plugins in the same order with the same arguments."""
    config = load_config(file.read_text())
    again = load_config(yaml.safe_dump(document(config, secrets=True)))
    assert running(again) == running(config)
    plain = {"profiles": (), "warnings": (), "client_connection": config.client_connection}
    assert replace(again, **plain) == replace(config, **plain)
    assert document(again, secrets=True) == document(config, secrets=True)


def test_there_are_files() -> None:
    """An empty folder would make the test above say nothing."""
    assert len(FILES) >= 3


def test_ignored_resources_of_an_extender_replace_those_of_the_profiles() -> None:
    """NodeResourcesFit ignores what the extender manages, whatever the profile says."""
    config = load_config((FOLDER / "spread_and_extender.yaml").read_text())
    assert config.profiles[0].arguments["NodeResourcesFit"]["ignoredResources"] == ["example.com/foo"]


def test_the_names_are_those_that_kube_scheduler_shows() -> None:
    """Keys and order of its /configz, version 1.37.2."""
    written = document(load_config(""))
    assert list(written) == [
        "kind",
        "apiVersion",
        "parallelism",
        "leaderElection",
        "clientConnection",
        "enableProfiling",
        "enableContentionProfiling",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "profiles",
    ]
    (profile,) = written["profiles"]
    assert list(profile["plugins"])[-4:] == ["multiPoint", "placementGenerate", "placementScore", "podGroupPostFilter"]
    assert profile["plugins"]["score"] == {}
    assert profile["plugins"]["multiPoint"]["enabled"][4] == {"name": "TaintToleration", "weight": 3}
    names = [entry["name"] for entry in profile["pluginConfig"]]
    assert names == sorted(names)
    assert profile["pluginConfig"][1]["args"] == {
        "kind": "DynamicResourcesArgs",
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "filterTimeout": "10s",
        "bindingTimeout": "10m0s",
    }


def test_passwords_in_urls_are_written_for_files_and_not_shown() -> None:
    """Nor are they in the text of the configuration itself; a file that was written gives them back."""
    text = "extenders: [{urlPrefix: 'http://user:s3cr3t@x/y', filterVerb: f}, {urlPrefix: 'http://user@x/z'}]"
    config = load_config("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" + text)
    shown = [entry["urlPrefix"] for entry in document(config)["extenders"]]
    assert shown == ["http://user:***@x/y", "http://user@x/z"]
    assert "s3cr3t" not in str(document(config)) + repr(config) + str(config)
    written = document(config, secrets=True)
    assert [entry["urlPrefix"] for entry in written["extenders"]] == ["http://user:s3cr3t@x/y", "http://user@x/z"]
    assert load_config(yaml.safe_dump(written)).extenders == config.extenders


def test_private_keys_are_written_for_files_and_not_shown() -> None:
    """/configz hides what --write-config-to must keep."""
    text = "extenders: [{urlPrefix: 'http://x', tlsConfig: {certData: YQ==, keyData: Yg==}}]"
    config = load_config("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" + text)
    assert "keyData" not in document(config)["extenders"][0]["tlsConfig"]
    assert document(config, secrets=True)["extenders"][0]["tlsConfig"]["keyData"] == "Yg=="

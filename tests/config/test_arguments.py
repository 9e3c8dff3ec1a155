"""Arguments of kube-scheduler's plugins."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from scheduler.config.arguments import decode_arguments, default_arguments
from scheduler.config.problems import Problems
from scheduler.errors import ConfigError


def decode(plugin: str, text: str) -> dict[str, Any]:
    """The arguments in ``text``, validated."""
    problems = Problems()
    arguments = decode_arguments(plugin, yaml.safe_load(text), "args", problems)
    problems.raise_any()
    return arguments


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        ("DefaultPreemption", {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100}),
        ("InterPodAffinity", {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False}),
        ("PodTopologySpread", {"defaultConstraints": [], "defaultingType": "System"}),
        (
            "VolumeBinding",
            {
                "bindTimeoutSeconds": 600,
                "shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}],
            },
        ),
        ("NodePorts", {}),
    ],
)
def test_defaults_are_upstreams(plugin: str, expected: dict[str, Any]) -> None:
    """Without args the values of kube-scheduler 1.37 stand."""
    assert default_arguments(plugin) == expected


def test_written_arguments_are_kept() -> None:
    """Every kind of value arrives in the shape of the v1 args kind, durations in seconds."""
    assert decode("DynamicResources", "{filterTimeout: 0s, bindingTimeout: 1m0s}") == {
        "filterTimeout": 0.0,
        "bindingTimeout": 60.0,
    }
    assert decode(
        "NodeResourcesFit",
        """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: NodeResourcesFitArgs
        ignoredResources: [example.com/a]
        ignoredResourceGroups: [example.org]
        scoringStrategy:
          type: RequestedToCapacityRatio
          resources: [{name: example.com/gpu}]
          requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
        """,
    ) == {
        "ignoredResources": ["example.com/a"],
        "ignoredResourceGroups": ["example.org"],
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "example.com/gpu", "weight": 1}],
            "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
        },
    }


def test_added_affinity_is_read() -> None:
    """addedAffinity keeps its node selector terms."""
    term = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
    written = {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}],
        }
    }
    assert decode("NodeAffinity", yaml.safe_dump(written)) == written


def test_other_plugins_get_their_arguments_as_written() -> None:
    """Arguments of a plugin that is not kube-scheduler's are its own business."""
    assert decode("mine:Racks", "{kind: Whatever, deep: {x: [1, 2.5, null]}}") == {
        "kind": "Whatever",
        "deep": {"x": [1, 2.5, None]},
    }
    with pytest.raises(ConfigError, match="args: expected an object, got array"):
        decode("mine:Racks", "[1]")


@pytest.mark.parametrize(
    ("plugin", "text", "message"),
    [
        (
            "NodeAffinity",
            "kind: NodeResourcesFitArgs",
            "args: args for plugin NodeAffinity were not of type NodeAffinityArgs, got NodeResourcesFitArgs",
        ),
        ("DynamicResources", "filterTimout: 1s", 'args.filterTimout: unknown field; did you mean "filterTimeout"?'),
        ("DynamicResources", "filterTimeout: -1s", "args.filterTimeout: Invalid value: -1s: must be zero or positive"),
        (
            "DynamicResources",
            "bindingTimeout: 500ms",
            "args.bindingTimeout: Invalid value: 500ms: must be at least 1 second",
        ),
        (
            "NodeResourcesFit",
            "ignoredResourceGroups: [a/b]",
            "args.ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
        ),
        (
            "NodeResourcesFit",
            "scoringStrategy: {resources: [{name: cpu, weight: 101}]}",
            "args.scoringStrategy.resources[0].weight: Invalid value: 101:"
            " resource weight of cpu not in valid range (0, 100]",
        ),
        (
            "NodeResourcesFit",
            "scoringStrategy: {type: RequestedToCapacityRatio}",
            "args.scoringStrategy.requestedToCapacityRatio: Required value:"
            " must be specified when type is RequestedToCapacityRatio",
        ),
        (
            "NodeResourcesFit",
            "scoringStrategy: {type: Nonsense}",
            'args.scoringStrategy.type: Unsupported value: "Nonsense": supported values:'
            ' "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"',
        ),
        (
            "NodeResourcesFit",
            "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {}}",
            "args.scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified",
        ),
        (
            "NodeResourcesBalancedAllocation",
            "resources: [{name: cpu, weight: 2}]",
            "args.resources[0].weight: Invalid value: 2: resource weight of cpu must be 1",
        ),
        (
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            "[args.minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as"
            " minCandidateNodesAbsolute, args.minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the"
            " same time as minCandidateNodesPercentage]",
        ),
        (
            "DefaultPreemption",
            "minCandidateNodesPercentage: 101",
            "args.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
        ),
        (
            "DefaultPreemption",
            "minCandidateNodesAbsolute: -1",
            "args.minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
        ),
        (
            "InterPodAffinity",
            "hardPodAffinityWeight: 101",
            "args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
        ),
        (
            "PodTopologySpread",
            "defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]",
            'args.defaultingType: Invalid value: "System": when .defaultConstraints are not empty',
        ),
        (
            "PodTopologySpread",
            "{defaultingType: List, defaultConstraints: [{maxSkew: 0, whenUnsatisfiable: DoNotSchedule}]}",
            "[args.defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf),"
            " args.defaultConstraints[0].topologyKey: Required value: can not be empty]",
        ),
        (
            "VolumeBinding",
            "bindTimeoutSeconds: -1",
            "args.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
        ),
        (
            "VolumeBinding",
            "shape: [{utilization: 50, score: 11}, {utilization: 50, score: 1}]",
            "[args.shape[0].score: Invalid value: 11: not in valid range [0, 10],"
            " args.shape[1].utilization: Invalid value: 50: values must be sorted in increasing order]",
        ),
    ],
)
def test_bad_arguments_are_refused_in_upstreams_words(plugin: str, text: str, message: str) -> None:
    """The texts are those of kube-scheduler's validation, with the path of the field."""
    with pytest.raises(ConfigError) as caught:
        decode(plugin, text)
    assert str(caught.value) == message

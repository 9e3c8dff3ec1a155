"""Decoding, defaults and validation of configuration files."""

from __future__ import annotations

import textwrap

import pytest

from scheduler.config import ClientConnection, LeaderElection, PluginRef, PluginSet, SchedulerConfig, load_config
from scheduler.errors import ConfigError

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def load(body: str) -> SchedulerConfig:
    """The configuration with ``body`` below apiVersion and kind."""
    return load_config(HEADER + textwrap.dedent(body))


def refusal(body: str) -> str:
    """The message with which ``body`` is refused."""
    with pytest.raises(ConfigError) as caught:
        load(body)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", HEADER])
def test_an_empty_file_gives_upstreams_defaults_with_our_names(text: str) -> None:
    """Profile and Lease are called dra-scheduler; all else is kube-scheduler's."""
    config = load_config(text)
    assert [profile.scheduler_name for profile in config.profiles] == ["dra-scheduler"]
    assert config.leader_election == LeaderElection(True, 15.0, 10.0, 2.0, "leases", "dra-scheduler", "kube-system")
    assert config.client_connection == ClientConnection()
    assert (config.parallelism, config.percentage_of_nodes_to_score) == (16, 0)
    assert (config.pod_initial_backoff_s, config.pod_max_backoff_s) == (1, 10)
    assert config.warnings == ()


def test_default_arguments_are_filled_in() -> None:
    """Each built plugin with an args kind finds its defaults, also when it is not configured."""
    arguments = load("").profiles[0].arguments
    assert arguments["DynamicResources"] == {"filterTimeout": 10.0, "bindingTimeout": 600.0}
    weights = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    assert arguments["NodeResourcesFit"] == {
        "ignoredResources": [],
        "ignoredResourceGroups": [],
        "scoringStrategy": {"type": "LeastAllocated", "resources": weights, "requestedToCapacityRatio": None},
    }
    assert arguments["NodeResourcesBalancedAllocation"] == {"resources": weights}
    assert arguments["NodeAffinity"] == {"addedAffinity": None}


def test_every_field_is_read() -> None:
    """Written values arrive, durations in seconds."""
    config = load("""
        parallelism: 4
        leaderElection: {leaderElect: false, leaseDuration: 1m0s, renewDeadline: 40s, retryPeriod: 500ms,
                         resourceName: mine, resourceNamespace: apps}
        clientConnection: {kubeconfig: /etc/k, qps: 100, burst: 7, contentType: application/json}
        enableProfiling: false
        enableContentionProfiling: false
        percentageOfNodesToScore: 30
        podInitialBackoffSeconds: 2
        podMaxBackoffSeconds: 20
        delayCacheUntilActive: false
        extenders: []
        profiles:
        - schedulerName: a
          percentageOfNodesToScore: 50
          plugins:
            multiPoint: {disabled: [{name: ImageLocality}, {name: DefaultPreemption}]}
            score: {enabled: [{name: "mine:Racks", weight: 5}], disabled: [{name: "*"}]}
          pluginConfig:
          - name: "mine:Racks"
            args: {prefer: low}
        - schedulerName: b
    """)
    assert config.leader_election == LeaderElection(False, 60.0, 40.0, 0.5, "leases", "mine", "apps")
    assert config.client_connection == ClientConnection("/etc/k", "", "application/json", 100.0, 7)
    assert (config.parallelism, config.percentage_of_nodes_to_score) == (4, 30)
    assert (config.pod_initial_backoff_s, config.pod_max_backoff_s) == (2, 20)
    first, second = config.profiles
    assert (first.percentage_of_nodes_to_score, second.percentage_of_nodes_to_score) == (50, None)
    assert first.plugins["score"] == PluginSet((PluginRef("mine:Racks", 5),), ("*",))
    assert first.plugins["multiPoint"].disabled == ("ImageLocality", "DefaultPreemption")
    assert first.arguments["mine:Racks"] == {"prefer": "low"}
    (warning,) = config.warnings
    assert "qps" in warning


def test_json_is_read_too() -> None:
    """A configuration may be written as JSON."""
    config = load_config('{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration"}')
    assert config == load_config("")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("foo: 1", "foo: unknown field"),
        ("profile: []", 'profile: unknown field; did you mean "profiles"?'),
        (
            "leaderElection: {leaderelect: true}",
            'leaderElection.leaderelect: unknown field; did you mean "leaderElect"?',
        ),
        ("profiles: [{schedulerName: a, plugin: {}}]", 'profiles[0].plugin: unknown field; did you mean "plugins"?'),
        ("profiles: [{plugins: {filters: {}}}]", 'profiles[0].plugins.filters: unknown field; did you mean "filter"?'),
        (
            "profiles: [{plugins: {filter: {enabled: [{nam: x}]}}}]",
            'profiles[0].plugins.filter.enabled[0].nam: unknown field; did you mean "name"?',
        ),
        ("parallelism: 1\nparallelism: 2", "parallelism: duplicate field (line 4)"),
        (
            "profiles:\n- schedulerName: a\n  schedulerName: b",
            "profiles[0].schedulerName: duplicate field (line 5)",
        ),
        ("1: 2", "line 3: keys must be strings"),
        ("parallelism: many", "parallelism: expected an integer, got string"),
        ("parallelism: true", "parallelism: expected an integer, got boolean"),
        ("parallelism: 3000000000", "parallelism: 3000000000 does not fit into 32 bits"),
        ("leaderElection: []", "leaderElection: expected an object, got array"),
        (
            "leaderElection: {leaseDuration: 15}",
            "leaderElection.leaseDuration: expected a duration such as 10s, got number",
        ),
        (
            "leaderElection: {leaseDuration: 15}".replace("15", "15x"),
            'leaderElection.leaseDuration: time: unknown unit "x" in duration "15x"',
        ),
        ("profiles: {}", "profiles: expected an array, got object"),
        ("clientConnection: {qps: fast}", "clientConnection.qps: expected a number, got string"),
        ("a: [", "not YAML: line 4, column 1: expected the node content, but found '<stream end>'"),
        ("a: 1\n---\nb: 2", "not YAML: line 4, column 1: but found another document"),
    ],
)
def test_what_cannot_be_decoded_is_refused_with_its_path(body: str, message: str) -> None:
    """Unknown and duplicate fields, wrong types and broken YAML name the place."""
    with pytest.raises(ConfigError) as caught:
        load_config(HEADER + body + ("\n" if body[-1] == "[" else ""))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kind: Pod",
            "kind: couldn't decode as KubeSchedulerConfiguration, got Pod: expected KubeSchedulerConfiguration",
        ),
        (
            HEADER.replace("/v1", "/v1beta3"),
            'apiVersion: no such version: "kubescheduler.config.k8s.io/v1beta3"; use kubescheduler.config.k8s.io/v1',
        ),
        ("- 1", "expected a mapping at the top, got array"),
    ],
)
def test_another_kind_or_version_is_refused(text: str, message: str) -> None:
    """Only KubeSchedulerConfiguration v1 is read."""
    with pytest.raises(ConfigError) as caught:
        load_config(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("parallelism: 0", "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        ("percentageOfNodesToScore: 101", "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"),
        (
            "profiles: [{percentageOfNodesToScore: -1}]",
            "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        ),
        (
            "podInitialBackoffSeconds: 0",
            "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            "podMaxBackoffSeconds: 0",
            "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "leaderElection: {resourceLock: endpoints}",
            'leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"',
        ),
        (
            "leaderElection: {leaseDuration: 10s}",
            "leaderElection.leaseDuration: Invalid value: 10s: must be greater than `RenewDeadline`",
        ),
        (
            "leaderElection: {retryPeriod: 0s}",
            "leaderElection.retryPeriod: Invalid value: 0s: must be greater than zero",
        ),
        (
            "leaderElection: {retryPeriod: 9s}",
            "leaderElection.renewDeadline: Invalid value: 10s: must be greater than `RetryPeriod` times 1.2",
        ),
        ("clientConnection: {burst: -1}", "clientConnection.burst: Invalid value: -1: must be non-negative"),
        ("profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName: Required value"),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]",
            'profiles[1].schedulerName: Duplicate value: "a"',
        ),
        (
            "profiles: [{plugins: {queueSort: {enabled: [{name: A}, {name: B}]}}}]",
            'profiles[0].plugins.queueSort.enabled: Invalid value: "B": only one queue sort plugin can be enabled',
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: B}]}}}]",
            'profiles[1].plugins.queueSort: Invalid value: "B": must be the same for all profiles',
        ),
        (
            "profiles: [{pluginConfig: [{name: A}, {name: A}]}]",
            'profiles[0].pluginConfig[1]: Duplicate value: "A"',
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: EBSLimits}]}}}]",
            'profiles[0].plugins.filter.enabled[0]: Invalid value: "EBSLimits": was invalid in version'
            ' "kubescheduler.config.k8s.io/v1" (KubeSchedulerConfiguration is version'
            ' "kubescheduler.config.k8s.io/v1")',
        ),
        (
            "parallelism: 0\npodInitialBackoffSeconds: 0",
            "[parallelism: Invalid value: 0: should be an integer value greater than zero,"
            " podInitialBackoffSeconds: Invalid value: 0: must be greater than 0]",
        ),
    ],
)
def test_values_out_of_range_are_refused_in_upstreams_words(body: str, message: str) -> None:
    """The texts are those of kube-scheduler's validation; several mistakes are told at once."""
    assert refusal(body) == message


def test_leader_election_is_not_checked_when_off() -> None:
    """Durations do not matter without leader election, as upstream has it."""
    assert not load("leaderElection: {leaderElect: false, leaseDuration: 0s}").leader_election.leader_elect


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "profiles: [{plugins: {filter: {enabled: [{name: PodGroupPodsCount}]}}}]",
            'profiles[0].plugins.filter.enabled[0].name: plugin "PodGroupPodsCount" of kube-scheduler is not built yet'
            " in dra-scheduler",
        ),
        (
            "profiles: [{pluginConfig: [{name: PodGroupPodsCount, args: {x: 9}}]}]",
            'profiles[0].pluginConfig[0].name: plugin "PodGroupPodsCount" of kube-scheduler is not built yet'
            " in dra-scheduler",
        ),
        (
            "profiles: [{plugins: {placementScore: {enabled: [{name: X}]}}}]",
            "profiles[0].plugins.placementScore.enabled: the extension point placementScore is not built yet"
            " in dra-scheduler",
        ),
    ],
)
def test_what_has_no_effect_yet_is_refused_not_ignored(body: str, message: str) -> None:
    """A legal field without an effect here stops the start and says so."""
    assert refusal(body) == message


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("profiles: [{schedulerName: default-scheduler}]", "default-scheduler"),
        ("leaderElection: {resourceName: kube-scheduler}", "Lease"),
        ("clientConnection: {contentType: application/vnd.kubernetes.protobuf}", "JSON"),
        ("enableProfiling: true", "pprof"),
        ("clientConnection: {qps: 5000}", "fairness"),
        ("clientConnection: {burst: 5000}", "fairness"),
    ],
)
def test_surprising_settings_are_warned_of(body: str, word: str) -> None:
    """Legal settings that do something unexpected are told once."""
    (warning,) = load(body).warnings
    assert word in warning


def test_an_alias_bomb_is_cheap() -> None:
    """Aliases that would expand to 10^9 elements are read without expanding them."""
    levels = "\n".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 10))
    with pytest.raises(ConfigError, match="x0: unknown field"):
        load_config(HEADER + "x0: &x0 [a]\n" + levels)

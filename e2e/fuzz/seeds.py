"""What the coverage-guided targets begin with: inputs and words."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.fuzz import hostile

_CONFIG = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 16
percentageOfNodesToScore: 50
leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s}
clientConnection: {kubeconfig: /x, qps: 50, burst: 100}
profiles:
- schedulerName: a
  percentageOfNodesToScore: 10
  plugins: {score: {enabled: [{name: ImageLocality, weight: 3}], disabled: [{name: "*"}]}, multiPoint: {}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 1}]}, ignoredResources: [a/b]}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}]}
  - {name: DynamicResources, args: {filterTimeout: 5s}}
extenders:
- {urlPrefix: "https://x", filterVerb: filter, weight: 1, httpTimeout: 5s, managedResources: [{name: a/b}]}
"""
_SELECTORS = (
    '{"matchLabels":{"app":"a"},"matchExpressions":[{"key":"size","operator":"In","values":["7"]}]}',
    '{"nodeSelectorTerms":[{"matchExpressions":[{"key":"size","operator":"Gt","values":["3"]}],'
    '"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}',
)
_CEL = (
    'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].n > 2',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("1Gi")) >= 0 ? true : false',
    'semver("1.2.3").isLessThan(semver("2.0.0")) || [1, 2].exists(x, x > 1) && "a".matches("^a+$")',
    'cel.bind(x, device.attributes["gpu.example.com"].?model.orValue(""), x.startsWith("m"))',
    '"%s %d".format(["a", 1]).size() > 0 && duration("1h") > timestamp(0) - timestamp(1)',
    'ip("1.2.3.4").family() == 4 && cidr("1.0.0.0/8").containsIP("1.2.3.4") && url("http://a/b").getHost() == "a"',
)
SEEDS: dict[str, Sequence[str]] = {
    "quantity": hostile.QUANTITIES,
    "label-selector": _SELECTORS,
    "node-selector": _SELECTORS,
    "cel": (*_CEL, *hostile.CEL_BOMBS),
    "config": (_CONFIG,),
    "deep": ("[" * 300 + '"\\"]"' + "]" * 300,),
}
_CEL_WORDS = """device. attributes capacity driver .all( .exists( .map( .filter( cel.bind( quantity( semver( matches(
format( split( replace( lists.range( .? [? && || ?: true null dyn( type( duration( timestamp( sets. ip( cidr( url(
optional.of( .orValue( size( in string( int( double( bytes( .sortBy( .flatten( .slice( b' r'"""
_CONFIG_WORDS = """profiles: plugins: pluginConfig: args: extenders: enabled: disabled: name: weight: &a *a !!binary | >
[ { multiPoint: schedulerName: true null 1e9 -1 0x1 "*" """
WORDS: dict[str, Sequence[str]] = {
    "quantity": ("e", "E", "Ki", "Ei", "n", "m", "-", "."),
    "label-selector": ("matchLabels", "matchExpressions", "NotIn", "Exists", "null"),
    "node-selector": ("nodeSelectorTerms", "matchFields", "metadata.name", "Gt", "Lt", "null"),
    "cel": _CEL_WORDS.split(),
    "config": _CONFIG_WORDS.split(),
    "deep": ("[", "]", "{", "}", '"', "\\"),
}


def words_file(name: str) -> str:
    """libFuzzer's dictionary of a target."""
    lines = []
    for index, word in enumerate(WORDS[name]):
        escaped = "".join(c if c.isalnum() or c in "_.:( " else f"\\x{ord(c):02x}" for c in word)
        lines.append(f'w{index}="{escaped}"')
    return "\n".join(lines) + "\n"

"""pluginConfig args of kube-scheduler's plugins: typed, defaulted, validated.

Source: kube-scheduler 1.37, apis/config/v1 (defaults) and apis/config/validation (spec 9.1, 9.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.config.defaults import API_VERSION
from scheduler.config.durations import format_seconds
from scheduler.config.fields import Fields
from scheduler.config.problems import Problems, Shown
from scheduler.config.scoring import decode_resources, decode_scoring_strategy, decode_shape
from scheduler.errors import ConfigError

Arguments = dict[str, Any]


def decode_arguments(plugin: str, args: object, path: str, problems: Problems) -> Arguments:
    """The arguments of ``plugin``, in the shape of its v1 args kind, durations in seconds.

    Plugins that are not kube-scheduler's get theirs as written (a mapping; apiVersion and kind are theirs, too).
    Wrong types and unknown fields raise ConfigError at once; values out of range are added to ``problems``.
    """
    fields = Fields({} if args is None else args, path)
    decoder = _DECODERS.get(plugin)
    if decoder is None:
        return dict(args) if isinstance(args, Mapping) else {}
    kind = f"{plugin}Args"
    written_kind = fields.text("kind", kind)
    if written_kind != kind or fields.text("apiVersion", API_VERSION) != API_VERSION:
        raise ConfigError(path, f"args for plugin {plugin} were not of type {kind}, got {written_kind}")
    arguments = decoder(fields, problems)
    fields.finish()
    return arguments


def default_arguments(plugin: str) -> Arguments:
    """The arguments ``plugin`` gets when none are written; empty for plugins without an args kind."""
    return decode_arguments(plugin, None, "", Problems())


def typed_plugins() -> tuple[str, ...]:
    """The plugins whose arguments have a kind of their own."""
    return tuple(_DECODERS)


def _default_preemption(fields: Fields, problems: Problems) -> Arguments:
    percentage = fields.whole("minCandidateNodesPercentage", 10)
    absolute = fields.whole("minCandidateNodesAbsolute", 100)
    percentage_path, absolute_path = fields.at("minCandidateNodesPercentage"), fields.at("minCandidateNodesAbsolute")
    if not 0 <= percentage <= 100:
        problems.invalid(percentage_path, percentage, "not in valid range [0, 100]")
    if absolute < 0:
        problems.invalid(absolute_path, absolute, "not in valid range [0, inf)")
    if percentage == 0 and absolute == 0:
        problems.invalid(percentage_path, 0, "cannot be zero at the same time as minCandidateNodesAbsolute")
        problems.invalid(absolute_path, 0, "cannot be zero at the same time as minCandidateNodesPercentage")
    return {"minCandidateNodesPercentage": percentage, "minCandidateNodesAbsolute": absolute}


def _inter_pod_affinity(fields: Fields, problems: Problems) -> Arguments:
    weight = fields.whole("hardPodAffinityWeight", 1)
    if not 0 <= weight <= 100:
        problems.invalid(fields.at("hardPodAffinityWeight"), weight, "not in valid range [0, 100]")
    return {
        "hardPodAffinityWeight": weight,
        "ignorePreferredTermsOfExistingPods": fields.flag("ignorePreferredTermsOfExistingPods", False),
    }


def _node_affinity(fields: Fields, problems: Problems) -> Arguments:
    """addedAffinity is a v1 NodeAffinity; its terms are checked when the plugin builds its selectors from it."""
    if not fields.has("addedAffinity"):
        fields.raw("addedAffinity")
        return {"addedAffinity": None}
    added = fields.child("addedAffinity")
    affinity: Arguments = {}
    if added.has("requiredDuringSchedulingIgnoredDuringExecution"):
        required = added.child("requiredDuringSchedulingIgnoredDuringExecution")
        terms = [_node_selector_term(term, problems) for term in required.objects("nodeSelectorTerms")]
        if not terms:
            problems.required(required.at("nodeSelectorTerms"), "must have at least one node selector term")
        required.finish()
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    preferred = []
    for entry in added.objects("preferredDuringSchedulingIgnoredDuringExecution"):
        weight = entry.whole("weight", 0)
        if not 1 <= weight <= 100:
            problems.invalid(entry.at("weight"), weight, "must be in the range 1-100")
        preferred.append({"weight": weight, "preference": _node_selector_term(entry.child("preference"), problems)})
        entry.finish()
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    added.finish()
    return {"addedAffinity": affinity}


def _node_selector_term(fields: Fields, problems: Problems) -> Arguments:
    term: Arguments = {}
    for name in ("matchExpressions", "matchFields"):
        expressions = []
        for expression in fields.objects(name):
            key, operator = expression.text("key"), expression.text("operator")
            values = expression.strings("values")
            if not key:
                problems.required(expression.at("key"))
            if operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
                problems.invalid(expression.at("operator"), operator, "not a valid selector operator")
            expression.finish()
            expressions.append({"key": key, "operator": operator, "values": values})
        if expressions:
            term[name] = expressions
    fields.finish()
    return term


def _node_resources_fit(fields: Fields, problems: Problems) -> Arguments:
    groups = fields.strings("ignoredResourceGroups")
    for index, group in enumerate(groups):
        if "/" in group:
            path = f"{fields.at('ignoredResourceGroups')}[{index}]"
            problems.invalid(path, group, "resource group name can't contain '/'")
    return {
        "ignoredResources": fields.strings("ignoredResources"),
        "ignoredResourceGroups": groups,
        "scoringStrategy": decode_scoring_strategy(fields.child("scoringStrategy"), problems),
    }


def _balanced_allocation(fields: Fields, problems: Problems) -> Arguments:
    resources = decode_resources(fields, problems)
    for index, resource in enumerate(resources):
        if resource["weight"] != 1:
            path = f"{fields.at('resources')}[{index}].weight"
            problems.invalid(path, resource["weight"], f"resource weight of {resource['name']} must be 1")
    return {"resources": resources}


def _pod_topology_spread(fields: Fields, problems: Problems) -> Arguments:
    constraints = []
    for constraint in fields.objects("defaultConstraints"):
        skew, key = constraint.whole("maxSkew", 0), constraint.text("topologyKey")
        action = constraint.text("whenUnsatisfiable")
        if skew <= 0:
            problems.invalid(constraint.at("maxSkew"), skew, "not in valid range (0, inf)")
        if not key:
            problems.required(constraint.at("topologyKey"), "can not be empty")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            problems.unsupported(constraint.at("whenUnsatisfiable"), action, ("DoNotSchedule", "ScheduleAnyway"))
        if constraint.raw("labelSelector") is not None:
            text = "constraint must not define a selector, as they deduced for each pod"
            problems.invalid(constraint.at("labelSelector"), Shown("object"), text)
        constraint.finish()
        constraints.append({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action})
    kind = fields.text("defaultingType", "System")
    if kind not in ("System", "List"):
        problems.unsupported(fields.at("defaultingType"), kind, ("System", "List"))
    if kind == "System" and constraints:
        problems.invalid(fields.at("defaultingType"), kind, "when .defaultConstraints are not empty")
    return {"defaultConstraints": constraints, "defaultingType": kind}


def _volume_binding(fields: Fields, problems: Problems) -> Arguments:
    timeout_s = fields.whole("bindTimeoutSeconds", 600)
    if timeout_s < 0:
        text = "invalid BindTimeoutSeconds, should not be a negative value"
        problems.invalid(fields.at("bindTimeoutSeconds"), timeout_s, text)
    default_shape = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    shape = decode_shape(fields, problems) if fields.has("shape") else default_shape
    fields.raw("shape")
    return {"bindTimeoutSeconds": timeout_s, "shape": shape}


def _dynamic_resources(fields: Fields, problems: Problems) -> Arguments:
    filter_s = fields.duration_s("filterTimeout", 10.0)
    binding_s = fields.duration_s("bindingTimeout", 600.0)
    if filter_s < 0:
        path = fields.at("filterTimeout")
        problems.invalid(path, Shown(format_seconds(filter_s)), "must be zero or positive")
    if binding_s < 1:
        path = fields.at("bindingTimeout")
        problems.invalid(path, Shown(format_seconds(binding_s)), "must be at least 1 second")
    return {"filterTimeout": filter_s, "bindingTimeout": binding_s}


def _partition(fields: Fields, problems: Problems) -> Arguments:
    """Ours: no plugin of kube-scheduler has these."""
    arguments: Arguments = {name: fields.strings(name) for name in ("drivers", "pools", "nodes")}
    labels = fields.raw("nodeSelector")
    if labels is not None and not (
        isinstance(labels, Mapping) and all(isinstance(value, str) for value in labels.values())
    ):
        raise ConfigError(fields.at("nodeSelector"), "expected an object of strings")
    for name in ("drivers", "pools", "nodes"):
        for index, value in enumerate(arguments[name]):
            if not value:
                problems.required(f"{fields.at(name)}[{index}]")
            elif value in arguments[name][:index]:
                problems.duplicate(f"{fields.at(name)}[{index}]", value)
    return {**arguments, "nodeSelector": dict(labels or {})}


_DECODERS: dict[str, Callable[[Fields, Problems], Arguments]] = {
    "DefaultPreemption": _default_preemption,
    "InterPodAffinity": _inter_pod_affinity,
    "NodeAffinity": _node_affinity,
    "NodeResourcesFit": _node_resources_fit,
    "NodeResourcesBalancedAllocation": _balanced_allocation,
    "PodTopologySpread": _pod_topology_spread,
    "VolumeBinding": _volume_binding,
    "DynamicResources": _dynamic_resources,
    "Partition": _partition,
}

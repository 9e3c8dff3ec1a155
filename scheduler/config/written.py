"""The effective configuration as a v1 document: for --write-config-to and /configz.

Source: what kube-scheduler 1.37 writes (field names, order, what is left out when empty). ``load_config`` of the
document gives the same configuration back.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from scheduler.config.defaults import API_VERSION, DEFAULT_PLUGINS, KIND, UPSTREAM_PLUGINS
from scheduler.config.durations import format_seconds
from scheduler.config.model import EXTENSION_POINTS, MULTI_POINT, Extender, PluginSet, Profile, SchedulerConfig
from scheduler.config.plugins import merge_plugins

Json = dict[str, Any]
_DURATIONS = {"DynamicResources": ("filterTimeout", "bindingTimeout")}
_UPSTREAM_POINTS = (*EXTENSION_POINTS, MULTI_POINT, "placementGenerate", "placementScore", "podGroupPostFilter")
_UPSTREAM_NAMES = frozenset(ref.name for ref in UPSTREAM_PLUGINS)
DEFAULT_QPS = 50.0


def document(config: SchedulerConfig, *, secrets: bool = False) -> Json:
    """``config`` as a KubeSchedulerConfiguration v1, defaults written out.

    With private keys and passwords in URLs if ``secrets``; else the former are left out and the latter are ``***``.
    """
    election, connection = config.leader_election, config.client_connection
    written: Json = {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "parallelism": config.parallelism,
        "leaderElection": {
            "leaderElect": election.leader_elect,
            "leaseDuration": format_seconds(election.lease_duration_s),
            "renewDeadline": format_seconds(election.renew_deadline_s),
            "retryPeriod": format_seconds(election.retry_period_s),
            "resourceLock": election.resource_lock,
            "resourceName": election.resource_name,
            "resourceNamespace": election.resource_namespace,
        },
        "clientConnection": {
            "kubeconfig": connection.kubeconfig,
            "acceptContentTypes": connection.accept_content_types,
            "contentType": connection.content_type,
            "qps": DEFAULT_QPS if connection.qps is None else connection.qps,
            "burst": connection.burst,
        },
        "enableProfiling": config.enable_profiling,
        "enableContentionProfiling": config.enable_contention_profiling,
        "percentageOfNodesToScore": config.percentage_of_nodes_to_score,
        "podInitialBackoffSeconds": config.pod_initial_backoff_s,
        "podMaxBackoffSeconds": config.pod_max_backoff_s,
    }
    if config.delay_cache_until_active:
        written["delayCacheUntilActive"] = True
    written["profiles"] = [_profile(profile) for profile in config.profiles]
    if config.extenders:
        written["extenders"] = [_extender(extender, secrets) for extender in config.extenders]
    return written


def _profile(profile: Profile) -> Json:
    written: Json = {"schedulerName": profile.scheduler_name}
    if profile.percentage_of_nodes_to_score is not None:
        written["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    sets = {point: profile.plugins.get(point, PluginSet()) for point in _UPSTREAM_POINTS}
    sets[MULTI_POINT] = merge_plugins(DEFAULT_PLUGINS, sets[MULTI_POINT])
    if sets[MULTI_POINT].enabled != DEFAULT_PLUGINS.enabled and "*" not in sets[MULTI_POINT].disabled:
        # Read back, the defaults come first again: only with * do these entries stand for themselves.
        sets[MULTI_POINT] = PluginSet(sets[MULTI_POINT].enabled, ("*",))
    written["plugins"] = {point: _plugin_set(chosen) for point, chosen in sets.items()}
    written["pluginConfig"] = [
        {"name": name, "args": _arguments(name, args)} for name, args in sorted(profile.arguments.items())
    ]
    return written


def _plugin_set(chosen: PluginSet) -> Json:
    written: Json = {}
    if chosen.enabled:
        written["enabled"] = [{"name": ref.name, "weight": ref.weight} for ref in chosen.enabled]
    if chosen.disabled:
        written["disabled"] = [{"name": name, "weight": 0} for name in chosen.disabled]
    return written


def _arguments(plugin: str, arguments: Mapping[str, Any]) -> Json:
    if plugin not in _UPSTREAM_NAMES:
        return dict(arguments)
    written: Json = {"kind": f"{plugin}Args", "apiVersion": API_VERSION}
    for name, value in arguments.items():
        if name in _DURATIONS.get(plugin, ()):
            written[name] = format_seconds(value)
        elif value is not None and value != []:
            written[name] = _without_none(value)
    return written


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_none(entry) for name, entry in value.items() if entry is not None}
    return value


def _extender(extender: Extender, secrets: bool) -> Json:
    """Fields with a zero value are left out, as upstream leaves them out."""
    fields: Json = {
        "urlPrefix": (secrets and extender.secret_url_prefix) or extender.url_prefix,
        "filterVerb": extender.filter_verb,
        "preemptVerb": extender.preempt_verb,
        "prioritizeVerb": extender.prioritize_verb,
        "weight": extender.weight,
        "bindVerb": extender.bind_verb,
        "enableHTTPS": extender.enable_https,
        "tlsConfig": _tls(extender, secrets),
        "httpTimeout": format_seconds(extender.http_timeout_s),
        "nodeCacheCapable": extender.node_cache_capable,
        "managedResources": [
            {"name": resource.name} | ({"ignoredByScheduler": True} if resource.ignored_by_scheduler else {})
            for resource in extender.managed_resources
        ],
        "ignorable": extender.ignorable,
    }
    return {name: value for name, value in fields.items() if value or name == "urlPrefix"}


def _tls(extender: Extender, secrets: bool) -> Json:
    tls = extender.tls
    if tls is None:
        return {}
    fields: Json = {
        "insecure": tls.insecure,
        "serverName": tls.server_name,
        "certFile": tls.cert_file,
        "keyFile": tls.key_file,
        "caFile": tls.ca_file,
        "certData": base64.b64encode(tls.cert_data).decode(),
        "keyData": base64.b64encode(tls.key_data).decode() if secrets else "",
        "caData": base64.b64encode(tls.ca_data).decode(),
    }
    return {name: value for name, value in fields.items() if value}

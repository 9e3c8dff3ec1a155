"""Text of a KubeSchedulerConfiguration to a SchedulerConfig. Source: kube-scheduler 1.37 (spec 9.1, 9.2)."""

from __future__ import annotations

from scheduler.config import defaults
from scheduler.config.document import parse_document
from scheduler.config.durations import go_quote
from scheduler.config.extenders import decode_extenders, without_ignored
from scheduler.config.fields import Fields
from scheduler.config.model import ClientConnection, LeaderElection, SchedulerConfig
from scheduler.config.problems import Problems
from scheduler.config.profiles import decode_profiles
from scheduler.config.validation import check_leader_election, check_numbers
from scheduler.errors import ConfigError

_PROTOBUF = "application/vnd.kubernetes.protobuf"


def load_config(text: str) -> SchedulerConfig:
    """Decode, default and validate ``text`` (YAML or JSON); an empty text gives the defaults.

    Raises ConfigError whose ``path`` is the field: not YAML, wrong apiVersion or kind, an unknown or duplicate field,
    a wrong type, or a value that upstream's validation refuses (all of those at once). What is
    legal but surprising is told in ``warnings``.
    """
    document = parse_document(text)
    fields = Fields(document, "")
    _check_kind(fields, empty=not document)
    problems = Problems()
    warnings: list[str] = []
    leader_election = _leader_election(fields.child("leaderElection"), warnings)
    client_connection = _client_connection(fields.child("clientConnection"), problems, warnings)
    extenders = decode_extenders(fields, problems)
    profiles = without_ignored(decode_profiles(fields, problems, warnings), extenders)
    config = SchedulerConfig(
        parallelism=fields.whole("parallelism", 16),
        leader_election=leader_election,
        client_connection=client_connection,
        enable_profiling=_profiling(fields, "enableProfiling", warnings),
        enable_contention_profiling=_profiling(fields, "enableContentionProfiling", warnings),
        percentage_of_nodes_to_score=fields.whole("percentageOfNodesToScore", 0),
        pod_initial_backoff_s=fields.whole("podInitialBackoffSeconds", 1),
        pod_max_backoff_s=fields.whole("podMaxBackoffSeconds", 10),
        delay_cache_until_active=fields.flag("delayCacheUntilActive", False),
        profiles=profiles,
        extenders=extenders,
        warnings=tuple(warnings),
    )
    fields.finish()
    check_numbers(config, problems)
    check_leader_election(config.leader_election, "leaderElection", problems)
    problems.raise_any()
    return config


def _check_kind(fields: Fields, *, empty: bool) -> None:
    api_version, kind = fields.text("apiVersion"), fields.text("kind")
    if empty:
        return
    if kind != defaults.KIND:
        raise ConfigError("kind", f"couldn't decode as {defaults.KIND}, got {kind}: expected {defaults.KIND}")
    if api_version != defaults.API_VERSION:
        raise ConfigError("apiVersion", f"no such version: {go_quote(api_version)}; use {defaults.API_VERSION}")


def _leader_election(fields: Fields, warnings: list[str]) -> LeaderElection:
    standard = LeaderElection()
    election = LeaderElection(
        leader_elect=fields.flag("leaderElect", standard.leader_elect),
        lease_duration_s=fields.duration_s("leaseDuration", standard.lease_duration_s),
        renew_deadline_s=fields.duration_s("renewDeadline", standard.renew_deadline_s),
        retry_period_s=fields.duration_s("retryPeriod", standard.retry_period_s),
        resource_lock=fields.text("resourceLock") or standard.resource_lock,
        resource_name=fields.text("resourceName") or standard.resource_name,
        resource_namespace=fields.text("resourceNamespace") or standard.resource_namespace,
    )
    fields.finish()
    if election.resource_name == "kube-scheduler":
        warnings.append(
            "leaderElection.resourceName is kube-scheduler's own Lease: in the same namespace only one of the two"
            " schedulers would run"
        )
    return election


def _client_connection(fields: Fields, problems: Problems, warnings: list[str]) -> ClientConnection:
    if fields.has("qps") or fields.has("burst"):
        warnings.append(
            "clientConnection.qps and burst do not slow dra-scheduler down: the API server's own priority and fairness"
            " decides"
        )
    connection = ClientConnection(
        kubeconfig=fields.text("kubeconfig"),
        accept_content_types=fields.text("acceptContentTypes"),
        content_type=fields.text("contentType") or ClientConnection().content_type,
        qps=fields.optional_number("qps"),
        burst=fields.whole("burst", 100),
    )
    fields.finish()
    if connection.burst < 0:
        problems.invalid(fields.at("burst"), connection.burst, "must be non-negative")
    if _PROTOBUF in (connection.content_type, connection.accept_content_types):
        warnings.append("clientConnection asks for protobuf: dra-scheduler speaks JSON to the API server")
    return connection


def _profiling(fields: Fields, name: str, warnings: list[str]) -> bool:
    written = fields.has(name)
    enabled = fields.flag(name, True)
    if written and enabled:
        warnings.append(f"{name} is true: there are no /debug/pprof endpoints in dra-scheduler")
    return enabled

"""KubeSchedulerConfiguration v1 as frozen values, defaults filled in. Durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EXTENSION_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""The extension points of a profile, by their names in the configuration."""
MULTI_POINT = "multiPoint"


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """leaderElection. The Lease is ``resource_namespace``/``resource_name``."""

    leader_elect: bool = True
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    resource_lock: str = "leases"
    resource_name: str = "dra-scheduler"
    resource_namespace: str = "kube-system"


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """clientConnection. ``qps`` (None: not written) and ``burst`` are read and checked, but there is no limit on our
    side: the API server's priority and fairness decides (a listed difference).
    """

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/json"
    qps: float | None = None
    burst: int = 100


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """extenders[].tlsConfig. The ``*_data`` are bytes and win over the files of the same name."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


@dataclass(frozen=True, slots=True)
class ManagedResource:
    """extenders[].managedResources[]."""

    name: str
    ignored_by_scheduler: bool = False


@dataclass(frozen=True, slots=True)
class Extender:
    """One HTTP extender; a verb "" is one it does not have. ``tls`` None: not written.

    ``url_prefix`` is for texts: a password in it stands as ``***``. ``secret_url_prefix``: as it was written, "" when
    the other one is.
    """

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    enable_https: bool = False
    tls: ExtenderTls | None = None
    http_timeout_s: float = 5.0
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False
    secret_url_prefix: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class PluginRef:
    """One entry of ``enabled``: a registered name or ``module:Class``; weight 0 means not written."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """What a profile says about one extension point, or about multiPoint. ``disabled`` may hold ``*``."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile. ``plugins``: extension point or ``multiPoint`` → the user's set, merged with the defaults.

    ``arguments``: plugin name → its args in the shape of the v1 args kind without apiVersion and kind; defaults are
    filled in and durations are seconds (float) for the plugins of kube-scheduler; those of other plugins are as
    written.
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int | None = None
    plugins: Mapping[str, PluginSet] = field(default_factory=dict)
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The whole configuration. ``warnings``: what a person should know at start, one sentence each."""

    parallelism: int = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_s: int = 1
    pod_max_backoff_s: int = 10
    delay_cache_until_active: bool = False
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    warnings: tuple[str, ...] = ()

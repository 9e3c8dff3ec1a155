"""What the process is started with: the configuration and the flags that are not part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.config.load import load_config
from scheduler.config.model import SchedulerConfig


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """How the secure port speaks TLS and whom it lets in.

    ``tls_min_version``: "VersionTLS12" or "VersionTLS13". ``cipher_suites``: names as Go has them, of TLS 1.2.
    ``reuse_port``: others may listen on the same port. ``reviews_kubeconfig``: whom to ask about callers, "" for the
    same API server. The ``*_ttl_s``: how long answers about a caller are kept.
    """

    tls_min_version: str = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    reuse_port: bool = False
    reviews_kubeconfig: str = ""
    always_allowed: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    token_ttl_s: float = 10.0
    authorized_ttl_s: float = 10.0
    unauthorized_ttl_s: float = 10.0


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The audit trail and the recording; "" where there is none.

    ``file``: one SQLite file per replica. ``max_age_s``, ``max_size_bytes``: what is older or more goes, oldest first.
    ``record``: the folder of the journal, which takes ``record_max_bytes`` at most.
    """

    file: str = ""
    max_age_s: float = 30 * 86400.0
    max_size_bytes: int = 256 * 1024 * 1024
    record: str = ""
    record_max_bytes: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything the composition root needs to know.

    ``kubeconfig`` "": in-cluster configuration. ``secure_port`` 0: no HTTPS server. ``tls_cert_file`` "": self-signed,
    in memory. ``feature_gates`` holds only those named. ``pod_max_in_unschedulable_pods_s``: after this long a Pod
    that no event has woken is tried again. ``master`` overrides the API server's address. ``hidden_metrics``: show
    those that upstream hides. ``namespaces``: where Pods are taken from, empty: everywhere. ``trust_loopback``: callers
    from this machine need no token. ``flags``: every flag with its value as text, for /flagz.
    """

    config: SchedulerConfig = field(default_factory=lambda: load_config(""))
    kubeconfig: str = ""
    verbosity: int = 0
    logging_format: str = "text"
    secure_port: int = 10259
    bind_address: str = "0.0.0.0"
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    verify_caches: bool = False
    trust_loopback: bool = False
    namespaces: frozenset[str] = frozenset()
    pod_max_in_unschedulable_pods_s: float = 300.0
    master: str = ""
    serving: ServingOptions = ServingOptions()
    audit: AuditOptions = AuditOptions()
    hidden_metrics: bool = False
    disabled_metrics: frozenset[str] = frozenset()
    dashboard: bool = True
    flags: Mapping[str, str] = field(default_factory=dict, compare=False)

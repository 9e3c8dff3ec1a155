"""What the process is started with: the configuration and the flags that are not part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.config.load import load_config
from scheduler.config.model import SchedulerConfig


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Everything the composition root needs to know.

    ``kubeconfig`` "": in-cluster configuration. ``secure_port`` 0: no HTTPS server. ``tls_cert_file`` "": self-signed,
    in memory. ``feature_gates`` holds only those named. ``pod_max_in_unschedulable_pods_s``: after this long a Pod
    that no event has woken is tried again.
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
    pod_max_in_unschedulable_pods_s: float = 300.0

"""What ``dra-scheduler guard`` is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.guard.certificates import Lifetimes

API_REQUEST_TIMEOUT_S = 40.0
"""kube-apiserver 1.37 ends a write after 34 s at most, whatever the client asks for; etcd may take a little longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """Ports: 0 is any free one for ``webhook_port`` and none for ``secure_port``.

    ``hosts``: names and addresses of the serving certificate; ``tls_cert_file`` and ``tls_private_key_file``: a given
    one instead of our own. ``trust_loopback``: callers from this machine need no token on ``secure_port``.
    ``client_ca_file``: who calls the webhook must show a certificate that these authorities have signed; "": anybody.
    ``api_request_timeout_s``: after this long no admitted write can still be stored.
    """

    kubeconfig: str = ""
    bind_address: str = "0.0.0.0"
    webhook_port: int = 9443
    secure_port: int = 10259
    namespace: str = "dra-scheduler"
    webhook_configuration: str = "dra-scheduler-guard"
    certificate_secret: str = "dra-scheduler-guard-certificates"
    hosts: tuple[str, ...] = ()
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    client_ca_file: str = ""
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    lease_name: str = "dra-scheduler-guard"
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    api_request_timeout_s: float = API_REQUEST_TIMEOUT_S
    trust_loopback: bool = False
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    logging_format: str = "text"
    verbosity: int = 0

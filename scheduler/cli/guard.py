"""``dra-scheduler guard``: the flags of the admission server."""

from __future__ import annotations

import argparse

from scheduler.cli.options import Arguments, UsageError, add_flag, parse_port, parse_seconds
from scheduler.config.gates import parse_feature_gates
from scheduler.edge.election import ElectionSettings
from scheduler.guard.certificates import Lifetimes
from scheduler.guard.options import API_REQUEST_TIMEOUT_S, GuardOptions

SERVICE = "dra-scheduler-guard"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("--kubeconfig", default="", metavar="FILE", help="default: in-cluster, else $KUBECONFIG or ~/.kube/config")
    add("--namespace", default="dra-scheduler", metavar="NAME", help="of Service, Lease and Secret")
    add("--service", default=SERVICE, metavar="NAME", help=f"by whose name the API server calls (default {SERVICE})")
    add("--host", action="append", default=[], metavar="NAME",
        help="a further name or address in our own certificate; may be repeated")  # fmt: skip
    add("--bind-address", default="0.0.0.0", metavar="IP", help="address of both servers (default 0.0.0.0)")
    add("--webhook-port", type=parse_port, default=9443, metavar="PORT", help="of the webhook (default 9443)")
    add("--secure-port", type=parse_port, default=10259, metavar="PORT",
        help="HTTPS port of health checks and metrics, 0 for none (default 10259)")  # fmt: skip
    add("--webhook-configuration", default=SERVICE, metavar="NAME",
        help=f"the ValidatingWebhookConfiguration whose caBundle we keep (default {SERVICE})")  # fmt: skip
    add("--certificate-secret", default=f"{SERVICE}-certificates", metavar="NAME", help="where our own ones are kept")
    add("--tls-cert-file", default="", metavar="FILE", help="a given certificate instead of our own (cert-manager)")
    add("--tls-private-key-file", default="", metavar="FILE", help="its private key")
    add("--client-ca-file", default="", metavar="FILE",
        help="certificates that who calls the webhook must be signed by; default: anybody may call")  # fmt: skip
    times = {
        "certificate-lifetime": (Lifetimes().serving_s, "of our own serving certificate (default 2160h)"),
        "authority-lifetime": (Lifetimes().authority_s, "of our own authority (default 8760h)"),
        "authority-overlap": (Lifetimes().overlap_s, "how long two authorities are trusted (default 10m)"),
        "api-request-timeout": (API_REQUEST_TIMEOUT_S, "after which no admitted write is alive (default 40s)"),
        "leader-elect-lease-duration": (15.0, "how long a lost replica's Lease keeps others out (default 15s)"),
        "leader-elect-renew-deadline": (10.0, "how long a replica tries to renew (default 10s)"),
        "leader-elect-retry-period": (2.0, "pause between two tries (default 2s)"),
    }
    for name, (value, text) in times.items():
        add(f"--{name}", type=parse_seconds, default=value, metavar="DURATION", help=text)
    add("--leader-elect-resource-name", default=SERVICE, metavar="NAME", help="the Lease's name")
    add_flag(parser, "trust-loopback", default=False, text="clients on this machine need no token on the HTTPS port")
    add("--feature-gates", default="", metavar="A=true,B=false", help="kube-scheduler's feature gates")
    add("-v", "--v", type=int, default=0, metavar="LEVEL", dest="v", help="log verbosity (default 0)")
    add("--logging-format", choices=("text", "json"), default="text", help="log lines for people or for machines")


def execute(arguments: Arguments) -> int:
    """Run until a signal (0), a lost Lease or a failure (1)."""
    options = guard_options(arguments)
    # Imported here: kopf takes half a second, and bad flags are told at once.
    from scheduler.guard.process import run

    return run(options)


def guard_options(arguments: Arguments) -> GuardOptions:
    """The options behind parsed flags. Raises UsageError or ConfigError."""
    if bool(arguments.tls_cert_file) != bool(arguments.tls_private_key_file):
        raise UsageError("--tls-cert-file and --tls-private-key-file must be given together")
    positive = ("certificate_lifetime", "authority_lifetime", "authority_overlap", "api_request_timeout")
    for name in positive:
        if getattr(arguments, name) <= 0:
            raise UsageError(f"--{name.replace('_', '-')} must be greater than zero")
    if arguments.authority_overlap >= arguments.authority_lifetime / 6:
        raise UsageError("--authority-overlap must be less than a sixth of --authority-lifetime")
    options = GuardOptions(
        kubeconfig=arguments.kubeconfig,
        bind_address=arguments.bind_address,
        webhook_port=arguments.webhook_port,
        secure_port=arguments.secure_port,
        namespace=arguments.namespace,
        webhook_configuration=arguments.webhook_configuration,
        certificate_secret=arguments.certificate_secret,
        hosts=(*_service_names(arguments.service, arguments.namespace), *arguments.host),
        tls_cert_file=arguments.tls_cert_file,
        tls_private_key_file=arguments.tls_private_key_file,
        client_ca_file=arguments.client_ca_file,
        lifetimes=Lifetimes(
            serving_s=arguments.certificate_lifetime,
            authority_s=arguments.authority_lifetime,
            overlap_s=arguments.authority_overlap,
        ),
        lease_name=arguments.leader_elect_resource_name,
        lease_duration_s=arguments.leader_elect_lease_duration,
        renew_deadline_s=arguments.leader_elect_renew_deadline,
        retry_period_s=arguments.leader_elect_retry_period,
        api_request_timeout_s=arguments.api_request_timeout,
        trust_loopback=arguments.trust_loopback,
        feature_gates=parse_feature_gates(arguments.feature_gates),
        logging_format=arguments.logging_format,
        verbosity=arguments.v,
    )
    ElectionSettings(
        identity="flags",
        lease_duration_s=options.lease_duration_s,
        renew_deadline_s=options.renew_deadline_s,
        retry_period_s=options.retry_period_s,
    ).check()
    return options


def _service_names(service: str, namespace: str) -> tuple[str, ...]:
    """How an API server may call a Service; the first is the name it verifies."""
    return f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"

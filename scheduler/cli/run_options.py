"""The flags of ``dra-scheduler run`` and what they mean together with the configuration file.

Source: kube-scheduler 1.37, command line (spec 13). Flags win over the file, also ``--kubeconfig``, which upstream
ignores beside ``--config`` (a listed difference).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace

from scheduler.cli.audit_flags import add_audit_arguments, audit_options
from scheduler.cli.options import Arguments, UsageError, add_flag, parse_port, parse_seconds
from scheduler.cli.upstream_flags import (
    add_upstream_arguments,
    check_upstream,
    serving_options,
    shown_flags,
    with_deprecated,
)
from scheduler.config import LeaderElection, RunOptions, load_config
from scheduler.config.gates import parse_feature_gates
from scheduler.config.problems import Problems
from scheduler.config.validation import check_leader_election

# Flag of leader election → field of LeaderElection.
_ELECTION_FIELDS = {
    "leader_elect": "leader_elect",
    "leader_elect_lease_duration": "lease_duration_s",
    "leader_elect_renew_deadline": "renew_deadline_s",
    "leader_elect_retry_period": "retry_period_s",
    "leader_elect_resource_lock": "resource_lock",
    "leader_elect_resource_name": "resource_name",
    "leader_elect_resource_namespace": "resource_namespace",
}


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("--config", default="", metavar="FILE", help="KubeSchedulerConfiguration v1")
    reach = "how to reach the API server; default: in-cluster, else $KUBECONFIG or ~/.kube/config"
    add("--kubeconfig", default="", metavar="FILE", help=reach)
    add_flag(parser, "leader-elect", default=None, text="run only while holding the Lease (default true)")
    seconds: dict[str, str] = {
        "leader-elect-lease-duration": "how long a lost leader's Lease keeps others out (default 15s)",
        "leader-elect-renew-deadline": "how long a leader tries to renew before it gives up (default 10s)",
        "leader-elect-retry-period": "pause between two tries (default 2s)",
    }
    for name, text in seconds.items():
        add(f"--{name}", type=parse_seconds, metavar="DURATION", help=text)
    add("--leader-elect-resource-lock", metavar="TYPE", help='only "leases"')
    add("--leader-elect-resource-name", metavar="NAME", help="the Lease's name (default dra-scheduler)")
    add("--leader-elect-resource-namespace", metavar="NAMESPACE", help="its namespace (default kube-system)")
    add("--bind-address", default="0.0.0.0", metavar="IP", help="address of the HTTPS server (default 0.0.0.0)")
    add("--secure-port", type=parse_port, default=10259, metavar="PORT", help="HTTPS port, 0 for none (default 10259)")
    add("--cert-dir", default="", metavar="FOLDER", help="folder with dra-scheduler.crt and dra-scheduler.key")
    add("--tls-cert-file", default="", metavar="FILE", help="serving certificate; default: self-signed, in memory")
    add("--tls-private-key-file", default="", metavar="FILE", help="its private key")
    add("--feature-gates", default="", metavar="A=true,B=false", help="kube-scheduler's feature gates")
    add("--pod-max-in-unschedulable-pods-duration", type=parse_seconds, default=300.0, metavar="DURATION",
        help="try a waiting Pod again after this long without an event (default 5m0s)")  # fmt: skip
    add(
        "--namespaces", default="", metavar="A,B", help="place and preempt Pods of these namespaces only (default: all)"
    )
    add_flag(parser, "trust-loopback", default=False, text="clients on this machine need no token on the HTTPS port")
    add_flag(parser, "verify-caches", default=False, text="recompute every cached value and compare; slow")
    add("-v", "--v", type=int, default=0, metavar="LEVEL", dest="v", help="log verbosity (default 0)")
    add("--logging-format", choices=("text", "json"), default="text", help="log lines for people or for machines")
    add_flag(parser, "dashboard", default=True, text="serve the dashboard and answer questions on the HTTPS port")
    add_audit_arguments(parser)
    add_upstream_arguments(parser)


def run_options(arguments: Arguments, read_text: Callable[[str], str]) -> RunOptions:
    """The options behind parsed flags; ``read_text`` gives the text of the configuration file.

    Raises ConfigError for the file or a gate, UsageError for flags that do not go together, OSError from reading.
    """
    check_upstream(arguments)
    config = load_config(read_text(arguments.config)) if arguments.config else load_config("")
    config = with_deprecated(config, arguments)
    config = replace(config, leader_election=_election(arguments, config.leader_election))
    if bool(arguments.tls_cert_file) != bool(arguments.tls_private_key_file):
        raise UsageError("--tls-cert-file and --tls-private-key-file must be given together")
    if arguments.pod_max_in_unschedulable_pods_duration <= 0:
        raise UsageError("--pod-max-in-unschedulable-pods-duration must be greater than zero")
    return RunOptions(
        config=config,
        kubeconfig=arguments.kubeconfig or config.client_connection.kubeconfig,
        verbosity=arguments.v,
        logging_format=arguments.logging_format,
        secure_port=arguments.secure_port,
        bind_address=arguments.bind_address,
        tls_cert_file=arguments.tls_cert_file or _in_folder(arguments.cert_dir, "dra-scheduler.crt"),
        tls_private_key_file=arguments.tls_private_key_file or _in_folder(arguments.cert_dir, "dra-scheduler.key"),
        feature_gates=parse_feature_gates(arguments.feature_gates),
        verify_caches=arguments.verify_caches,
        trust_loopback=arguments.trust_loopback,
        namespaces=_namespaces(arguments.namespaces),
        pod_max_in_unschedulable_pods_s=arguments.pod_max_in_unschedulable_pods_duration,
        master=arguments.master,
        serving=serving_options(arguments),
        audit=audit_options(arguments),
        hidden_metrics=bool(arguments.show_hidden_metrics_for_version),
        disabled_metrics=frozenset(filter(None, arguments.disabled_metrics.split(","))),
        dashboard=arguments.dashboard,
        flags=shown_flags(arguments),
    )


def _election(arguments: Arguments, election: LeaderElection) -> LeaderElection:
    written = {field: getattr(arguments, flag) for flag, field in _ELECTION_FIELDS.items()}
    election = replace(election, **{field: value for field, value in written.items() if value is not None})
    problems = Problems()
    check_leader_election(election, "leaderElection", problems)
    problems.raise_any()
    return election


def _namespaces(text: str) -> frozenset[str]:
    """Names separated by commas. Raises UsageError for one that no namespace can have."""
    names = [name.strip() for name in text.split(",")] if text else []
    for name in names:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise UsageError(f"--namespaces: {name!r} is no name of a namespace")
    return frozenset(names)


def _in_folder(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder else ""

"""The flags of kube-scheduler that matter less here: taken in upstream's meaning, or refused by name.

Source: kube-scheduler 1.37, command line (spec 13).
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from scheduler.cli.options import Arguments, UsageError, add_flag, parse_seconds
from scheduler.config import SchedulerConfig
from scheduler.config.options import ServingOptions

UPSTREAM_MINOR = "1.37"
_HIDDEN_SINCE = "1.36"

_WITHOUT_EFFECT = {
    "disable-http2-serving": ("flag", "the server speaks HTTP/1.1 only"),
    "http2-max-streams-per-connection": ("text", "the server speaks HTTP/1.1 only"),
    "permit-address-sharing": ("flag", "the address is always shared"),
    "authentication-skip-lookup": ("flag", "callers prove themselves by token only, so nothing is looked up"),
    "authentication-tolerate-lookup-failure": ("flag", "nothing is looked up"),
    "log-flush-frequency": ("seconds", "every line is written at once"),
}
"""Flag → (kind, why it changes nothing here)."""

_CALLER_CERTIFICATES = "client certificates of callers are not looked at; use bearer tokens"
REFUSED = {
    "tls-sni-cert-key": "one certificate only",
    "tls-curve-preferences": "the curves are OpenSSL's choice",
    "client-ca-file": _CALLER_CERTIFICATES,
    "requestheader-allowed-names": _CALLER_CERTIFICATES,
    "requestheader-client-ca-file": _CALLER_CERTIFICATES,
    "requestheader-extra-headers-prefix": _CALLER_CERTIFICATES,
    "requestheader-group-headers": _CALLER_CERTIFICATES,
    "requestheader-uid-headers": _CALLER_CERTIFICATES,
    "requestheader-username-headers": _CALLER_CERTIFICATES,
    "allow-metric-labels": "metrics cannot be narrowed by label",
    "allow-metric-labels-manifest": "metrics cannot be narrowed by label",
    "vmodule": "there is one verbosity for all modules, -v",
    "log-text-split-stream": "all lines go to standard error",
    "log-text-info-buffer-size": "lines are not buffered",
    "log-json-split-stream": "all lines go to standard error",
    "log-json-info-buffer-size": "lines are not buffered",
}
"""Flag → why it cannot be used here. Given, it stops the start; left out or empty, nothing happens."""

_NOTHING = ("", "false", "0", "[]")


def add_upstream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("--master", default="", metavar="URL", help="address of the API server, instead of the kubeconfig's")
    add("--write-config-to", default="", metavar="FILE", help="write the effective configuration there and leave")
    add_flag(parser, "profiling", default=None, text="ignored with --config")
    add_flag(parser, "contention-profiling", default=None, text="ignored with --config")
    add("--kube-api-content-type", metavar="TYPE", help="ignored with --config; JSON is always spoken")
    add("--kube-api-qps", type=float, metavar="N", help="ignored with --config; there is no limit on our side")
    add("--kube-api-burst", type=int, metavar="N", help="ignored with --config; there is no limit on our side")
    add("--tls-min-version", default="", metavar="VersionTLS12", help="VersionTLS12 (default) or VersionTLS13")
    add("--tls-cipher-suites", default="", metavar="A,B", help="cipher suites of TLS 1.2, by their IANA names")
    add_flag(parser, "permit-port-sharing", default=False, text="let others listen on the same port")
    add("--authentication-kubeconfig", default="", metavar="FILE", help="whom to ask about callers' tokens")
    add("--authorization-kubeconfig", default="", metavar="FILE", help="the same file; whom to ask about their rights")
    add("--authorization-always-allow-paths", default="/healthz,/readyz,/livez", metavar="A,B",
        help="paths for everybody (default /healthz,/readyz,/livez)")  # fmt: skip
    for name in ("authentication-token-webhook-cache-ttl", "authorization-webhook-cache-authorized-ttl",
                 "authorization-webhook-cache-unauthorized-ttl"):  # fmt: skip
        add(f"--{name}", type=parse_seconds, default=10.0, metavar="DURATION", help="answers are kept so long (10s)")
    add("--emulated-version", default="", metavar="1.37", help="only 1.37")
    add("--min-compatibility-version", default="", metavar="1.37", help="only 1.37 and older")
    add("--show-hidden-metrics-for-version", default="", metavar="1.36", help="only 1.36: show what 1.37 hid")
    add("--disabled-metrics", default="", metavar="A,B", help="metrics not to expose")
    add_flag(parser, "version", default=None, text="print the version and leave")
    for name, (kind, why) in _WITHOUT_EFFECT.items():
        if kind == "flag":
            add_flag(parser, name, default=None, text=f"no effect: {why}")
        else:
            converter = parse_seconds if kind == "seconds" else str
            add(f"--{name}", type=converter, metavar=kind.upper(), help=f"no effect: {why}")
    for name, why in REFUSED.items():
        if name.endswith("split-stream"):
            add_flag(parser, name, default=None, text=f"refused: {why}")
        else:
            add(f"--{name}", default="", metavar="TEXT", help=f"refused: {why}")


def check_upstream(arguments: Arguments) -> None:
    """Raises UsageError for a flag that cannot be honoured, naming it and the reason."""
    for name, why in REFUSED.items():
        value = getattr(arguments, name.replace("-", "_"))
        if value is not None and str(value).lower() not in _NOTHING:
            raise UsageError(f"--{name} cannot be used with dra-scheduler: {why}")
    for name in ("emulated_version", "min_compatibility_version"):
        for entry in filter(None, getattr(arguments, name).split(",")):
            component, _, version = entry.rpartition("=")
            if component not in ("", "kube") or version.removeprefix("v") != UPSTREAM_MINOR:
                flag = name.replace("_", "-")
                raise UsageError(
                    f"--{flag}={entry} cannot be used with dra-scheduler: it follows {UPSTREAM_MINOR} only"
                )
    shown = arguments.show_hidden_metrics_for_version
    if shown and shown != _HIDDEN_SINCE:
        raise UsageError(
            f"--show-hidden-metrics-for-version must be omitted or have the value '{_HIDDEN_SINCE}'. "
            "Only the previous minor version is allowed"
        )


def with_deprecated(config: SchedulerConfig, arguments: Arguments) -> SchedulerConfig:
    """What the deprecated flags say, when there is no configuration file."""
    if arguments.config:
        return config
    connection = config.client_connection
    connection = replace(
        connection,
        content_type=arguments.kube_api_content_type or connection.content_type,
        qps=connection.qps if arguments.kube_api_qps is None else arguments.kube_api_qps,
        burst=connection.burst if arguments.kube_api_burst is None else arguments.kube_api_burst,
    )
    return replace(
        config,
        client_connection=connection,
        enable_profiling=config.enable_profiling if arguments.profiling is None else arguments.profiling,
        enable_contention_profiling=(
            config.enable_contention_profiling
            if arguments.contention_profiling is None
            else arguments.contention_profiling
        ),
    )


def serving_options(arguments: Arguments) -> ServingOptions:
    """How to serve. Raises UsageError."""
    one, other = arguments.authentication_kubeconfig, arguments.authorization_kubeconfig
    if one and other and one != other:
        raise UsageError("--authentication-kubeconfig and --authorization-kubeconfig must be the same file")
    version = arguments.tls_min_version or "VersionTLS12"
    if version not in ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"):
        raise UsageError(f"--tls-min-version: unknown tls version {version!r}")
    if version in ("VersionTLS10", "VersionTLS11"):
        raise UsageError(f"--tls-min-version={version} cannot be used with dra-scheduler: at least VersionTLS12")
    return ServingOptions(
        tls_min_version=version,
        cipher_suites=tuple(filter(None, arguments.tls_cipher_suites.split(","))),
        reuse_port=arguments.permit_port_sharing,
        reviews_kubeconfig=one or other,
        always_allowed=tuple(filter(None, arguments.authorization_always_allow_paths.split(","))),
        token_ttl_s=arguments.authentication_token_webhook_cache_ttl,
        authorized_ttl_s=arguments.authorization_webhook_cache_authorized_ttl,
        unauthorized_ttl_s=arguments.authorization_webhook_cache_unauthorized_ttl,
    )


def shown_flags(arguments: Arguments) -> dict[str, str]:
    """Every flag and its value, by name, as /flagz shows them."""
    return {name.replace("_", "-"): _shown(value) for name, value in sorted(vars(arguments).items())}


def _shown(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)

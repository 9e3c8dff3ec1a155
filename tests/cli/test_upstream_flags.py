"""The flags of kube-scheduler that dra-scheduler takes for its sake, or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scheduler.cli.main import main
from scheduler.cli.options import UsageError
from scheduler.cli.upstream_flags import REFUSED
from scheduler.config.options import ServingOptions
from tests.cli.test_run_options import options


def test_everything_that_serves_arrives() -> None:
    """TLS, reviews and cache times."""
    serving = options(
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--permit-port-sharing",
        "--authentication-kubeconfig=/k",
        "--authorization-kubeconfig=/k",
        "--authorization-always-allow-paths=/healthz,/metrics",
        "--authentication-token-webhook-cache-ttl=1m",
        "--authorization-webhook-cache-authorized-ttl=5m",
        "--authorization-webhook-cache-unauthorized-ttl=30s",
    ).serving
    assert serving == ServingOptions(
        "VersionTLS13",
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
        True,
        "/k",
        ("/healthz", "/metrics"),
        60.0,
        300.0,
        30.0,
    )


def test_deprecated_flags_count_only_without_a_file() -> None:
    """As kube-scheduler: ignored beside --config."""
    flags = ("--profiling=false", "--contention-profiling=false", "--kube-api-qps=7", "--kube-api-burst=9")
    config = options(*flags).config
    assert (config.enable_profiling, config.enable_contention_profiling) == (False, False)
    assert (config.client_connection.qps, config.client_connection.burst) == (7.0, 9)
    config = options("--config=file.yaml", *flags).config
    assert (config.enable_profiling, config.client_connection.qps) == (True, None)


def test_flags_without_an_effect_are_taken() -> None:
    """They change nothing but what /flagz shows."""
    plain = options()
    given = options(
        "--disable-http2-serving",
        "--http2-max-streams-per-connection=100",
        "--permit-address-sharing",
        "--authentication-skip-lookup=false",
        "--authentication-tolerate-lookup-failure",
        "--log-flush-frequency=1s",
        "--emulated-version=1.37",
        "--min-compatibility-version=kube=1.37",
        "--client-ca-file=",
    )
    assert given == plain
    assert given.flags["log-flush-frequency"] == "1.0"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_flags_that_cannot_be_honoured_are_refused_by_name(name: str) -> None:
    """The text names flag and reason."""
    value = "true" if name.endswith("split-stream") else "x"
    with pytest.raises(UsageError) as caught:
        options(f"--{name}={value}")
    assert str(caught.value) == f"--{name} cannot be used with dra-scheduler: {REFUSED[name]}"


@pytest.mark.parametrize(
    ("flag", "word"),
    [
        ("--emulated-version=1.36", "1.37 only"),
        ("--show-hidden-metrics-for-version=1.35", "Only the previous minor version is allowed"),
        ("--tls-min-version=VersionTLS11", "at least VersionTLS12"),
        ("--tls-min-version=1.2", "unknown tls version"),
    ],
)
def test_values_that_cannot_be_honoured_are_refused(flag: str, word: str) -> None:
    """The reason is told."""
    with pytest.raises(UsageError, match=word):
        options(flag)


def test_two_places_to_ask_about_callers_are_refused() -> None:
    """One client asks both questions."""
    with pytest.raises(UsageError, match="must be the same file"):
        options("--authentication-kubeconfig=/a", "--authorization-kubeconfig=/b")


def test_the_configuration_is_written_and_the_process_leaves(tmp_path: Path) -> None:
    """No API server is needed; flags are in it."""
    file = tmp_path / "written.yaml"
    assert main(["run", f"--write-config-to={file}", "--leader-elect=false"]) == 0
    assert yaml.safe_load(file.read_text())["leaderElection"]["leaderElect"] is False


def test_a_configuration_that_cannot_run_is_not_written(tmp_path: Path) -> None:
    """Profiles are built first."""
    source, target = tmp_path / "in.yaml", tmp_path / "out.yaml"
    source.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {filter: {enabled: [{name: NoSuch}]}}}]\n"
    )
    assert main(["run", f"--config={source}", f"--write-config-to={target}"]) == 1
    assert not target.exists()


def test_version_is_a_flag_too(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints and leaves."""
    assert main(["run", "--version"]) == 0
    assert "v1.37.2" in capsys.readouterr().out

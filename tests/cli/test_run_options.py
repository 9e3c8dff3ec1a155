"""The flags of ``dra-scheduler run``."""

from __future__ import annotations

import pytest

from scheduler.cli.options import Parser, UsageError, go_style
from scheduler.cli.run_options import add_run_arguments, run_options
from scheduler.config import RunOptions
from scheduler.errors import ConfigError

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
FILES = {
    "file.yaml": HEADER
    + "leaderElection: {leaderElect: false, resourceName: from-file, leaseDuration: 30s}\n"
    + "clientConnection: {kubeconfig: /from/file}\n"
}


def options(*argv: str) -> RunOptions:
    """The options behind a command line."""
    parser = Parser(prog="run")
    add_run_arguments(parser)
    return run_options(parser.parse_args(go_style(parser, argv)), FILES.__getitem__)


def test_without_flags_the_defaults_are_upstreams() -> None:
    """Port, address, durations and levels are kube-scheduler's; names are ours."""
    assert options() == RunOptions()
    assert (RunOptions().secure_port, RunOptions().bind_address) == (10259, "0.0.0.0")
    assert RunOptions().pod_max_in_unschedulable_pods_s == 300.0
    assert RunOptions().config.leader_election.resource_name == "dra-scheduler"


def test_leader_election_flags_override_the_file() -> None:
    """What is not given as a flag stays as the file has it."""
    election = options(
        "--config=file.yaml", "--leader-elect", "--leader-elect-renew-deadline", "20s"
    ).config.leader_election
    assert election.leader_elect
    assert election.resource_name == "from-file"
    assert (election.lease_duration_s, election.renew_deadline_s) == (30.0, 20.0)


def test_flags_are_checked_as_the_file_is() -> None:
    """A renew deadline longer than the lease is refused, wherever it comes from."""
    with pytest.raises(ConfigError, match=r"leaderElection\.leaseDuration: Invalid value: 15s: must be greater than"):
        options("--leader-elect-renew-deadline=15s")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--leader-elect"], True),
        (["--leader-elect=true"], True),
        (["--leader-elect=false"], False),
        (["--leader-elect=F", "--leader-elect=T"], True),
        ([], True),
    ],
)
def test_booleans_are_read_as_go_reads_them(argv: list[str], expected: bool) -> None:
    """With and without a value; the last one wins."""
    assert options(*argv).config.leader_election.leader_elect is expected


def test_a_boolean_never_takes_the_next_argument() -> None:
    """``--leader-elect false`` leaves ``false`` as an argument, as in Go."""
    with pytest.raises(UsageError, match=r'does not take any arguments, got \["false"\]'):
        options("--leader-elect", "false")


@pytest.mark.parametrize("argv", [["-v=4"], ["-v", "4"], ["-v4"], ["--v=4"], ["--v", "4"]])
def test_verbosity_has_many_spellings(argv: list[str]) -> None:
    """All spellings of klog's -v work."""
    assert options(*argv).verbosity == 4


def test_the_kubeconfig_flag_wins_over_the_file() -> None:
    """Without the flag the file's clientConnection counts."""
    assert options("--config=file.yaml").kubeconfig == "/from/file"
    assert options("--config=file.yaml", "--kubeconfig=/flag").kubeconfig == "/flag"
    assert options().kubeconfig == ""


def test_the_rest_of_the_flags() -> None:
    """Each remaining flag reaches its option."""
    got = options(
        "--secure-port=0",
        "--bind-address=127.0.0.1",
        "--cert-dir=/c",
        "--tls-cert-file=/c/a",
        "--tls-private-key-file=/c/b",
        "--feature-gates=DRADeviceTaints=false",
        "--verify-caches",
        "--trust-loopback",
        "--dashboard=false",
        "--namespaces=team-b,team-a",
        "--logging-format=json",
        "--pod-max-in-unschedulable-pods-duration=1m30s",
    )
    assert got == RunOptions(
        secure_port=0,
        bind_address="127.0.0.1",
        tls_cert_file="/c/a",
        tls_private_key_file="/c/b",
        feature_gates={"DRADeviceTaints": False},
        verify_caches=True,
        trust_loopback=True,
        dashboard=False,
        namespaces=frozenset({"team-a", "team-b"}),
        logging_format="json",
        pod_max_in_unschedulable_pods_s=90.0,
    )


def test_a_certificate_folder_stands_for_two_files() -> None:
    """--cert-dir names the pair that files given one by one replace."""
    got = options("--cert-dir=/c/")
    assert (got.tls_cert_file, got.tls_private_key_file) == ("/c/dra-scheduler.crt", "/c/dra-scheduler.key")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--secure-port=70000", "70000 is not a port between 0 and 65535"),
        ("--namespaces=a,,b", "--namespaces: '' is no name of a namespace"),
        ("--namespaces=A", "--namespaces: 'A' is no name of a namespace"),
        ("--leader-elect=maybe", "'maybe' is not true or false"),
        ("--leader-elect-retry-period=2", 'time: missing unit in duration "2"'),
        ("--logging-format=xml", "invalid choice"),
        ("--tls-cert-file=/a", "must be given together"),
        ("--pod-max-in-unschedulable-pods-duration=0s", "must be greater than zero"),
        ("-v=x", "invalid int value"),
        ("--config", "expected one argument"),
    ],
)
def test_bad_values_are_refused(flag: str, message: str) -> None:
    """The message names what is wrong with the value."""
    with pytest.raises(UsageError, match=message):
        options(flag)

"""The entry points: choosing a command, errors, start-up time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scheduler.cli.main import COMMANDS, kubectl_main, main


def test_version_names_both_versions(capsys: pytest.CaptureFixture[str]) -> None:
    """The version says what is followed."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out == "dra-scheduler 0.1.0 (follows kube-scheduler v1.37.2)\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """--help goes to standard output with code 0."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_the_kubectl_plugin_speaks_as_kubectl_dra(capsys: pytest.CaptureFixture[str]) -> None:
    """The same parser, under the name people type."""
    assert kubectl_main(["version", "now"]) == 1
    assert capsys.readouterr().err == (
        'kubectl dra version: "kubectl dra version" does not take any arguments, got ["now"]\n'
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "dra-scheduler: a command is needed"),
        (["walk"], "dra-scheduler: unknown command 'walk'"),
        (["run", "a", "b"], 'dra-scheduler run: "dra-scheduler run" does not take any arguments, got ["a" "b"]'),
        (["run", "--foo=1"], "dra-scheduler run: unknown flag: --foo; see dra-scheduler run --help"),
        (["run", "--conf", "x"], "dra-scheduler run: unknown flag: --conf; see dra-scheduler run --help"),
        (
            ["run", "--config=/nowhere/c.yaml"],
            "dra-scheduler run: [Errno 2] No such file or directory: '/nowhere/c.yaml'",
        ),
        (
            ["run", "--feature-gates=Foo=true"],
            "dra-scheduler run: feature-gates: unrecognized feature gate: Foo",
        ),
    ],
)
def test_any_error_is_one_message_and_code_1(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As kube-scheduler: the message on standard error, exit code 1."""
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == message
    assert captured.out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command in the list exists and explains its flags."""
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert f"usage: dra-scheduler {command}" in capsys.readouterr().out


def test_version_loads_no_heavy_library() -> None:
    """Small commands stay fast: none of the big libraries is imported."""
    heavy = ("aiohttp", "kubernetes_asyncio", "numpy", "celpy", "structlog", "prometheus_client", "msgspec")
    code = f"""
import sys
from scheduler.cli.main import main
main(["version"])
print([name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"

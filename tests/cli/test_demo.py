"""The demo, run as a user runs it."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from scheduler.cli.demo import own_command
from scheduler.cli.main import main

COMMAND = [sys.executable, "-m", "scheduler.cli.main", "demo"]


def test_demo_tells_its_story_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0; the waiting Pod got in by itself; the one that cannot fit is explained down to the devices."""
    assert main(["demo"]) == 0
    text = capsys.readouterr().out
    assert "npu-next   Running    npu-1" in text
    assert "0/5 nodes are available: 5 cannot allocate all claims." in text
    assert "$ dra-scheduler explain pod/too-big -n demo" in text
    assert "by claim demo/shared-a100 (pods demo/reader-1, demo/reader-2, for " in text
    assert "match of resource.kubernetes.io/pcieRoot broken" in text
    assert "ask for 2 instead of 4 devices" in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_keep_leaves_a_cluster_for_kubectl(number: signal.Signals) -> None:
    """--keep prints a kubeconfig whose server answers and a command that can be typed anywhere, goes on until a signal
    ends it, which is no failure, and leaves no file behind.
    """
    child = subprocess.Popen([*COMMAND, "--keep"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        path = next(line.split("=", 1)[1].strip() for line in child.stdout if "KUBECONFIG=" in line)
        server = yaml.safe_load(Path(path).read_text())["clusters"][0]["cluster"]["server"]
        with urllib.request.urlopen(f"{server}/api/v1/namespaces/demo/pods", timeout=5) as answer:
            assert b"too-big" in answer.read()
        typed = next(line.strip() for line in child.stdout if "explain pod/too-big" in line)
        assert typed == f"{sys.executable} -m scheduler.cli.main explain pod/too-big -n demo"
        assert child.poll() is None
    finally:
        child.send_signal(number)
        assert child.wait(10) == 0
        assert not Path(path).exists()
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_the_end_of_the_story_is_an_interruption(number: signal.Signals, code: int) -> None:
    """The exit code says so, and nothing is printed about it."""
    child = subprocess.Popen([*COMMAND, "--keep"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert "A cluster of" in child.stdout.readline() or "A cluster of" in child.stdout.readline()
    child.send_signal(number)
    assert child.communicate(timeout=20)[1] == ""
    assert child.returncode == code


def test_the_command_to_type_next_works_outside_the_virtual_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain name where the PATH leads to the same file, else the whole path."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("dra-scheduler", "kubectl-dra"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert own_command(f"{folder}/dra-scheduler") == f"'{folder}/dra-scheduler'"
    monkeypatch.chdir(tmp_path)
    assert own_command("a folder/kubectl-dra") == f"'{folder}/kubectl-dra'"
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    assert own_command(f"{folder}/dra-scheduler") == "dra-scheduler"
    assert own_command(f"{folder}/kubectl-dra") == "kubectl dra"


@pytest.mark.slow
def test_the_dashboard_is_left_running() -> None:
    """--dashboard prints its address first, serves page and answers without a token, and goes on until interrupted."""
    child = subprocess.Popen([*COMMAND, "--dashboard"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        lines = [next(child.stdout) for _ in range(3)]
        url = next(word for line in lines for word in line.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(url, timeout=5) as answer:
            assert b"<title>dra-scheduler</title>" in answer.read()
        assert any("Ctrl-C ends it" in line for line in child.stdout)
        question = url.replace("dashboard/", "questions/v1/namespaces/demo/pods/too-big/explanation")
        with urllib.request.urlopen(question, timeout=30) as answer:
            assert b"ask for 2 instead of 4 devices" in answer.read()
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
        assert child.stdout is not None
        child.stdout.close()


def test_a_folder_without_files_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong --data ends with exit code 1 and names the folder."""
    assert main(["demo", "--data", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err

"""What README and docs print is true."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from scheduler.cli.main import main
from scheduler.cli.options import Parser
from scheduler.cli.run_options import add_run_arguments
from scheduler.cli.sources import add_server_flags
from scheduler.cli.whatif import add_arguments
from scheduler.config import load_config
from scheduler.config.defaults import DEFAULT_PLUGINS
from scheduler.config.gates import DEFAULT_GATES, parse_feature_gates
from scheduler.dra.features import Features

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
CONFIGURATIONS = [
    (page.name, block)
    for page in PAGES
    for block in _BLOCK.findall(page.read_text())
    if "KubeSchedulerConfiguration" in block
]


def test_there_are_configurations_to_check() -> None:
    """README and docs/configuration.md each show one."""
    assert {"README.md", "configuration.md"} <= {page for page, _ in CONFIGURATIONS}


@pytest.mark.parametrize(("page", "text"), CONFIGURATIONS)
def test_every_printed_configuration_loads(page: str, text: str) -> None:
    """A configuration that is copied from a page is accepted without a warning."""
    assert load_config(text).warnings == ()


def test_the_printed_plugin_list_is_the_real_one() -> None:
    """docs/configuration.md prints the default list in its order, with its weights."""
    text = re.sub(r"\s+", " ", (ROOT / "docs/configuration.md").read_text())
    shown = ", ".join(f"{ref.name} {ref.weight}" if ref.weight else ref.name for ref in DEFAULT_PLUGINS.enabled)
    assert f"with weights: {shown}." in text


def test_every_flag_is_documented() -> None:
    """docs/configuration.md names each flag of `dra-scheduler run`."""
    text = (ROOT / "docs/configuration.md").read_text()
    election = re.search(r"--leader-elect-\{(.*?)\}", text)
    assert election is not None
    named = {f"--leader-elect-{name}" for name in election[1].split(",")} | set(re.findall(r"`(--?[a-z0-9-]+)`", text))
    parser = Parser(prog="run")
    add_run_arguments(parser)
    flags = {action.option_strings[0] for action in parser._actions} - {"-h"}
    assert flags == {name for name in named if name != "--v"}


def test_the_printed_answer_of_whatif_is_the_real_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/whatif.md prints lines of one answer in their order; wherever some are left out stands an ellipsis."""
    sample = re.search(
        r"```\n\$ dra-scheduler (whatif .*?)\n(.*?)```", (ROOT / "docs/whatif.md").read_text(), re.DOTALL
    )
    assert sample is not None
    monkeypatch.chdir(ROOT)
    main(sample[1].split())
    told = capsys.readouterr().out
    pattern = "".join(r"(?:.*\n)+?" if line == "…" else re.escape(line) + r"\n" for line in sample[2].splitlines())
    assert re.fullmatch(pattern, told), told


def test_the_plug_in_is_installed_without_the_tools_of_the_developers() -> None:
    """docs/install.md uses the lock file of what ships, in a folder that exists by then."""
    text = (ROOT / "docs/install.md").read_text().split("## On your own machine")[1].split("\n## ")[0]
    block = re.findall(r"```\n(.*?)```", text, re.DOTALL)[0]
    assert "-r requirements-runtime.lock" in block
    assert block.index("git clone") < block.index("pip install")
    assert block.index("mkdir -p ~/.local/bin") < block.index("ln -s")


def test_every_flag_of_whatif_for_a_running_scheduler_is_documented() -> None:
    """docs/dashboard.md has the table of flags that docs/whatif.md leads to."""
    parser = argparse.ArgumentParser()
    add_server_flags(parser)
    flags = {action.option_strings[0] for action in parser._actions} - {"-h", "--scheduler-namespace"}
    table = (ROOT / "docs/dashboard.md").read_text()
    assert all(f"| `{flag}" in table for flag in flags)
    whatif = (ROOT / "docs/whatif.md").read_text()
    assert "dashboard.md#ask-it-from-a-terminal" in whatif
    own = argparse.ArgumentParser()
    add_arguments(own)
    assert flags <= {option for action in own._actions for option in action.option_strings}


def test_the_gates_that_are_said_to_be_changeable_are() -> None:
    """Each gate named at the end of docs/configuration.md may be set to the other value, and the allocator knows it."""
    sentence = (ROOT / "docs/configuration.md").read_text().split("Gates that may be changed:")[1]
    gates = re.findall(r"\bDRA\w+", sentence)
    assert len(gates) == 10
    for gate in gates:
        other = not DEFAULT_GATES[gate]
        assert parse_feature_gates(f"{gate}={str(other).lower()}") == {gate: other}
        assert Features.from_gates({gate: other}) != Features()

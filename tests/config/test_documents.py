"""What README and docs print is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scheduler.cli.options import Parser
from scheduler.cli.run_options import add_run_arguments
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


def test_the_gates_that_are_said_to_be_changeable_are() -> None:
    """Each gate named at the end of docs/configuration.md may be set to the other value, and the allocator knows it."""
    sentence = (ROOT / "docs/configuration.md").read_text().split("Gates that may be changed:")[1]
    gates = re.findall(r"\bDRA\w+", sentence)
    assert len(gates) == 10
    for gate in gates:
        other = not DEFAULT_GATES[gate]
        assert parse_feature_gates(f"{gate}={str(other).lower()}") == {gate: other}
        assert Features.from_gates({gate: other}) != Features()

"""``whatif`` decides as a running scheduler is set up, and reads the cluster as whoever asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from scheduler.config import load_config
from scheduler.config.written import document
from scheduler.edge.auth import Authorizer
from scheduler.edge.certificates import ServingCertificate
from scheduler.edge.http import HealthServer
from scheduler.edge.metrics import Metrics
from scheduler.edge.pages import DebugPages
from tests.app.asker import MINE, Asker, asker
from tests.app.objects import claim, pod
from tests.app.test_remote import Command, Kubelet, kubeconfig, scheduler_pod

GOLD = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gold
  plugins:
    score:
      disabled: [{name: ImageLocality}]
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}]}}
"""


@asynccontextmanager
async def configured(ask: Asker, *readable: str, **flags: str) -> AsyncIterator[str]:
    """A scheduler with the profile gold and ``flags``, of which the owner of MINE may get the paths ``readable``."""
    reviewer = ask.world.server.reviewer
    reviewer.authorize = lambda spec: spec.get("nonResourceAttributes", {}).get("path") in readable
    config = load_config(GOLD)
    pages = DebugPages(version="v", emulated="1.37", started_s=0.0, clock=lambda: 0.0, paths=(), flags=flags,
                       set_verbosity=lambda number: None)  # fmt: skip
    server = HealthServer({}, Metrics().render, host="127.0.0.1", port=0, certificate=ServingCertificate(),
                          authorizer=Authorizer(ask.world.client), configuration=lambda: document(config), pages=pages,
                          trust_loopback=False)  # fmt: skip
    try:
        yield f"https://127.0.0.1:{await server.start()}"
    finally:
        await server.stop()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def added(tmp_path: Path) -> str:
    """A manifest with a Pod of the profile gold that needs a device."""
    file = tmp_path / "added.yaml"
    file.write_text(yaml.safe_dump_all([claim("one"), pod("new", claim="one", scheduler="gold")]))
    return str(file)


async def test_decides_with_the_profiles_of_a_running_scheduler(command: Command, tmp_path: Path, added: str) -> None:
    """A Pod of a profile that only the running scheduler has gets a place; the cluster is only read, as the caller."""
    async with asker() as ask, configured(ask, "/configz", "/flagz") as url:
        file = kubeconfig(tmp_path, ask.world.server.url, {"token": MINE})
        own = ("whatif", "--add", added, "--kubeconfig", file)
        code, out, _ = await command(*own)
        assert (code, "not served: it waits for scheduler gold" in out) == (2, True)
        before = len(ask.world.server.audit)
        code, out, error = await command(*own, "--server", url, "--insecure-skip-server-verify")
        assert (code, error) == (0, "")
        assert "added pod default/new\n  is: on node n" in out
        assert "feature gates" not in out
        asked = [entry for entry in list(ask.world.server.audit)[before:] if "explain" in entry.call.user_agent]
        assert {entry.call.verb for entry in asked} <= {"get", "list"}
        assert "pods" in {entry.call.kind for entry in asked}


async def test_takes_the_gates_of_a_running_scheduler(command: Command, tmp_path: Path, added: str) -> None:
    """Without device taints a tainted device is as good as any; gates that are not told are the defaults."""
    taints = [f"--taint-device=gpu.example.com/{node}/gpu-{index}=k:NoSchedule" for node in ("n1", "n2")
              for index in (0, 1)]  # fmt: skip
    async with asker() as ask:
        file = kubeconfig(tmp_path, ask.world.server.url, {"token": MINE})
        flags = {"feature-gates": "DRADeviceTaints=false,DRADeviceTaintRules=false", "namespaces": "team"}
        own = ("whatif", "--add", added, *taints, "--kubeconfig", file, "--insecure-skip-server-verify", "--server")
        async with configured(ask, "/configz", "/flagz", **flags) as url:
            code, out, _ = await command(*own, url)
            assert (code, "note: the scheduler serves Pods of team only" in out) == (0, True)
        async with configured(ask, "/configz", **flags) as url:
            code, out, _ = await command(*own, url)
            assert (code, "note: feature gates are taken for the defaults: /flagz was not told" in out) == (2, True)


async def test_is_told_what_it_may_not_get(command: Command, tmp_path: Path, added: str) -> None:
    """No right to /configz, a token that nobody knows, a server without /configz: one sentence each."""
    async with asker() as ask:
        file = kubeconfig(tmp_path, ask.world.server.url, {"token": MINE})
        own = ("whatif", "--add", added, "--kubeconfig", file, "--insecure-skip-server-verify", "--server")
        async with configured(ask) as url:
            code, _, error = await command(*own, url)
            assert (code, "may not get /configz of the scheduler" in error) == (1, True)
            kubeconfig(tmp_path, ask.world.server.url, {"token": "unknown"})
            code, _, error = await command(*own, url)
            assert (code, "the scheduler does not accept it" in error) == (1, True)
        code, _, error = await command(*own, ask.url)
        assert (code, "tells no configuration (/configz)" in error) == (1, True)


async def test_reaches_the_scheduler_through_its_own_port_forward(command: Command, tmp_path: Path, added: str) -> None:
    """A ready Pod is asked for its settings, the rest comes from the API server."""
    async with asker() as ask, configured(ask, "/configz", "/flagz") as url:
        kubelet = Kubelet(int(url.rpartition(":")[2]), behind=ask.world.server.url)
        kubelet.pods = [scheduler_pod("a")]
        async with kubelet.serving() as api:
            file = kubeconfig(tmp_path, api, {"token": MINE})
            code, out, error = await command("whatif", "--add", added, "--port-forward", "--kubeconfig", file)
            assert (code, error) == (0, "")
            assert "added pod default/new\n  is: on node n" in out
            assert set(kubelet.tokens) == {f"Bearer {MINE}"}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("-f", "dump.yaml"), "-f and a running scheduler exclude each other"),
        (("--config", "c.yaml"), "--config: a running scheduler has its own"),
        (("--feature-gates", "A=true"), "--feature-gates: a running scheduler has its own"),
    ],
)
async def test_takes_settings_from_one_place(command: Command, flags: tuple[str, ...], problem: str) -> None:
    """Refused before anything is asked."""
    for server in (("--server", "https://x"), ("--port-forward",)):
        code, _, error = await command("whatif", *server, *flags)
        assert (code, problem in error) == (1, True)

"""/statusz, /flagz, /debug/flags/v and /metrics/resources."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, convert
from scheduler.edge.certificates import ServingCertificate
from scheduler.edge.http import HealthServer, ping
from scheduler.edge.metrics import Metrics
from scheduler.edge.pages import DebugPages
from scheduler.edge.pod_resources import PodResources
from scheduler.errors import ConfigError

TLS12 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.fixture
def told() -> list[int]:
    return []


@pytest.fixture
async def base(told: list[int]) -> AsyncIterator[str]:
    pages = DebugPages(
        version="1.2.3",
        emulated="1.37",
        started_s=1_800_000_000.0,
        clock=lambda: 1_800_003_723.9,
        paths=("/readyz", "/metrics"),
        flags={"v": "2", "config": "x.yaml"},
        set_verbosity=told.append,
    )
    server = HealthServer(
        {"livez": {"ping": ping}}, Metrics().render, host="127.0.0.1", port=0, pages=pages, debugging=True
    )
    yield f"http://127.0.0.1:{await server.start()}"
    await server.stop()


async def ask(method: str, url: str, accept: str = "*/*", data: str = "") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers={"Accept": accept}, data=data or None) as answer,
    ):
        return answer.status, await answer.text()


async def test_statusz_as_text_and_as_json(base: str) -> None:
    """Upstream's lines, with Python where Go stands."""
    _, text = await ask("GET", base + "/statusz")
    assert "\ndra-scheduler statusz\n" in text
    assert "\nStarted= Fri Jan 15 08:00:00 UTC 2027\nUp= 1 hr 02 min 03 sec\n" in text
    assert text.endswith("Binary version= 1.2.3\nEmulation version= 1.37\nPaths= /metrics /readyz\n")
    _, text = await ask("GET", base + "/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz")
    assert '"uptimeSeconds":3723' in text
    assert '"apiVersion":"config.k8s.io/v1beta1"' in text


async def test_flagz_lists_flags_sorted(base: str) -> None:
    """name:value, one a line."""
    _, text = await ask("GET", base + "/flagz")
    assert text.endswith("\nconfig:x.yaml\nv:2\n")
    _, text = await ask("GET", base + "/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz")
    assert '"flags":{"config":"x.yaml","v":"2"}' in text


async def test_slis_tell_how_checks_went(base: str) -> None:
    """One line per check and endpoint once it was asked."""
    assert "kubernetes_healthcheck{" not in (await ask("GET", base + "/metrics/slis"))[1]
    await ask("GET", base + "/livez")
    await ask("GET", base + "/livez")
    _, text = await ask("GET", base + "/metrics/slis")
    assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in text
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 2.0' in text


async def test_verbosity_is_changed_by_put_only(base: str, told: list[int]) -> None:
    """GET is 406 as upstream, nonsense 400."""
    assert await ask("GET", base + "/debug/flags/v") == (406, "unsupported http method\n")
    assert (await ask("PUT", base + "/debug/flags/v", data="loud"))[0] == 400
    assert await ask("PUT", base + "/debug/flags/v", data="4") == (200, "successfully set klog.logging.verbosity to 4")
    assert told == [4]


def pod(name: str, node: str = "", phase: str = "Pending", **spec: Any) -> Pod:
    item = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"nodeName": node, "schedulerName": "s", "priority": 5, **spec},
        "status": {"phase": phase},
    }
    found: Pod = convert(POD, item)
    return found


def container(requests: Any = None, limits: Any = None) -> Any:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}}


def lines(*pods: Pod, leading: bool = True) -> list[str]:
    text = PodResources(lambda: pods, lambda: leading).render()[0].decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_requests_and_limits_of_a_pod_with_their_units() -> None:
    """The sample lines of kube-scheduler, labels in prometheus-client's order."""
    shown = lines(
        pod("p", "n", containers=[container({"cpu": "100m", "memory": "1Gi", "example.com/x": "2"}, {"cpu": "1500m"})])
    )
    start = 'namespace="ns",node="n",pod="p",priority="5",'
    sorted_labels = {
        line.split("{")[0]
        + "{"
        + ",".join(sorted(line.split("{")[1].split("}")[0].split(",")))
        + line[line.index("}") :]
        for line in shown
    }
    assert sorted_labels == {
        f'kube_pod_resource_limit{{{start}resource="cpu",scheduler="s",unit="cores"}} 1.5',
        f'kube_pod_resource_request{{{start}resource="cpu",scheduler="s",unit="cores"}} 0.1',
        f'kube_pod_resource_request{{{start}resource="memory",scheduler="s",unit="bytes"}} 1.073741824e+09',
        f'kube_pod_resource_request{{{start}resource="example.com/x",scheduler="s",unit="integer"}} 2.0',
    }


def test_ended_pods_zeros_and_standbys_show_nothing() -> None:
    """Only the leader answers; a Pod that ended on a node asks for nothing any more."""
    busy = [container({"cpu": "1"})]
    assert lines(pod("p", "n", "Succeeded", containers=busy)) == []
    assert lines(pod("p", containers=[container({"cpu": "0"})])) == []
    assert lines(pod("p", containers=busy), leading=False) == []
    assert len(lines(pod("p", containers=busy))) == 1


def test_limits_follow_pod_level_and_overhead() -> None:
    """Overhead counts only where there is a limit; pod-level limits replace the containers'."""
    limited = pod("p", containers=[container(limits={"cpu": "1"})], overhead={"cpu": "1", "memory": "1Gi"})
    found = [line for line in lines(limited) if line.startswith("kube_pod_resource_limit")]
    assert [line.split("} ")[1] for line in found] == ["2.0"]
    whole = pod("p", containers=[container(limits={"cpu": "1"})], resources={"limits": {"cpu": "3"}})
    found = [line for line in lines(whole) if line.startswith("kube_pod_resource_limit")]
    assert [line.split("} ")[1] for line in found] == ["3.0"]


def test_cipher_suites_and_versions_reach_the_context() -> None:
    """Named as Go names them; an unknown one is refused by its name."""
    context = ServingCertificate(min_version="VersionTLS13").context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    context = ServingCertificate(cipher_suites=[TLS12, "TLS_AES_128_GCM_SHA256"]).context
    names = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    with pytest.raises(ConfigError, match="TLS_NO_SUCH not supported"):
        ServingCertificate(cipher_suites=["TLS_NO_SUCH"])
    for name in ("TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"):
        assert ServingCertificate(cipher_suites=[name]).context

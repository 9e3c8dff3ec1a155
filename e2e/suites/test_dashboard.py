"""The dashboard and the questions on the real control plane: real rights, a real browser, the commands' own tunnel."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from e2e.api import CLAIMS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, SLICES, Api, Object, Resource
from e2e.browser import Page, browser_page
from e2e.controlplane import ControlPlane
from e2e.kubelet_streams import KubeletStreams
from e2e.objects import claim, exactly, pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.suites.test_devices import CLASS, gpu_cluster
from e2e.suites.test_rights import apply_base, base_config
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
MINE, THEIRS = "mine", "secret-team"
XSS = "<img src=x onerror=alert(1)>"


async def run(*command: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, output and error of a command; no traceback passes."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
    assert b"Traceback" not in error, error.decode()
    return process.returncode or 0, out.decode(), error.decode()


async def ours(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """One of our commands."""
    return await run(sys.executable, "-m", "scheduler.cli.main", *arguments, stdin=stdin)


class Team:
    """A scheduler with the shipped rights; one Pod of another team has a device, one of mine waits."""

    def __init__(self, plane: ControlPlane, api: Api, scheduler: SchedulerProcess, token: str) -> None:
        self.plane, self.api, self.scheduler, self.token = plane, api, scheduler, token

    async def ask(self, path: str, token: str) -> tuple[int, Any]:
        """One question over HTTPS."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.scheduler.url}/questions/v1/{path}", headers=headers, ssl=False) as answer,
        ):
            return answer.status, await answer.json()


async def _create(api: Api, kind: Resource, item: Object, space: str | None = None) -> None:
    if await api.find(kind, item["metadata"]["name"], space) is None:
        await api.create(kind, item, space)


async def _viewer(api: Api) -> None:
    """A ServiceAccount that may see Pods and claims of its own namespace, nothing else."""
    for space in (MINE, THEIRS):
        await _create(api, NAMESPACES, {"metadata": {"name": space}})
    await _create(api, SERVICE_ACCOUNTS, {"metadata": {"name": "viewer"}}, MINE)
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "list"]},
    ]
    await _create(api, ROLES, {"metadata": {"name": "viewer"}, "rules": rules}, MINE)
    binding = {
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": MINE}],
    }
    await _create(api, ROLE_BINDINGS, binding, MINE)


@asynccontextmanager
async def team(plane: ControlPlane, api: Api, folder: Path) -> AsyncIterator[Team]:
    """Everything runs, the waiting Pod has been told."""
    await asyncio.to_thread(apply_base, plane)
    await _viewer(api)
    await gpu_cluster(api, 2, 2)
    await api.create(CLAIMS, claim("secret-claim", exactly(CLASS)), THEIRS)
    await api.create(CLAIMS, claim("much", exactly(CLASS, count=4)), MINE)
    certificate, key = plane.serving_files("dra-scheduler")
    kubeconfig = plane.kubeconfig_for(service_account=("dra-scheduler", "dra-scheduler"))
    config = {key: value for key, value in base_config().items() if key != "leaderElection"}
    scheduler = SchedulerProcess(
        folder,
        kubeconfig,
        config={**config, "clientConnection": {"kubeconfig": str(kubeconfig)}},
        arguments=(
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--audit-file={folder}/audit.sqlite",
        ),
    )
    async with PretendedKubelet(api.session):
        await asyncio.to_thread(scheduler.start_and_wait)
        try:
            await api.create(PODS, pod("secret-pod", claims={"gpu": "secret-claim"}), THEIRS)

            async def bound() -> bool:
                return bool((await api.get(PODS, "secret-pod", THEIRS))["spec"].get("nodeName"))

            await eventually(bound, "the other team's Pod is bound")
            await api.create(PODS, pod("waits", claims={"gpu": "much"}), MINE)

            async def told() -> bool:
                return condition(await api.get(PODS, "waits", MINE)).get("reason") == "Unschedulable"

            await eventually(told, "my Pod is told why it waits")
            token = await asyncio.to_thread(plane.service_account_token, MINE, "viewer")
            yield Team(plane, api, scheduler, token)
            assert scheduler.errors() == []
        finally:
            await asyncio.to_thread(scheduler.stop)


async def test_a_user_with_rights_in_one_namespace(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """RBAC decides what each answer names: over HTTP, by the commands, through a port-forward, and in the browser."""
    async with team(control_plane, clean_cluster, tmp_path) as world:
        await _commands(world, tmp_path)
        await _over_http(world)
        await _port_forward(world, tmp_path)
        await _in_the_browser(world)
        assert world.scheduler.metric("dra_scheduler_questions_total", question="explanation", code="200") >= 3
        assert world.scheduler.metric("dra_scheduler_questions_total", code="403") >= 1

        async def counted() -> bool:
            return world.scheduler.metric("dra_scheduler_inventory_devices", state="used") == 1

        await eventually(counted, "the inventory is to be read as metrics")


async def _commands(world: Team, folder: Path) -> None:
    ca = ("--server", world.scheduler.url, "--server-ca", str(world.plane.ca_file))
    mine = (*ca, "--token-file", "-")
    code, text, error = await ours("explain", "pod/waits", "-n", MINE, *mine, stdin=world.token)
    assert code == 2, error
    assert "1 in use" in text
    assert "claims that you may not list" in text
    for secret in ("secret", "node-0", "node-1"):
        assert secret not in text
    code, _, error = await ours("explain", "pod/secret-pod", "-n", THEIRS, *mine, stdin=world.token)
    assert code == 1
    assert f'cannot get resource "pods" in API group "" in the namespace "{THEIRS}"' in error
    for command in ("inventory", "lint"):
        code, text, error = await ours(command, "-o", "json", *mine, stdin=world.token)
        assert code in (0, 2), error
        assert "secret" not in text, command
        assert "node-" not in text, command
    kubeconfig = ("--kubeconfig", str(world.plane.kubeconfig_for()))
    code, text, error = await ours("explain", "pod/waits", "-n", MINE, "-o", "json", *ca, *kubeconfig)
    assert code == 2, error
    live_code, live, _ = await ours("explain", "pod/waits", "-n", MINE, "-o", "json", *kubeconfig)
    assert (code, json.loads(text)) == (live_code, json.loads(live)), "the running scheduler says what a LIST says"
    assert f"{THEIRS}/secret-claim" in text
    code, _, error = await ours("explain", "pod/waits", "-n", MINE, "--server", world.scheduler.url, *kubeconfig)
    assert (code, "certificate verify failed" in error) == (1, True)
    await _record(world, mine, (*ca, *kubeconfig))


async def _record(world: Team, mine: tuple[str, ...], admin: tuple[str, ...]) -> None:
    """The audit trail, told by the scheduler that writes it: to who may see the subject, other names hidden."""
    code, text, error = await ours("audit", "pod/waits", "-n", MINE, *mine, stdin=world.token)
    assert code == 0, error
    assert "waits: 0/2 nodes are available" in text.replace(", 1 times", "")
    assert [secret for secret in ("secret", "node-0", "node-1") if secret in text] == []
    for what, name in (("pod", "secret-pod"), ("claim", "secret-claim"), ("node", "node-0"), ("device", "gpu-0")):
        code, _, error = await ours("audit", what, name, "-n", THEIRS, *mine, stdin=world.token)
        assert (code, "forbidden" in error) == (1, True), (what, error)
    code, text, error = await ours("audit", "claim/secret-claim", "-n", THEIRS, *admin)
    assert code == 0, error
    assert f"pod {THEIRS}/secret-pod bound to node node-" in text


async def _over_http(world: Team) -> None:
    for token in ("", "nonsense"):
        status, body = await world.ask("map", token)
        assert (status, body["reason"]) == (401, "Unauthorized")
    status, body = await world.ask("pods", world.token)
    assert [one["pod"] for one in body["answer"]["pods"]] == [f"{MINE}/waits"]
    status, body = await world.ask("map", world.plane.admin_token)
    assert [one["node"] for one in body["answer"]["nodes"]] == ["node-0", "node-1"]
    nobody = world.plane.token_of("nobody")
    assert (await world.ask(f"namespaces/{MINE}/pods/waits/explanation", nobody))[0] == 403
    status, body = await world.ask("pods", nobody)
    assert (status, body["answer"]["pods"]) == (200, [])


async def _port_forward(world: Team, folder: Path) -> None:
    """The API server leads the command to the kubelet, and that to the Pod; the caller needs the right to do so."""
    streams = KubeletStreams({"dra-scheduler/scheduler-0": world.scheduler.port}, world.plane.serving_files("kubelet"))
    async with streams.serving() as port:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await world.api.patch(NODES, "node-0", {"status": status}, subresource="status")
        item = pod("scheduler-0", scheduler="nobody", nodeName="node-0")
        item["metadata"]["labels"] = {"app.kubernetes.io/name": "dra-scheduler"}
        item["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        drop = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        item["spec"]["containers"][0]["securityContext"] = drop
        await world.api.create(PODS, item, "dra-scheduler")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await world.api.patch(PODS, "scheduler-0", {"status": ready}, "dra-scheduler", subresource="status")
        try:
            admin = ("--port-forward", "--kubeconfig", str(world.plane.kubeconfig_for()))
            code, text, error = await ours("explain", "pod/waits", "-n", MINE, *admin)
            assert code == 2, error
            assert f"{THEIRS}/secret-claim" in text
            code, text, error = await ours("audit", "pod/secret-pod", "-n", THEIRS, *admin)
            assert (code, "bound to node node-" in text) == (0, True), error
            assert set(streams.asked) == {("dra-scheduler/scheduler-0", "10259")}
            await _dashboard_command(*admin[1:])
            viewer = world.plane.kubeconfig_for(service_account=(MINE, "viewer"))
            code, _, error = await ours(
                "explain", "pod/waits", "-n", MINE, "--port-forward", "--kubeconfig", str(viewer)
            )
            assert (code, "forbidden" in error) == (1, True), error
        finally:
            await world.api.delete(PODS, "scheduler-0", "dra-scheduler", missing_ok=True)


async def _dashboard_command(*arguments: str) -> None:
    """``dra-scheduler dashboard``: through the tunnel into the browser, with the kubeconfig's token."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler.cli.main", "dashboard", *arguments), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        first = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        assert first.startswith("Open http://127.0.0.1:"), first
        async with browser_page(f"{first.split()[1]}#/pod/{MINE}/waits") as page:
            await page.sees("Pod mine/waits", f"{THEIRS}/secret-claim")
            assert page.troubles == []
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        assert await process.wait() == 0


async def _in_the_browser(world: Team) -> None:
    """The page asks for a token, shows what its owner may list, and hides the rest."""
    async with browser_page(f"{world.scheduler.url}/dashboard/#/waiting") as page:
        await page.sees("Who are you?")
        assert (await page.focused()) == "input token"
        await page.write("nonsense")
        await page.key("Enter")
        await page.sees("This token is not accepted.")
        await page.write(world.token)
        await page.key("Enter")
        await page.sees(f"{MINE}/waits", f"system:serviceaccount:{MINE}:viewer")
        await page.click(".scroll a")
        await page.sees("Pod mine/waits", "claims that you may not list")
        await page.sees("What happened so far", "waits")
        assert "secret" not in await page.text(), "the Pod's story"
        for view in ("map", "inventory", "lint", "waiting"):
            await page.click(f'#views a[href="#/{view}"]')
            await page.true(f"document.querySelector('#views a[aria-current]')?.hash === '#/{view}'")
            await page.true("document.getElementById('status').dataset.state === 'shown'")
            assert "secret" not in await page.text(), view
        await page.run(f"location.hash = '#/pod/{THEIRS}/secret-pod'")
        await page.sees("is forbidden: User")
        assert page.troubles == []
        await page.click("#leave")
        await page.sees("Who are you?")
        assert MINE not in await page.text()


async def test_hostile_names_are_shown_and_never_run(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Markup in attribute values, taints' values and scheduler names stays text in every view."""
    api = clean_cluster
    await gpu_cluster(api, 1, 1)
    (item,) = await api.list(SLICES)
    item["spec"]["devices"][0]["attributes"] = {"model": {"string": XSS}, "link": {"string": "javascript:alert(1)"}}
    item["spec"]["devices"].append(
        {"name": "gpu-x", "attributes": {"model": {"string": '"><script>alert(2)</script>'}}}
    )
    await api.update(SLICES, item)
    selector = f"device.attributes[\"{CLASS}\"].model == '{XSS}x'"
    await api.create(CLAIMS, claim("odd", exactly(CLASS, selector)), "default")
    await api.create(PODS, pod("odd", claims={"gpu": "odd"}), "default")
    audited = f"--audit-file={tmp_path}/audit.sqlite"
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for(), arguments=[audited]) as scheduler:

        async def told() -> bool:
            return condition(await api.get(PODS, "odd", "default")).get("reason") == "Unschedulable"

        await eventually(told, "the Pod is told why it waits")
        async with browser_page(f"{scheduler.url}/dashboard/#/map") as page:
            await page.sees("Who are you?")
            await page.write(control_plane.admin_token)
            await page.key("Enter")
            await page.sees("node-0")
            await page.click("button.device")
            await page.sees(XSS)
            for view, piece in (
                ("inventory", XSS),
                ("lint", "odd"),
                ("waiting", "default/odd"),
                ("pod/default/odd", XSS),
            ):
                await page.run(f"location.hash = '#/{view}'")
                await page.sees(piece)
            await page.sees("What happened so far")
            assert await page.run("document.querySelectorAll('main img, main script, a[href^=javascript]').length") == 0
            await page.run(
                "location.hash = '#/pod/' + encodeURIComponent('<b>x</b>') + '/' + encodeURIComponent('../../me')"
            )
            await page.sees("<b>x</b>", "not found")
            assert page.troubles == []


# the demo's dashboard: needs a browser, and no control plane


@asynccontextmanager
async def demo() -> AsyncIterator[str]:
    """The URL of a demo that runs; its story has been told."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler.cli.main", "demo", "--dashboard"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        url, told = "", []
        async with asyncio.timeout(90):
            async for line in process.stdout:
                told.append(line.decode())
                url = url or "".join(re.findall(r"http://127\.0\.0\.1:\d+/dashboard/", told[-1]))
                if "Ctrl-C ends it" in told[-1]:
                    break
        assert url, "".join(told)
        yield url
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@pytest.fixture(name="pictures")
def _pictures(tmp_path: Path) -> Path:
    """Where pictures go: $PICTURES (make pictures), else a temporary folder."""
    folder = Path(os.environ.get("PICTURES") or tmp_path / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def test_the_demos_dashboard(pictures: Path) -> None:
    """Every view by clicks and by keys, told to screen readers, without a request to anywhere else."""
    async with demo() as url, browser_page(url) as page:
        await page.sees("a100-1", "npu-1", "As of")
        await page.click('button[data-device="gpu.nvidia.example/a100-1/gpu-0"]')
        await page.sees("claim demo/shared-a100 (pod demo/reader-1, demo/reader-2)")
        await page.picture(pictures / "map.png", 600)
        await _by_keys(page)
        await _told_to_screen_readers(page)
        await page.click('#views a[href="#/waiting"]')
        await page.sees("demo/too-big", "cannot allocate all claims")
        await page.picture(pictures / "waiting.png", 420)
        await page.click(".scroll a")
        await page.sees(
            "What would help", "ask for 2 instead of 4 devices", "match of resource.kubernetes.io/pcieRoot broken"
        )
        await page.picture(pictures / "pod.png", 800)
        await page.click("details summary")
        await page.true("document.querySelector('details').open === false")
        await page.click('#views a[href="#/inventory"]')
        await page.sees("gpu.nvidia.example H100", "Devices held by namespace")
        await page.picture(pictures / "inventory.png", 800)
        await page.click('a[href="#/inventory?by=node"]')
        await page.sees("Devices by node", "h100-2")
        await page.click('#views a[href="#/lint"]')
        await page.sees("error: ResourceClaim demo/too-big-devices", "Fix")
        await page.picture(pictures / "lint.png", 500)
        await _narrow(page, pictures)
        assert page.troubles == []
        assert {url.split("/")[2] for url in page.requests} == {url.split("/")[2]}, "nothing is asked of anybody else"
    assert all(
        (pictures / f"{name}.png").stat().st_size > 5_000 for name in ("map", "waiting", "pod", "inventory", "lint")
    )


async def _by_keys(page: Page) -> None:
    """The skip link comes first, the devices are one stop among which arrows lead, a Pod is found by typing."""
    await page.run("document.activeElement.blur()")
    await page.run("location.hash = '#/lint'")
    await page.sees("Fix")
    await page.run("location.hash = '#/map'")
    await page.sees("Choose a device")
    assert (await page.focused()) == "h1 Map", "going to a view leads to its heading"
    await page.key("Tab")
    assert (await page.focused()) == "input match"
    await page.key("Tab")
    await page.key("Tab")
    first = await page.focused()
    assert first.startswith("button a100-1/gpu-0, A100, used"), first
    await page.sees("given to a claim as a whole")
    await page.key("ArrowRight")
    assert (await page.focused()).startswith("button a100-1/gpu-1")
    await page.key("ArrowDown")
    assert (await page.focused()).startswith("button h100-1/gpu-1")
    await page.key("End")
    assert (await page.focused()).startswith("button npu-1/npu-1")
    assert await page.run("document.querySelectorAll('button.device[tabindex=\"0\"]').length") == 1
    outline = await page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus can be seen"
    await page.run("document.getElementById('find-pod').focus()")
    await page.write("demo/too-big")
    await page.key("Enter")
    await page.sees("What would help")
    await page.run("location.hash = '#/map'")
    await page.sees("Choose a device")


async def _told_to_screen_readers(page: Page) -> None:
    """Landmarks, one first heading, a name for everything that can be used; colours are never the only word."""
    spoken = await page.spoken()
    roles = [role for role, _ in spoken]
    for landmark in ("banner", "navigation", "main", "contentinfo", "search"):
        assert landmark in roles, landmark
    nameless = [role for role, name in spoken if role in ("button", "link", "textbox", "region", "image") and not name]
    assert nameless == []
    assert await page.run("document.querySelectorAll('h1').length") == 1
    assert await page.run("document.documentElement.lang") == "en"
    devices = [name for role, name in spoken if role == "button" and "/gpu-" in name]
    assert len(devices) == 12
    assert all(name.rpartition(", ")[2] in ("free", "used") for name in devices)
    signs = await page.run("[...document.querySelectorAll('.node .device')].map(e => [e.className, e.innerText])")
    assert {(kind.split()[-1], sign) for kind, sign in signs} == {("s-free", "○"), ("s-used", "●")}


async def _narrow(page: Page, pictures: Path) -> None:
    """On a narrow screen (or at 400 % zoom) nothing has to be scrolled sideways."""
    await page.size(320, 800)
    titles = {"map": "Map", "waiting": "Waiting", "inventory": "Inventory", "lint": "Lint", "pod/demo/too-big": "Pod"}
    for view, title in titles.items():
        await page.run(f"location.hash = '#/{view}'")
        await page.true(f"document.title.startsWith('{title}')")
        await page.true("document.getElementById('status').dataset.state === 'shown'")
        wide = await page.run("document.documentElement.scrollWidth")
        assert wide <= 320, (view, wide)
    await page.size(1280, 800)


async def test_the_page_keeps_what_the_reader_did() -> None:
    """A refresh that brings nothing new folds nothing open, takes no focus away; paused, nothing is asked at all."""
    async with demo() as url, browser_page(f"{url}#/pod/demo/too-big") as page:
        await page.sees("What would help")
        await page.click("main section:nth-of-type(3) details summary")
        await page.true("!document.querySelector('main section:nth-of-type(3) details').open")
        asked = len(page.requests)

        async def asked_again() -> bool:
            return len(page.requests) > asked + 2

        await eventually(asked_again, "the page is refreshed", timeout_s=40)
        assert await page.run("!document.querySelector('main section:nth-of-type(3) details').open")
        await page.click("#pause")
        await page.true("document.getElementById('pause').getAttribute('aria-pressed') === 'true'")

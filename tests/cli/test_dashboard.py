"""``dashboard`` as a user ends it."""

from __future__ import annotations

import asyncio
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from scheduler.cli.main import main
from scheduler.embedded.server import EmbeddedServer


async def me(request: web.Request) -> web.Response:
    """What a scheduler answers first."""
    return web.json_response({"now": 1.0, "answer": {}})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_is_the_way_to_end_it(number: signal.Signals) -> None:
    """Once the address is printed, exit code 0."""
    app = web.Application()
    app.router.add_get("/questions/v1/me", me)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    command = ("-m", "scheduler.cli.main", "dashboard", "--server", url)
    child = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert b"Open http://127.0.0.1:" in await asyncio.wait_for(child.stdout.readline(), 60)
        child.send_signal(number)
        assert await asyncio.wait_for(child.wait(), 60) == 0
    finally:
        if child.returncode is None:
            child.kill()
        await runner.cleanup()


@pytest.mark.parametrize("asked", [("dashboard",), ("explain", "pod/x", "--port-forward")])
def test_the_demos_kubeconfig_has_no_credentials(
    asked: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said instead of a word about tokens and certificates, with what to do: its scheduler asks for no token."""
    server = EmbeddedServer()
    server.url = "http://127.0.0.1:1"
    kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))
    assert main([*asked, "--kubeconfig", kubeconfig]) == 1
    error = capsys.readouterr().err
    assert "it has no credentials, as the demo's has none" in error
    assert "give --server with the address of the dashboard that the demo printed" in error


@pytest.mark.slow
async def test_a_scheduler_that_does_not_answer_can_be_given_up() -> None:
    """Ctrl-C ends the waiting at once; there is no address yet, so it is an interruption."""
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        command = ("-m", "scheduler.cli.main", "dashboard", "--server", url)
        # A shell that runs the tests in the background lets them, and their children, ignore Ctrl-C.
        heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        child = await asyncio.create_subprocess_exec(sys.executable, *command, preexec_fn=heed)
        try:
            await asyncio.wait_for(asked.wait(), 60)
            child.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(child.wait(), 60) == 130
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()

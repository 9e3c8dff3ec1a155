"""Calls of extenders whose URL holds a user and a password: they authenticate and are told without it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from scheduler.api.kinds import POD, convert
from scheduler.config import load_config
from scheduler.edge.binder import Binder
from scheduler.edge.client import ApiClient
from scheduler.edge.extenders import ExtenderClient
from scheduler.framework.extender_calls import CallExtenders, ExtenderCall, bind_call

from .scripted import ScriptedServer, reply

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SECRET = "s3cr3t-\u00e9"
POD_P = convert(POD, {"metadata": {"name": "p", "namespace": "d", "uid": "u"}})


@asynccontextmanager
async def asking(url: str, **fields: object) -> AsyncIterator[tuple[ExtenderClient, ExtenderCall, list[str]]]:
    """A client, the call that has an extender with this URL bind a Pod, and what is told of trouble."""
    entry = {"urlPrefix": url, "bindVerb": "bind", **fields}
    config = load_config(HEADER + "extenders: " + json.dumps([entry], ensure_ascii=False))
    told: list[str] = []
    # A Binding is asked for with names alone: nothing is read for it.
    client = ExtenderClient(config.extenders, cast("ApiClient", None), cast("Binder", None), on_trouble=told.append)
    try:
        yield client, bind_call(config.extenders[0], POD_P, "n"), told
    finally:
        await client.close()


def with_user(server: ScriptedServer) -> str:
    """The server's URL with a user and the password."""
    return server.url.replace("://", f"://user:{SECRET}@") + "/sched/"


async def test_user_and_password_authenticate(server: ScriptedServer) -> None:
    """As Go sends them: basic authentication in UTF-8."""
    server.answers(reply({}))
    async with asking(with_user(server)) as (client, call, _):
        await client.make(CallExtenders((call,)))
    assert call.failure is None
    assert server.requests[0].path == "/sched/bind"
    pair = base64.b64encode(f"user:{SECRET}".encode()).decode()
    assert server.requests[0].headers["Authorization"] == f"Basic {pair}"


async def test_they_authenticate_whatever_netrc_says(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Go does not read it."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password another\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.answers(reply({}))
    async with asking(with_user(server)) as (client, call, _):
        await client.make(CallExtenders((call,)))
    assert base64.b64decode(server.requests[0].headers["Authorization"].split()[1]).decode() == f"user:{SECRET}"


async def test_no_failure_shows_the_password(server: ScriptedServer) -> None:
    """Refused, not there, cut off, no URL at all: the text names user and host."""
    shown = server.url.replace("://", "://user:***@")
    server.answers(reply({}, 500), reply([]))
    bad = [
        with_user(server),
        "ftp://user:s3cr3t-x@host",
        "user:s3cr3t-x@host",
        "http://user:s3cr3t-x@[::",
        "http://user:s3/cr3t-x@h",
    ]
    texts = []
    for url in bad:
        async with asking(url, ignorable=True) as (client, call, told):
            await client.make(CallExtenders((call,)))
            assert call.failure is not None
            texts += [call.failure, *told]
    assert texts[0] == f"failed bind with extender at URL {shown}/sched/bind, code 500"
    await server.stop()
    async with asking(with_user(server)) as (client, call, _):
        await client.make(CallExtenders((call,)))
    texts.append(str(call.failure))
    assert texts[-1].startswith(f'Post "{shown}/sched/bind": ')
    assert len(texts) == 2 * len(bad) + 1
    assert not [text for text in texts if "cr3t" in text]

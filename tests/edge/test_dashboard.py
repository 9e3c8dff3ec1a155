"""The dashboard's files: served to everybody, with a policy that lets nothing else in, and without any data."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import aiohttp
import pytest

from scheduler.edge.dashboard import HEADERS, Dashboard, read_assets
from scheduler.edge.local_server import LocalServer

ASSETS = read_assets()
FORBIDDEN = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "javascript:"),
    *("localStorage", "sessionStorage", "document.cookie"),
)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    server = LocalServer((Dashboard(ASSETS).mount,))
    yield await server.start()
    await server.stop()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_every_file_is_served_with_its_type_and_the_policy(url: str, session: aiohttp.ClientSession) -> None:
    """The root leads to the page; each file has its media type and every protecting header."""
    async with session.get(url) as answer:
        assert answer.url.path == "/dashboard/"
        assert "<title>dra-scheduler</title>" in await answer.text()
    types = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for name in ASSETS:
        async with session.get(f"{url}/dashboard/{name}") as answer:
            assert (answer.status, answer.content_type) == (200, types[name.rpartition(".")[2]])
            assert {key: answer.headers[key] for key in HEADERS} == HEADERS
    assert "'unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path", ["none.js", "../http.py", "..%2fhttp.py", "%2e%2e/http.py", "static/app.js", "app.js/"]
)
async def test_nothing_else_is_served(url: str, session: aiohttp.ClientSession, path: str) -> None:
    """Only names that were read at start are found; no path leads to another file."""
    async with session.get(f"{url}/dashboard/{path}", allow_redirects=False) as answer:
        assert answer.status == 404
        assert b"import" not in await answer.read()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_it_is_read_only(url: str, session: aiohttp.ClientSession, method: str) -> None:
    """Nothing can be sent to it."""
    async with session.request(method, f"{url}/dashboard/") as answer:
        assert answer.status == 405


async def test_another_name_for_loopback_is_refused(url: str, session: aiohttp.ClientSession) -> None:
    """A site whose name resolves to 127.0.0.1 gets nothing from a server on this machine."""
    refused = ("evil.example", "evil.example:80", "127.0.0.1.evil.example")
    for host, status in (*((name, 421) for name in refused), ("localhost:1", 200), ("127.0.0.1", 200)):
        async with session.get(f"{url}/dashboard/", headers={"Host": host}) as answer:
            assert answer.status == status, host


async def test_the_page_is_told_whether_to_ask_for_a_token(session: aiohttp.ClientSession) -> None:
    """Only the demo does without."""
    for open_to_all, asks in ((False, True), (True, False)):
        server = LocalServer((Dashboard(ASSETS, open_to_all=open_to_all).mount,))
        async with session.get(f"{await server.start()}/dashboard/settings.json") as answer:
            assert await answer.json() == {"token": asks}
        await server.stop()


def test_the_page_loads_nothing_from_elsewhere() -> None:
    """No file names another server, runs inline script or style, or makes markup out of text."""
    for name, body in ASSETS.items():
        text = body.decode()
        urls = re.findall(r"https?://[^\s\"'<>)]+", text)
        assert [url for url in urls if not url.startswith("http://www.w3.org/")] == [], name
        for forbidden in FORBIDDEN:
            assert forbidden not in text, (name, forbidden)
    page = ASSETS["index.html"].decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"\son\w+=|style=", page)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_can_be_read() -> None:
    """Text has a contrast of 4.5 to what it stands on, in the light and in the dark palette (WCAG 2.2, AA)."""
    text = ASSETS["style.css"].decode()
    blocks = re.findall(r":root \{(.*?)\}", text, re.S)
    palettes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert len(palettes) == 2
    for colours in palettes:
        for ground in ("page", "panel"):
            for ink in ("text", "faint", "link", "bad", "good", "warn"):
                assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for state in ("free", "used", "shared", "tainted", "blocked"):
            assert _contrast(colours["on"], colours[state]) >= 4.5, state
        assert _contrast(colours["unseen"], colours["page"]) >= 4.5
        assert _contrast(colours["on"], colours["link"]) >= 4.5

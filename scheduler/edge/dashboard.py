"""Serves the dashboard's pages: files of this package, the same for everybody, without any data of the cluster.

The page asks ``edge.questions`` for its data with the token that its reader enters, so the files need no rights. The
policy lets the page load nothing from elsewhere, run no inline script and send nothing anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import msgspec
from aiohttp import web

PATH = "/dashboard/"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A new version's page must not run with an old version's script.
    "Cache-Control": "no-cache",
}
_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}


def read_assets() -> dict[str, bytes]:
    """Name → content of every file of the dashboard; read once, at start."""
    found: dict[str, bytes] = {}
    for item in files("scheduler.edge").joinpath("static").iterdir():
        if item.name.rpartition(".")[2] in _TYPES:
            found[item.name] = item.read_bytes()
    return found


class Dashboard:
    """``assets``: what ``read_assets`` found. ``open_to_all``: the page asks for no token (the demo)."""

    def __init__(self, assets: Mapping[str, bytes], *, open_to_all: bool = False) -> None:
        self._assets = dict(assets)
        self._settings = msgspec.json.encode({"token": not open_to_all})

    def mount(self, app: web.Application) -> None:
        """Add the routes; the root leads to the dashboard."""
        app.router.add_get("/", self._root)
        app.router.add_get("/dashboard", self._root)
        app.router.add_get(PATH + "{name:.*}", self._serve)

    async def _root(self, request: web.Request) -> web.Response:
        return web.Response(status=302, headers={**HEADERS, "Location": PATH})

    async def _serve(self, request: web.Request) -> web.Response:
        name = request.match_info["name"] or "index.html"
        if name == "settings.json":
            return _file(self._settings, "application/json")
        body = self._assets.get(name)
        if body is None:
            return web.Response(status=404, text="404 page not found\n", headers=HEADERS)
        return _file(body, _TYPES[name.rpartition(".")[2]])


def _file(body: bytes, media: str) -> web.Response:
    answer = web.Response(body=body, headers=HEADERS)
    answer.content_type = media
    answer.charset = "utf-8"
    return answer

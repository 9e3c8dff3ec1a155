"""The pages for people: /statusz, /flagz and /debug/flags/v.

Source: kube-scheduler 1.37, its own answers (spec 11.4).
"""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Mapping, Sequence

import msgspec
from aiohttp import web

COMPONENT = "dra-scheduler"
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)


class DebugPages:
    """``started_s``: wall-clock seconds of the start; ``clock`` the same now. ``paths``: what the port serves.

    ``flags``: name → value as text. ``set_verbosity`` is told the new -v.
    """

    def __init__(
        self,
        *,
        version: str,
        emulated: str,
        started_s: float,
        clock: Callable[[], float],
        paths: Sequence[str],
        flags: Mapping[str, str],
        set_verbosity: Callable[[int], None],
    ) -> None:
        self._version, self._emulated = version, emulated
        self._started_s, self._clock = started_s, clock
        self._paths, self._flags, self._set_verbosity = sorted(paths), flags, set_verbosity

    def statusz(self, request: web.Request) -> web.Response:
        """Start, age and version, as text or as config.k8s.io Statusz."""
        started = datetime.datetime.fromtimestamp(self._started_s, datetime.UTC)
        up_s = int(self._clock() - self._started_s)
        kind = _asked_kind(request, "Statusz")
        if kind is not None:
            body = {
                "kind": "Statusz",
                "apiVersion": f"config.k8s.io/{kind}",
                "metadata": {"name": COMPONENT},
                "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "uptimeSeconds": up_s,
                "goVersion": f"python{platform.python_version()}",
                "binaryVersion": self._version,
                "emulationVersion": self._emulated,
                "paths": self._paths,
            }
            return _json(body, kind, "Statusz")
        hours, minutes, seconds = up_s // 3600, up_s // 60 % 60, up_s % 60
        lines = [
            "",
            f"Started= {started:%a %b %d %H:%M:%S} UTC {started:%Y}",
            f"Up= {hours} hr {minutes:02} min {seconds:02} sec",
            f"Python version= {platform.python_version()}",
            f"Binary version= {self._version}",
            f"Emulation version= {self._emulated}",
            f"Paths= {' '.join(self._paths)}",
        ]
        return _text("statusz", lines)

    def flagz(self, request: web.Request) -> web.Response:
        """The flags the process was started with."""
        kind = _asked_kind(request, "Flagz")
        if kind is not None:
            body = {
                "kind": "Flagz",
                "apiVersion": f"config.k8s.io/{kind}",
                "metadata": {"name": COMPONENT},
                "flags": dict(sorted(self._flags.items())),
            }
            return _json(body, kind, "Flagz")
        return _text("flagz", [f"{name}:{value}" for name, value in sorted(self._flags.items())])

    async def verbosity(self, request: web.Request) -> web.Response:
        """PUT of a number changes -v while running."""
        if request.method != "PUT":
            return web.Response(status=406, text="unsupported http method\n")
        text = (await request.text()).strip()
        if not (text.isascii() and text.isdigit() and len(text) < 4):
            problem = f'failed to set klog.logging verbosity: strconv.ParseInt: parsing "{text[:40]}": invalid syntax'
            return web.Response(status=400, text=problem + "\n")
        self._set_verbosity(int(text))
        return web.Response(text=f"successfully set klog.logging.verbosity to {text}")


def _asked_kind(request: web.Request, kind: str) -> str | None:
    """The version of config.k8s.io in which the caller wants ``kind`` as JSON, None for text."""
    for entry in request.headers.get("Accept", "").split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media == "application/json" and given.get("as") == kind and given.get("g") == "config.k8s.io":
            return given.get("v", "v1beta1")
    return None


def _json(body: object, version: str, kind: str) -> web.Response:
    content_type = f"application/json;g=config.k8s.io;v={version};as={kind}"
    return web.Response(body=msgspec.json.encode(body), headers={"Content-Type": content_type})


def _text(page: str, lines: Sequence[str]) -> web.Response:
    return web.Response(text="\n".join(["", f"{COMPONENT} {page}", _WARNING, *lines, ""]))

"""Chromium without a window, driven over its own debugging protocol: pages, clicks, keys, pictures, what a screen
reader is told.

Needs Debian's chromium (``make browser`` installs it) or $CHROMIUM; no driver program, no download of a browser.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from e2e.waiting import eventually

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 60.0
# The second half keeps it from looking for anything outside this machine.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-extensions",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)
_KEYS = {"Enter": ("\r", 13), "Tab": ("\t", 9), " ": (" ", 32)}

Json = dict[str, Any]


def find_browser() -> str:
    """The program; skips the test when there is none, fails it when CI=true."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")
    if found:
        return found
    reason = "no Chromium: make browser installs it, $CHROMIUM names one"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Page:
    """One tab. ``troubles``: exceptions, errors on the console and violations of the policy that it met.

    ``requests``: every URL it asked for.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            data = message.json()
            if "id" in data:
                answer = self._answers.pop(data["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(data)
                continue
            self._note(data["method"], data["params"])

    def _note(self, method: str, found: Json) -> None:
        if method == "Runtime.exceptionThrown":
            self.troubles.append(str(found["exceptionDetails"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] == "error":
            # A refused question is an answer like others; the browser logs it all the same.
            if "/questions/" not in found["entry"].get("url", ""):
                self.troubles.append(str(found["entry"]))
        elif method == "Runtime.consoleAPICalled" and found["type"] == "error":
            self.troubles.append(str(found["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.troubles.append(f"a dialog: {found['message']}")

    async def call(self, method: str, **parameters: Any) -> Json:
        """One call of the protocol; raises AssertionError with its error."""
        number = next(self._ids)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        found = await asyncio.wait_for(answer, CALL_TIMEOUT_S)
        assert "error" not in found, f"{method}: {found['error']}"
        result: Json = found["result"]
        return result

    async def open(self, url: str) -> None:
        """Begin; watch for trouble from now on."""
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            await self.call(f"{domain}.enable")
        # Certificates made at start are not known to the browser.
        await self.call("Security.setIgnoreCertificateErrors", ignore=True)
        await self.size(1280, 800)
        await self.call("Page.navigate", url=url)

    async def size(self, width: int, height: int) -> None:
        """The size of the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def text(self) -> str:
        """What is to be read on the page."""
        return str(await self.run("document.body?.innerText ?? ''"))

    async def sees(self, *pieces: str, timeout_s: float = 30.0) -> None:
        """Wait until the page shows all of these."""

        async def shown() -> bool:
            text = await self.text()
            return all(piece in text for piece in pieces)

        try:
            await eventually(shown, f"the page shows {pieces}", timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{await self.text()}\n{self.troubles}") from None

    async def true(self, expression: str, timeout_s: float = 30.0) -> None:
        """Wait until an expression is true."""

        async def holds() -> bool:
            return bool(await self.run(f"!!({expression})"))

        await eventually(holds, expression, timeout_s=timeout_s)

    async def click(self, selector: str) -> None:
        """A click with the mouse in the middle of the first element that the selector finds, once it can be hit."""
        # A link that breaks over lines is wide but not solid: its first piece is what a reader would hit.
        look = (
            f"(() => {{ const e = document.querySelector({selector!r}); if (!e) return null;"
            " e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getClientRects()[0];"
            " const x = b.x + b.width / 2, y = b.y + b.height / 2, hit = document.elementFromPoint(x, y);"
            " return e.contains(hit) ? [x, y] : null; })()"
        )
        places: list[list[float]] = []

        async def can_be_hit() -> bool:
            place = await self.run(look)
            places.append(place or [])
            return bool(place)

        await eventually(can_be_hit, f"{selector} can be clicked", timeout_s=20)
        x, y = places[-1]
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def key(self, name: str, shift: bool = False) -> None:
        """One key, by its name."""
        text, code = _KEYS.get(name, ("", 0))
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                modifiers=8 if shift else 0,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" and name != "Tab" else {}),
            )

    async def write(self, text: str) -> None:
        """Text into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def focused(self) -> str:
        """What has the focus: tag, id or words."""
        return str(
            await self.run(
                "(e => `${e.tagName.toLowerCase()} ${e.id || e.getAttribute('aria-label') || e.innerText}`)"
                "(document.activeElement)"
            )
        )

    async def spoken(self) -> list[tuple[str, str]]:
        """(role, name) of everything a screen reader is told of, in order."""
        found = await self.call("Accessibility.getFullAXTree")
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in found["nodes"]
            if not node.get("ignored") and "role" in node
        ]

    async def picture(self, file: Path, height: int | None = None) -> None:
        """The window as a PNG; with ``height`` only its upper part."""
        clip = {} if height is None else {"clip": {"x": 0, "y": 0, "width": 1280, "height": height, "scale": 1}}
        found = await self.call("Page.captureScreenshot", format="png", **clip)
        await asyncio.to_thread(file.write_bytes, base64.b64decode(found["data"]))

    async def close(self) -> None:
        """Let go of the tab."""
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader
        await self._socket.close()


@asynccontextmanager
async def browser_page(url: str) -> AsyncIterator[Page]:
    """A fresh browser with one page at ``url``; both end with the block."""
    program = find_browser()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            program,
            *FLAGS,
            f"--user-data-dir={folder}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port_file = Path(folder) / "DevToolsActivePort"

            async def started() -> bool:
                return port_file.exists() and port_file.read_text().count("\n") >= 1

            await eventually(started, "the browser listens", timeout_s=START_TIMEOUT_S)
            base = f"http://127.0.0.1:{port_file.read_text().splitlines()[0]}"
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{base}/json/list") as answer:
                    tabs = await answer.json()
                socket_url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(socket_url, max_msg_size=0) as socket:
                    page = Page(socket)
                    try:
                        await page.open(url)
                        yield page
                    finally:
                        await page.close()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)  # its renderers are children in a session of their own
            await process.wait()

"""The pictures of README and docs: the five-minute path from ``make demo`` to the first explained Pod, as it looks.

Run it as ``python -m e2e.pictures docs/pictures``; it needs Chromium and no cluster. Every picture shows what the
commands and pages really print.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from e2e.browser import browser_page

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = "manifests/examples/demo"
_STYLE = (
    "body{margin:0;background:#0d1117;color:#e6edf3}pre{margin:0;padding:14px 18px;font:13.5px/1.42 'DejaVu Sans Mono',"
    "monospace;white-space:pre-wrap;width:1240px;box-sizing:border-box}b{color:#7ab7ff;font-weight:700}"
)


async def _printed(*arguments: str) -> str:
    """What one of our commands prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler.cli.main", *arguments), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    return out.decode()


async def terminal(command: str, text: str, file: Path) -> None:
    """A terminal in which ``command`` printed ``text``."""
    shown = f"<b>$ {html.escape(command)}</b>\n{html.escape(text.rstrip())}"
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as page_file:
        page_file.write(f"<!DOCTYPE html><meta charset=utf-8><style>{_STYLE}</style><pre>{shown}</pre>")
        page_file.flush()
        async with browser_page(f"file://{page_file.name}") as page:
            await page.true("document.readyState === 'complete' && document.querySelector('pre')")
            height = int(await page.run("Math.ceil(document.querySelector('pre').getBoundingClientRect().height)"))
            await page.size(1240, height)
            await page.picture(file)


async def dashboard(folder: Path) -> None:
    """The views of the demo's dashboard."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler.cli.main", "demo", "--dashboard"), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        url = ""
        async with asyncio.timeout(120):
            async for line in process.stdout:
                url = url or "".join(re.findall(r"http://127\.0\.0\.1:\d+/dashboard/", line.decode()))
                if b"Ctrl-C ends it" in line:
                    break
        async with browser_page(url) as page:
            await page.sees("a100-1", "npu-1")
            await page.click('button[data-device="gpu.nvidia.example/a100-1/gpu-0"]')
            await page.sees("claim demo/shared-a100")
            await page.picture(folder / "dashboard-map.png", 560)
            await page.run("location.hash = '#/pod/demo/too-big'")
            await page.sees("What would help")
            await page.picture(folder / "dashboard-pod.png", 640)
            await page.run("location.hash = '#/inventory'")
            await page.sees("Devices held by namespace")
            await page.picture(folder / "dashboard-inventory.png", 760)
            assert page.troubles == [], page.troubles
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def main(folder: Path) -> None:
    """All of them, into ``folder``."""
    told = await _printed("demo")
    table = told[told.rindex("\nafter ") + 1 : told.index("$ dra-scheduler explain")]
    await terminal("make demo", f"{told.splitlines()[0]}\n…\n{table}", folder / "demo.png")
    why = ("explain", "pod/too-big", "-n", "demo", "-f", EXAMPLES)
    await terminal(f"dra-scheduler {' '.join(why)}", await _printed(*why), folder / "explain.png")
    await dashboard(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m e2e.pictures FOLDER")
    os.makedirs(sys.argv[1], exist_ok=True)
    target = Path(sys.argv[1]).resolve()
    asyncio.run(main(target))
    for picture in sorted(target.glob("*.png")):
        print(f"{picture.name}: {picture.stat().st_size // 1024} KiB")

"""``dra-scheduler demo``: a small made-up GPU cluster, its Pods, and why one of them waits. Needs no cluster.

Exit codes: 0 everything was shown and, with --keep or --dashboard, Ctrl-C or SIGTERM ended it; 1 the command failed;
130 Ctrl-C before that, 143 SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.cli.options import Arguments, add_flag, parse_port

if TYPE_CHECKING:
    from scheduler.app.demo import DemoWorld, Row

DATA = Path(__file__).parent / "data"
NAMESPACE = "demo"
NEVER_FITS, WAITS = "too-big", "npu-next"
STEP_S = 0.4
PATIENCE_S = 40.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--keep``, ``--dashboard`` and where the data comes from."""
    add_flag(parser, "keep", default=False, text="leave it running at the end and print a kubeconfig for kubectl")
    text = "leave it running at the end and print the address of its dashboard for a browser"
    add_flag(parser, "dashboard", default=False, text=text)
    parser.add_argument(
        "--port", type=parse_port, default=0, metavar="PORT", help="the dashboard's port (default: any)"
    )
    parser.add_argument("--data", default=str(DATA), metavar="FOLDER", help="YAML files to use instead of our own")


def execute(arguments: Arguments) -> int:
    """0 when every Pod ended as the story says, 1 when one did not in time; a signal before the end of the story gives
    128 and its number. Nothing is left.
    """
    # Imported here: only this command needs the embedded server.
    from scheduler.edge.logging import configure_logging

    objects = _load(Path(arguments.data))
    with tempfile.TemporaryFile("w") as quiet:
        configure_logging("text", stream=quiet)
        caught: list[int] = []
        try:
            return asyncio.run(_demo(objects, arguments, caught))
        except asyncio.CancelledError:
            return 128 + caught[0]


def _load(folder: Path) -> list[dict[str, Any]]:
    import yaml

    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise OSError(f"no YAML files in {folder}")
    return [item for file in files for item in yaml.safe_load_all(file.read_text(encoding="utf-8")) if item]


async def _demo(objects: list[dict[str, Any]], arguments: Arguments, caught: list[int]) -> int:
    from scheduler.app.demo import demo_world

    task = asyncio.current_task()
    assert task is not None
    running = task

    def end(number: int) -> None:
        caught.append(number)
        running.cancel()

    # Both by hand: a process started in the background inherits SIGINT as ignored, and Ctrl-C would do nothing.
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    pods = [item for item in objects if item["kind"] == "Pod"]
    others = [item for item in objects if item["kind"] != "Pod"]
    count = {kind: sum(item["kind"] == kind for item in objects) for kind in ("Node", "ResourceSlice", "Pod")}
    print(
        f"A cluster of {count['Node']} nodes and {count['ResourceSlice']} ResourceSlices, {count['Pod']} Pods.\n",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="dra-scheduler-demo-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        async with demo_world(others, kubeconfig, arguments.port) as world:
            if arguments.dashboard:
                print(f"Watch it in a browser: {world.dashboard}\n", flush=True)
            await world.apply(pods)
            finished = await _watch(world)
            await _explain(world)
            if arguments.keep or arguments.dashboard:
                await _keep(kubeconfig, world.dashboard)
    return 0 if finished else 1


async def _watch(world: DemoWorld) -> bool:
    """Show the table whenever it changes, until only the Pod that never fits waits and the story is over."""
    loop = asyncio.get_running_loop()
    started, shown = loop.time(), ""
    while loop.time() - started < PATIENCE_S:
        rows = await world.rows(NAMESPACE)
        table = _table(rows)
        if table != shown:
            _show(table, loop.time() - started, bool(shown))
            shown = table
        waiting = {row.pod for row in rows if not row.node}
        told = all(row.reason if not row.node else row.phase != "Pending" for row in rows)
        if waiting == {NEVER_FITS} and told:
            return True
        await asyncio.sleep(STEP_S)
    print("This took too long: not every Pod that fits was placed.", file=sys.stderr)
    return False


def _show(table: str, elapsed_s: float, again: bool) -> None:
    """On a terminal the table is redrawn in place, elsewhere printed anew."""
    if again and sys.stdout.isatty():
        print(f"\033[{table.count(chr(10)) + 3}A\033[J", end="")
    print(f"after {elapsed_s:.1f} s\n{table}\n", flush=True)


def _table(rows: Sequence[Row]) -> str:
    cells = [("POD", "PHASE", "NODE", "CLAIM", "DEVICES")]
    cells += [
        (row.pod, row.phase, row.node or "-", ", ".join(row.claims) or "-", ", ".join(row.devices) or "-")
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join(lines)


async def _explain(world: DemoWorld) -> None:
    from scheduler.cli.sources import painter, say
    from scheduler.explain.text import explanation_lines

    for row in await world.rows(NAMESPACE):
        if row.node:
            continue
        print(f"$ dra-scheduler explain pod/{row.pod} -n {NAMESPACE}")
        for line in explanation_lines(await world.why(NAMESPACE, row.pod), time.time(), painter()):
            say(line)
    print(f"\n{WAITS} had to wait for the device of another Pod and was placed by itself when that one finished.")


async def _keep(kubeconfig: Path, dashboard: str) -> None:
    """Go on until a signal: from here on it is the way to end, not an interruption."""
    ended = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    print(f"\nIt goes on running. In a browser: {dashboard}")
    print(f"In another terminal:\n  export KUBECONFIG={kubeconfig}")
    print(f"  kubectl -n {NAMESPACE} get pods,resourceclaims")
    print(f"  {own_command(sys.argv[0])} explain pod/{NEVER_FITS} -n {NAMESPACE}\nCtrl-C ends it.", flush=True)
    await ended.wait()


def own_command(started: str) -> str:
    """How to call us from another terminal and folder; ``started``: the first word of our command line.

    The plain name where the PATH leads to the same file, else where that is.
    """
    path = Path(started)
    if path.name == "kubectl-dra" and _is_found(path):
        return "kubectl dra"
    if path.name in ("dra-scheduler", "kubectl-dra"):
        return path.name if _is_found(path) else shlex.quote(str(path.absolute()))
    return f"{shlex.quote(sys.executable)} -m scheduler.cli.main"


def _is_found(path: Path) -> bool:
    found = shutil.which(path.name)
    return found is not None and path.exists() and Path(found).samefile(path)

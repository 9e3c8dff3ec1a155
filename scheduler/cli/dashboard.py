"""``dra-scheduler dashboard``: the dashboard of a scheduler that runs, on this machine, with your own rights.

Exit codes: 0 Ctrl-C or SIGTERM ended it, 1 the command failed, 130 Ctrl-C before there was an address.
"""

from __future__ import annotations

import argparse
import asyncio
import signal

from scheduler.cli.options import Arguments, parse_port
from scheduler.cli.sources import add_server_flags, remote_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which scheduler, as whom, and on which port."""
    add = parser.add_argument
    add("--port", type=parse_port, default=0, metavar="PORT", help="port on this machine (default: any)")
    add("--kubeconfig", default="", metavar="FILE", help="the cluster, and who you are; default: as kubectl")
    add_server_flags(parser)
    # What the commands about files have; here there are none.
    parser.set_defaults(files=[], config="", feature_gates="")


def execute(arguments: Arguments) -> int:
    """Serve until interrupted; without --server through a port-forward."""
    from scheduler.app.local_dashboard import local_dashboard

    if not arguments.server:
        arguments.port_forward = True
    remote = remote_of(arguments)
    assert remote is not None  # one of the two is given

    async def serve() -> None:
        ended = asyncio.Event()
        async with local_dashboard(remote, arguments.port) as url:
            # Not before: until it is served, a signal is to interrupt whatever takes so long.
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, ended.set)
            print(f"Open {url}\nThe address lets whoever knows it see what you may see. Ctrl-C ends it.", flush=True)
            await ended.wait()

    asyncio.run(serve())
    return 0

"""The entry points ``dra-scheduler`` and ``kubectl dra``: choose the command, report errors.

A command is a module with ``add_arguments(parser)`` and ``execute(arguments) -> exit code``. Only the chosen one is
imported, so that small commands start fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from scheduler import __version__
from scheduler.cli.options import Arguments, Parser, UsageError, go_style
from scheduler.errors import SchedulerError

COMMANDS = {
    "run": "serve Pods: the scheduler itself",
    "demo": "a small made-up GPU cluster, its Pods and why one waits; needs no cluster",
    "explain": "why a Pod waits, device by device, or why it is where it is",
    "lint": "claims, templates and classes against the devices that are published",
    "whatif": "what would be placed where if the cluster were changed",
    "inventory": "which devices there are, used, free or tainted, and what leaks",
    "dashboard": "a running scheduler's dashboard on this machine, with your rights",
    "doctor": "devices given twice, leaked claims, and the commands that heal them",
    "guard": "an admission server that lets no scheduler give a device away twice",
    "audit": "who got which device when, and why, after Pods and claims are gone",
    "replay": "make recorded decisions once more and compare",
    "conformity": "answer conformity cases, one JSON object per line",
    "version": "print the version",
}
"""Command → what it does, in the order of the help. The module is ``scheduler.cli.<command>``."""


def main(argv: Sequence[str] | None = None) -> int:
    """``dra-scheduler``: the exit code; 1 on any error, with the message on standard error."""
    return _run("dra-scheduler", sys.argv[1:] if argv is None else argv)


def kubectl_main(argv: Sequence[str] | None = None) -> int:
    """``kubectl dra``: the same commands under the name of the kubectl plug-in."""
    return _run("kubectl dra", sys.argv[1:] if argv is None else argv)


def _run(program: str, argv: Sequence[str]) -> int:
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command in ("-h", "--help", "help"):
        print(_usage(program))
        return 0
    if command == "--version":
        command = "version"
    if command not in COMMANDS:
        problem = f"unknown command {command!r}" if command else "a command is needed"
        print(f"{program}: {problem}\n\n{_usage(program)}", file=sys.stderr)
        return 1
    try:
        return _execute(f"{program} {command}", command, rest)
    except BrokenPipeError:
        # Whoever read the output has gone (``| head``); what is still buffered must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (SchedulerError, UsageError, OSError) as error:
        from scheduler.cli.sources import printable

        # Errors quote names out of files and clusters; a message of several lines keeps them.
        lines = [printable(line) for line in str(error).split("\n")]
        print(f"{program} {command}: " + "\n".join(lines), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _execute(program: str, command: str, argv: Sequence[str]) -> int:
    module = import_module(f"scheduler.cli.{command}")
    parser = Parser(prog=program, description=COMMANDS[command], epilog=_exit_codes(module.__doc__ or ""))
    module.add_arguments(parser)
    arguments: Arguments = parser.parse_args(go_style(parser, argv))
    return int(module.execute(arguments))


def _exit_codes(text: str) -> str:
    """The paragraph of a command's own description that tells them."""
    told = [part for part in text.split("\n\n") if part.startswith("Exit codes:")]
    return " ".join(told[0].split()) if told else ""


def _usage(program: str) -> str:
    width = max(map(len, COMMANDS))
    lines = [f"{program} {__version__}", "", f"usage: {program} COMMAND [flags]", ""]
    lines += [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    lines += ["", f"{program} COMMAND --help lists the flags of one command."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

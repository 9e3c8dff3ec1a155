"""``dra-scheduler replay FOLDER``: make recorded decisions once more, on what they were made on, and compare.

Exit codes: 0 every decision came out as it was, 2 some did not, 1 the command failed: also when what was asked for is
outside the recording.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from scheduler.cli.options import Arguments, UsageError

if TYPE_CHECKING:
    from scheduler.app.replaying import Replay
    from scheduler.audit.replay import Replayed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The recording, and which decisions."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="what run --record wrote")
    add("--decision", default="", metavar="ID", help="one decision, by the id that audit shows")
    add("--pod", default="", metavar="NAMESPACE/NAME", help="the decisions about one Pod; NAME alone: in -n")
    add("-n", "--namespace", default="default", metavar="NAMESPACE", help="of --pod (default: default)")
    add("-o", "--output", choices=("text", "json", "yaml"), default="text", help="text (default), json or yaml")


def execute(arguments: Arguments) -> int:
    """0 or 2, see above."""
    from scheduler.app.replaying import replay
    from scheduler.cli.sources import painter, write_data

    if arguments.decision and arguments.pod:
        raise UsageError("--decision and --pod exclude each other")
    pod = arguments.pod
    if pod and "/" not in pod:
        pod = f"{arguments.namespace}/{pod}"
    found = replay(arguments.folder, arguments.decision, pod, _progress if sys.stderr.isatty() else lambda text: None)
    refused = [result for result in found.results if result.refused]
    if arguments.output != "text":
        counts = {
            "decisions": len(found.results),
            "equal": sum(result.equal for result in found.results),
            "different": len(found.different),
            "refused": len(refused),
        }
        write_data({**counts, "segments": found.windows, "results": found.results}, arguments.output)
    else:
        _print(found, bool(arguments.decision or pod), painter())
    if found.different:
        return 2
    return 1 if refused and (arguments.decision or pod) else 0


def _progress(text: str) -> None:
    print(f"\rreading {text}", end="", file=sys.stderr, flush=True)


def _print(found: Replay, single: bool, style: Any) -> None:
    from scheduler.cli.sources import say
    from scheduler.explain.text import counted

    for window in found.windows:
        if window.problem:
            say(f"{window.file}: {window.problem.removeprefix(f'recording {window.file}: ')}")
    shown = found.results if single else [result for result in found.results if not result.equal]
    for result in shown:
        for line in _lines(result, style):
            say(line)
    equal = sum(result.equal for result in found.results)
    refused = sum(bool(result.refused) for result in found.results)
    print(
        f"{counted(len(found.results), 'decision')}: {equal} equal, {len(found.different)} different, {refused} refused"
    )


def _lines(result: Replayed, style: Any) -> list[str]:
    head = f"{result.id} {result.pod}"
    if result.refused:
        return [f"{head}: {style('bad', 'cannot be replayed')}: {result.refused}"]
    if result.equal:
        return [f"{head}: {style('good', 'the same')}: {_shown(result.recorded)}{_devices(result.recorded_devices)}"]
    return [
        f"{head}: {style('bad', 'different')}",
        f"  recorded: {_shown(result.recorded)}{_devices(result.recorded_devices)}",
        f"  replayed: {_shown(result.replayed)}{_devices(result.replayed_devices)}",
    ]


def _shown(answer: Any) -> str:
    if isinstance(answer, dict) and answer.get("outcome") == "rejected":
        reasons = ", ".join(f"{count} {reason}" for reason, count in answer["reasons"].items())
        return f"no node of {answer['nodes']}: {answer['message'] or reasons} ({', '.join(answer['plugins'])})"
    if not isinstance(answer, dict) or answer.get("outcome") != "placed":
        return str(answer)
    best = ", ".join(f"{score['node']} {score['total']}" for score in answer.get("scores", {}).get("best", ()))
    scores = f"; scores: {best}" if best else ""
    return f"node {answer['node']}, {answer['feasible']} of {answer['evaluated']} nodes fitted{scores}"


def _devices(devices: Any) -> str:
    if not devices or not isinstance(devices, list):
        return "" if not devices else f"; devices: {devices}"
    return "; devices: " + ", ".join(
        f"{entry['claim']} → {', '.join(device['device'] for device in entry['devices'])}" for entry in devices
    )

"""Reads a recording and replays its decisions: segments from files, states and profiles from their headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from scheduler import __version__
from scheduler.api.core import Pod
from scheduler.app.profiles import build_profiles
from scheduler.audit.replay import Replayed, Replayer
from scheduler.config import load_config
from scheduler.dra.features import Features
from scheduler.edge.journal import Header, JournalError, read_segment, segment_files, segment_name
from scheduler.edge.times import rfc3339
from scheduler.errors import SchedulerError, UserError
from scheduler.explain.text import counted
from scheduler.state.cluster import ClusterState


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """One segment: what can be replayed of it. Times are Unix seconds; ``until`` is the newest decision's."""

    file: str
    run: str
    started: float
    until: float
    decisions: int
    version: str = ""
    problem: str = ""


@dataclass(slots=True)
class Replay:
    """What was replayed, and what the recording holds."""

    results: list[Replayed] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)

    @property
    def different(self) -> list[Replayed]:
        """Decisions that came out otherwise."""
        return [result for result in self.results if not result.equal and not result.refused]


def replay(
    folder: str, decision: str = "", pod: str = "", progress: Callable[[str], None] = lambda text: None
) -> Replay:
    """Replay every decision of a recording, that of one id (of the audit trail), or those about one ``namespace/name``.

    A segment that cannot be read (its process was killed, or its disk full, before its first line was written) is a
    window with a problem. Raises JournalError when the folder holds no recording that can be read, and UserError when
    what was asked for is not in it.
    """
    path = Path(folder)
    if not path.is_dir():
        raise JournalError(f"recording {folder}: there is no such folder")
    files = segment_files(path)
    if not files:
        raise JournalError(f"recording {folder}: there is no segment in it")

    def wanted(name: str, pods: Sequence[Pod]) -> bool:
        if decision:
            return decision.partition(".")[0] == name
        return not pod or any(one.key == pod for one in pods)

    found = Replay()
    unreadable: list[JournalError] = []
    for file in files:
        progress(file.name)
        try:
            _replay_segment(file, wanted, found)
        except JournalError as error:
            unreadable.append(error)
            started, run = segment_name(file)
            found.windows.append(Window(str(file), run, started, started, 0, problem=error.args[0]))
    if len(unreadable) == len(files):
        raise unreadable[0]
    if (decision or pod) and not found.results:
        raise UserError(f"decision {decision}" if decision else f"pod {pod}", "", _refusal(found.windows))
    return found


def _refusal(windows: Sequence[Window]) -> str:
    if not windows:
        return "is outside the recording, which holds nothing"
    count = sum(window.decisions for window in windows)
    start, end = _time(windows[0].started), _time(max(window.until for window in windows))
    problems = [f"{Path(window.file).name}: {window.problem}" for window in windows if window.problem]
    text = f"is outside the recording, which holds {counted(count, 'decision')} from {start} to {end}"
    return f"{text}; {'; '.join(problems)}" if problems else text


def _time(seconds: float) -> str:
    return rfc3339(seconds)


def _replay_segment(file: Path, wanted: Callable[[str, Sequence[Pod]], bool], found: Replay) -> None:
    header, lines = read_segment(file)
    listed = list(lines)
    decisions, until, problem = 0, header.started, ""
    replayer = _replayer(header, wanted)
    replayer.preview(listed)
    results: list[Replayed] = []
    for number, line in enumerate(listed):
        if number < header.snapshot and number + 1 == len(listed):
            problem = "the snapshot at its beginning is incomplete"
        if b'"begin"' in line[:32] or b'"gang"' in line[:32]:
            decisions += 1
        try:
            results += replayer.take(line)
        except SchedulerError as error:
            problem = f"line {number + 2}: {error}; nothing after it can be replayed"
            break
    results += replayer.end()
    if header.version != __version__ and any(not result.equal for result in results):
        problem = problem or f"recorded by version {header.version}, this is {__version__}"
    until = max([until, *(result.now for result in results), replayer.newest])
    found.results += results
    found.windows.append(Window(str(file), header.run, header.started, until, decisions, header.version, problem))


def _replayer(header: Header, wanted: Callable[[str, Sequence[Pod]], bool]) -> Replayer:
    """A state and profiles as the recording process had them."""
    features = Features.from_gates(header.gates)
    config = load_config(yaml.safe_dump(header.config))
    state = ClusterState(features)
    state.served = frozenset(header.namespaces)
    return Replayer(state, build_profiles(config, state, _ids(), features), wanted)


def _ids() -> Callable[[], str]:
    count: Iterator[int] = iter(range(1, 1 << 62))
    return lambda: f"00000000-0000-4000-8000-{next(count):012d}"

"""The flags that commands about a cluster share: where it is read from, and how the answer is shown."""

from __future__ import annotations

import argparse
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.cli.options import Arguments, UsageError, add_flag

if TYPE_CHECKING:
    from scheduler.api.core import Pod
    from scheduler.app.remote import Remote
    from scheduler.app.snapshot import Snapshot
    from scheduler.config import SchedulerConfig

FORMATS = ("text", "json", "yaml")
_STYLES = {"title": "1", "good": "32", "bad": "31", "hint": "36", "faint": "2"}
_MARK = f"\0{os.urandom(8).hex()}:"
"""What ``painter`` puts before a colour; new for each process, so that no object of a cluster can know it."""
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    """``--from`` files, or ``--kubeconfig``; ``--config`` and ``--feature-gates`` of the scheduler; ``-o``."""
    add = parser.add_argument
    add("-f", "--from", dest="files", action="append", default=[], metavar="FILE",
        help="what kubectl get -A -o yaml (or json) wrote, a folder of such files, or - ; may be repeated")  # fmt: skip
    add("--kubeconfig", default="", metavar="FILE", help="without -f: the cluster to read; default: as kubectl")
    add("--config", default="", metavar="FILE", help="the scheduler's KubeSchedulerConfiguration, for its profiles")
    add("--feature-gates", default="", metavar="A=true,B=false", help="the scheduler's feature gates")
    add("-o", "--output", choices=FORMATS, default="text", help="text (default), json or yaml")


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """``--server`` and what goes with it: the answer of a scheduler that runs."""
    add = parser.add_argument
    add("--server", default="", metavar="URL", help="ask the scheduler at this address, as the kubeconfig's user")
    add_flag(parser, "port-forward", default=False, text="ask the scheduler in the cluster through a port-forward")
    add("--scheduler-namespace", default="dra-scheduler", metavar="NAMESPACE",
        help="where its Pods are, for --port-forward (default dra-scheduler)")  # fmt: skip
    add("--token-file", default="", metavar="FILE", help="ask as the owner of this bearer token; - is standard input")
    add("--server-ca", default="", metavar="FILE", help="certificates to verify the scheduler's own with")
    add_flag(parser, "insecure-skip-server-verify", default=False,
             text="take any certificate of --server; whoever answers gets your token")  # fmt: skip


def remote_of(arguments: Arguments) -> Remote | None:
    """Which running scheduler to ask; None: files or the cluster are read instead. Raises UsageError."""
    remote = server_of(arguments)
    if remote is None:
        return None
    for flag, given in (("-f", arguments.files), ("--config", arguments.config)):
        if given:
            raise UsageError(f"{flag} and a running scheduler exclude each other: it answers from what it watches")
    if arguments.feature_gates:
        raise UsageError("--feature-gates: a running scheduler has its own")
    return remote


def server_of(arguments: Arguments) -> Remote | None:
    """What ``add_server_flags`` and ``--kubeconfig`` say, None without a server. Raises UsageError."""
    from scheduler.app.remote import Remote

    if not arguments.server and not arguments.port_forward:
        for flag in ("token_file", "server_ca", "insecure_skip_server_verify"):
            if getattr(arguments, flag):
                raise UsageError(f"--{flag.replace('_', '-')} goes with --server or --port-forward")
        return None
    if arguments.server and arguments.port_forward:
        raise UsageError("--server and --port-forward exclude each other")
    return Remote(
        arguments.server,
        arguments.kubeconfig,
        arguments.scheduler_namespace,
        arguments.token_file,
        arguments.server_ca,
        arguments.insecure_skip_server_verify,
    )


def namespace_of(arguments: Arguments) -> str:
    """``-n``, else ``default`` for files, else the namespace of the kubeconfig's current context."""
    if arguments.namespace or arguments.files:
        return str(arguments.namespace or "default")
    from scheduler.edge.contexts import current_namespace

    return current_namespace(arguments.kubeconfig)


def load_snapshot(arguments: Arguments, documents: Sequence[Any] | None = None) -> Snapshot:
    """The snapshot that the flags mean. Problems of single objects are in it, not raised.

    ``documents``: what the files of ``-f`` hold, when they were read before.
    """
    from scheduler.app.snapshot import from_cluster, from_files, from_items

    if arguments.files and arguments.kubeconfig:
        raise UsageError("-f and --kubeconfig exclude each other")
    config, gates = _settings(arguments)
    if documents is not None:
        return from_items(documents, config, gates, time.time())
    if arguments.files:
        return from_files(arguments.files, config, gates)
    return from_cluster(arguments.kubeconfig, config, gates)


def with_documents(snapshot: Snapshot, arguments: Arguments, documents: Sequence[Any]) -> Snapshot:
    """The snapshot as if ``documents`` had been applied, too; of a name the one that is given here counts."""
    from scheduler.app.snapshot import from_items

    applied = from_items([*snapshot.objects.raw.values(), *documents], *_settings(arguments), snapshot.now)
    applied.objects.problems[:0] = snapshot.objects.problems
    applied.objects.found |= snapshot.objects.found
    return applied


def require_any(snapshot: Snapshot, kinds: Sequence[str]) -> None:
    """Raises UserError when the input has no object of any of ``kinds`` and does not say that there are none.

    An empty file, or an error message that was saved in place of a dump, must not look like a sound cluster.
    """
    from scheduler.errors import UserError

    objects = snapshot.objects
    broken = {problem.subject.partition(" ")[0] for problem in objects.problems}
    usable = {kind for kind, _ in objects.raw} | {kind for kind in objects.found if kind not in broken}
    if usable.isdisjoint(kinds):
        left_out = [f"; left out: {problem.words()}" for problem in objects.problems[:3]]
        raise UserError("nothing to judge", "", f"no {', no '.join(kinds)} in the input{''.join(left_out)}")


def extenders_of(arguments: Arguments) -> list[str]:
    """URLs of the configuration's extenders, which nobody asks from here."""
    config, _ = _settings(arguments)
    return [extender.url_prefix for extender in config.extenders]


def _settings(arguments: Arguments) -> tuple[SchedulerConfig, dict[str, bool]]:
    from scheduler.config import load_config
    from scheduler.config.gates import parse_feature_gates

    text = Path(arguments.config).read_text(encoding="utf-8") if arguments.config else ""
    return load_config(text), parse_feature_gates(arguments.feature_gates)


def caveats_of(snapshot: Snapshot, *, about: Pod | None = None) -> list[str]:
    """What the answer cannot know: kinds that are missing, objects that could not be read.

    ``about``: the Pod that was judged; without it the answer is about all devices.
    """
    from scheduler.whatif.missing import missing_for, missing_for_devices
    from scheduler.whatif.store import Store

    found, rules = snapshot.objects.found, snapshot.state.features.device_taint_rules
    store = Store(snapshot.objects, snapshot.now)
    if about is None:
        missing = missing_for_devices(store, found, rules)
    else:
        missing = missing_for(store, found, [about], rules)
    return missing + [f"left out: {problem.words()}" for problem in snapshot.objects.problems]


def write_data(data: Any, output: str) -> None:
    """``data`` (dataclasses, lists, dicts) as JSON or YAML on standard output."""
    plain = msgspec.to_builtins(data)
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
        return
    import yaml

    print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120), end="")


def painter() -> Callable[[str, str], str]:
    """Colours on a terminal, nothing elsewhere or with NO_COLOR set. Only ``say`` makes colours of what it returns."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return lambda style, text: text
    return lambda style, text: f"{_MARK}{_STYLES[style]}m{text}{_MARK}0m"


def say(line: str) -> None:
    """Print a line for people: what a cluster's objects brought along cannot move the cursor or forge a line."""
    print("".join(_coloured(part, number) for number, part in enumerate(line.split(_MARK))))


def _coloured(part: str, number: int) -> str:
    """What stands behind a mark of ours begins with its colour; before the first mark there is none."""
    if number == 0:
        return printable(part)
    style, _, rest = part.partition("m")
    return f"\033[{style}m{printable(rest)}"


def printable(text: str) -> str:
    """``text`` with control characters, line ends and marks of writing direction spelled out, such as ``\\x1b``.

    Letters of any language stay, and so do the joiners that some need.
    """
    if text.isprintable():
        return text
    return "".join(_spelled(one) if unicodedata.category(one) in _UNPRINTABLE else one for one in text)


def _spelled(character: str) -> str:
    if character in _JOINERS:
        return character
    return character.encode("unicode_escape").decode("ascii")

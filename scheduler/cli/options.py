"""Flags as Kubernetes commands take them: ``--flag=value`` or ``--flag value``, booleans also without a value."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from scheduler.config.durations import NANOSECONDS_PER_SECOND, DurationError, parse_duration

Arguments = argparse.Namespace
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


class UsageError(Exception):
    """The command line cannot be used; the message says what to change."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError and takes no abbreviations.

    Positional arguments that were not declared are refused in kube-scheduler's words.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Instead of printing the usage and leaving with 2."""
        raise UsageError(f"{message}; see {self.prog} --help")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As inherited, with Go's messages for what is left over."""
        parsed, rest = self.parse_known_args(args, namespace)
        for argument in rest:
            if argument.startswith("-") and argument != "-":
                self.error(f"unknown flag: {argument.split('=', 1)[0]}")
        if rest:
            raise UsageError(f"{json.dumps(self.prog)} does not take any arguments, got {_go_list(rest)}")
        return parsed


def add_flag(parser: argparse.ArgumentParser, name: str, *, default: bool | None, text: str) -> None:
    """A boolean flag ``--name``: ``--name``, ``--name=true``, ``--name=false``."""
    shown = "" if default is None else f" (default {str(default).lower()})"
    parser.add_argument(f"--{name}", type=parse_flag, default=default, metavar="true|false", help=text + shown)


def go_style(parser: argparse.ArgumentParser, argv: Sequence[str]) -> list[str]:
    """``argv`` with the boolean flags of ``parser`` spelled out: ``--x`` becomes ``--x=true``, as in Go a boolean
    never takes the next argument as its value. ``-v=4`` becomes ``-v4``. Nothing after ``--`` is touched.
    """
    flags = {option for action in parser._actions if action.type is parse_flag for option in action.option_strings}
    spelled: list[str] = []
    for index, argument in enumerate(argv):
        if argument == "--":
            return [*spelled, *argv[index:]]
        if argument in flags:
            spelled.append(f"{argument}=true")
        elif argument[:1] == "-" and argument[1:2] != "-" and argument[2:3] == "=":
            spelled.append(argument[:2] + argument[3:])
        else:
            spelled.append(argument)
    return spelled


def parse_flag(text: str) -> bool:
    """A boolean as Go's strconv.ParseBool reads it."""
    if text not in _TRUE + _FALSE:
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false")
    return text in _TRUE


def parse_seconds(text: str) -> float:
    """A Go duration, in seconds."""
    try:
        return parse_duration(text) / NANOSECONDS_PER_SECOND
    except DurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_port(text: str) -> int:
    """A TCP port, 0 for none."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text} is not a port between 0 and 65535")
    return int(text)


def _go_list(values: Sequence[str]) -> str:
    return "[" + " ".join(json.dumps(value) for value in values) + "]"

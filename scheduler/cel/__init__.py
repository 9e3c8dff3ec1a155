"""Kubernetes CEL for device selectors: parse, check, compile to closures, evaluate with cost.

Belongs here: the language, its libraries and everything that knows cel-python, lark or RE2. Never here: claims,
pools, decisions; a device is known only as attributes and capacity.
"""

from scheduler.cel.device import AttributeValue, CelDevice
from scheduler.cel.errors import CompileError, EvaluationError
from scheduler.cel.grammar import build_parser
from scheduler.cel.reads import Reads
from scheduler.cel.selector import DerivedAttribute, Selector, compile_derived, compile_selector
from scheduler.cel.semver import Semver, SemverError

__all__ = [
    "AttributeValue",
    "CelDevice",
    "CompileError",
    "DerivedAttribute",
    "EvaluationError",
    "Reads",
    "Selector",
    "Semver",
    "SemverError",
    "build_parser",
    "compile_derived",
    "compile_selector",
]

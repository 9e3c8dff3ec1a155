"""YAML text into plain data, strictly: one document, no duplicate keys, string keys only."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from scheduler.errors import ConfigError

_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader without time stamps (the API has text there), refusing duplicate keys."""

    def construct_document(self, node: yaml.Node) -> Any:
        _check_keys(node, "", set())
        return super().construct_document(node)


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_document(text: str) -> dict[str, Any]:
    """The mapping that ``text`` holds (YAML or JSON); an empty document is an empty mapping.

    Raises ConfigError: text that is no YAML (with line and column), several documents, something other than a mapping
    at the top, a duplicate or non-string key (with its path).
    """
    try:
        data = yaml.load(text, Loader=_StrictLoader)  # a SafeLoader with fewer types
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError("", f"not YAML: {where}{error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError("", f"not YAML: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError("", f"expected a mapping at the top, got {kind_name(data)}")
    return data


def kind_name(value: object) -> str:
    """What JSON calls the type of ``value``, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)


def _check_keys(node: yaml.Node, path: str, visited: set[int]) -> None:
    """Walk the node tree before it becomes dicts, which would drop the earlier of two equal keys.

    ``visited`` holds the ids of nodes seen: aliases make the tree a graph, which must not be walked twice.
    """
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _check_keys(item, f"{path}[{index}]", visited)
    elif isinstance(node, yaml.MappingNode):
        seen: set[Hashable] = set()
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key_node.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                raise ConfigError(path, f"line {key_node.start_mark.line + 1}: keys must be strings")
            child = f"{path}.{key}" if path else str(key)
            if key in seen:
                raise ConfigError(child, f"duplicate field (line {key_node.start_mark.line + 1})")
            seen.add(key)
            _check_keys(value_node, child, visited)

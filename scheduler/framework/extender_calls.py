"""What an extender is sent: one ``ExtenderCall`` per POST, and its body.

Source: kube-scheduler 1.37, the JSON of kube-scheduler/extender/v1, whose fields bear their Go names (spec 8).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.api.core import Node, Pod
from scheduler.config.model import Extender
from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from scheduler.framework.dryrun import Candidate


class ExtenderError(SchedulerError):
    """An extender that is not ignorable failed: the attempt ends with its words."""


@dataclass(slots=True)
class ExtenderCall:
    """One POST. ``nodes``: full objects to send, None: ``node_names`` instead; ``victims``: of a preemption.

    The edge fills in ``failure`` (a text) or ``body``. ``body`` is the answer's bytes.
    """

    extender: Extender
    verb: str
    pod: Pod
    nodes: tuple[Node, ...] | None = None
    node_names: tuple[str, ...] | None = None
    victims: Mapping[str, Candidate] | None = None
    bind_to: str = ""
    failure: str | None = None
    body: bytes = b""

    @property
    def url(self) -> str:
        """Where to POST."""
        return f"{self.extender.url_prefix.rstrip('/')}/{self.verb}"

    def answer(self) -> Any:
        """The decoded answer; ExtenderError when there is none or it is no JSON."""
        if self.failure is not None:
            raise ExtenderError(self.failure)
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise ExtenderError(f"the answer of {self.url} is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class CallExtenders:
    """Make ``calls`` side by side; done when each has its answer or its failure."""

    calls: tuple[ExtenderCall, ...]


def bind_call(extender: Extender, pod: Pod, node: str) -> ExtenderCall:
    """The call that binds ``pod`` to ``node``."""
    return ExtenderCall(extender, extender.bind_verb, pod, bind_to=node)


def bind_refusal(call: ExtenderCall) -> str:
    """Why the extender did not bind, "" when it did."""
    try:
        return str(lowered(call.answer(), call).get("error") or "")
    except ExtenderError as error:
        return str(error)


def arguments(call: ExtenderCall, pod: bytes, nodes: Sequence[bytes], write: Callable[[Pod], bytes]) -> bytes:
    """The request's body. ``pod``, ``nodes``: the stored objects as JSON; ``write`` gives that of a victim."""
    if call.bind_to:
        meta = call.pod.metadata
        names = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": call.bind_to}
        return json.dumps(names).encode()
    if call.victims is not None:
        return _preemption_arguments(call, pod, write)
    listed = b"null"
    if call.nodes is not None:
        listed = b'{"metadata":{},"items":[' + b",".join(nodes) + b"]}"
    names_text = b"null" if call.node_names is None else json.dumps(call.node_names).encode()
    return b'{"Pod":' + pod + b',"Nodes":' + listed + b',"NodeNames":' + names_text + b"}"


def _preemption_arguments(call: ExtenderCall, pod: bytes, write: Callable[[Pod], bytes]) -> bytes:
    entries = []
    for node, candidate in (call.victims or {}).items():
        if call.extender.node_cache_capable:
            pods = b",".join(json.dumps({"UID": victim.uid}).encode() for victim in candidate.victims)
        else:
            pods = b",".join(write(victim) for victim in candidate.victims)
        violations = str(candidate.violations).encode()
        entries.append(json.dumps(node).encode() + b':{"Pods":[' + pods + b'],"NumPDBViolations":' + violations + b"}")
    by_node = b"{" + b",".join(entries) + b"}"
    full, meta = (b"null", by_node) if call.extender.node_cache_capable else (by_node, b"null")
    return b'{"Pod":' + pod + b',"NodeNameToVictims":' + full + b',"NodeNameToMetaVictims":' + meta + b"}"


def lowered(value: Any, call: ExtenderCall, names: bool = True) -> dict[str, Any]:
    """An object with its keys in small letters, as Go's decoding does not tell them apart; null is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ExtenderError(f"the answer of {call.url} holds {type(value).__name__} where an object belongs")
    return {key.lower() if names else key: entry for key, entry in value.items()}

"""What one caller may see, and a scrubber that hides every other name in any text.

Names are hidden, sentences stay: a reader still learns that a device is in use, but not by whose claim. What the caller
can read anyway, in their own Pod and its claims, is not hidden from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scheduler.api.core import Pod
from scheduler.api.resource import ResourceClaim
from scheduler.explain.attempts import ended
from scheduler.state.cluster import ClusterState

HIDDEN = "(hidden)"
_SLICES_PER_STEP = 50
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/\-]*")
_ATOM = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Sight:
    """Which names a caller may list. ``pods``, ``claims`` and ``templates``: namespaces, None for all of them."""

    nodes: bool = False
    slices: bool = False
    classes: bool = False
    taint_rules: bool = False
    namespaces: bool = False
    pods: frozenset[str] | None = frozenset()
    claims: frozenset[str] | None = frozenset()
    templates: frozenset[str] | None = frozenset()

    @property
    def everything(self) -> bool:
        """Nothing has to be hidden."""
        flags = self.nodes and self.slices and self.classes and self.taint_rules and self.namespaces
        return flags and (self.pods, self.claims, self.templates) == (None, None, None)

    def pod(self, key: str) -> bool:
        """Whether the Pod ``namespace/name`` may be named."""
        return within(self.pods, key)

    def claim(self, key: str) -> bool:
        """Whether the claim ``namespace/name`` may be named."""
        return within(self.claims, key)

    def namespace(self, name: str) -> bool:
        """Whether a namespace may be named: who may list what is in it knows that it is there."""
        return self.namespaces or within(self.pods, name) or within(self.claims, name)


EVERYTHING = Sight(True, True, True, True, True, None, None, None)


def within(allowed: frozenset[str] | None, key: str) -> bool:
    """Whether the namespace of ``key`` (or ``key``, a namespace) is among the allowed ones."""
    return allowed is None or key.partition("/")[0] in allowed


@dataclass(slots=True)
class Scrubber:
    """Replaces hidden names by numbered words, the same name by the same word.

    ``hidden``: name → what it is (node, pool, device, …). ``spaces``: every namespace there is; ``visible_key`` tells
    whether ``namespace/name`` may be shown, ``known_key`` whether a Pod or claim is called so. Names are met as whole
    words only, parts between ``.``, ``-`` and ``/`` included: the node ``n1`` is hidden in ``n1-more``, not in ``n12``.
    ``phrases``: hidden texts that are no single word, wherever they stand.
    """

    hidden: Mapping[str, str]
    spaces: frozenset[str]
    visible_key: Callable[[str], bool]
    known_key: Callable[[str], bool]
    visible_space: Callable[[str], bool]
    phrases: tuple[str, ...] = ()
    _words: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _longest: int = 0

    def __post_init__(self) -> None:
        self._longest = max((len(_ATOM.findall(name)) for name in self.hidden), default=0)

    def word(self, name: str, what: str) -> str:
        """What is said instead of ``name``."""
        if name not in self._words:
            self._counts[what] = self._counts.get(what, 0) + 1
            self._words[name] = f"({what} {self._counts[what]})"
        return self._words[name]

    def text(self, text: str) -> str:
        """``text`` without any name that is hidden. Cost: O(length times atoms of the longest name)."""
        for phrase in self.phrases:
            if phrase in text:
                text = text.replace(phrase, HIDDEN)
        return _RUN.sub(lambda match: self._run(match[0]), text)

    def tree(self, value: Any) -> Any:
        """The same for every string in plain data, keys of dicts included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.tree(key): self.tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value

    def _run(self, run: str) -> str:
        bare = run.rstrip("./-")
        tail = run[len(bare) :]
        space, slash, name = bare.partition("/")
        if space in self.spaces:
            if slash and name and not self.visible_key(bare):
                return self.word(bare, "object") + tail
            if not slash and not self.visible_space(space):
                return self.word(space, "namespace") + tail
            if slash and name and self.known_key(bare):
                return run
        return self._spans(bare) + tail

    def _spans(self, run: str) -> str:
        """The longest hidden name at each place, left to right."""
        if not self.hidden:
            return run
        atoms = [match.span() for match in _ATOM.finditer(run)]
        parts: list[str] = []
        done = place = 0
        while place < len(atoms):
            start = atoms[place][0]
            for last in range(min(len(atoms), place + self._longest) - 1, place - 1, -1):
                name = run[start : atoms[last][1]]
                if name in self.hidden:
                    parts += [run[done:start], self.word(name, self.hidden[name])]
                    done, place = atoms[last][1], last
                    break
            place += 1
        return "".join([*parts, run[done:]])


@dataclass(frozen=True, slots=True)
class Names:
    """Every name there was when an answer was given. ``pods`` and ``claims``: ``namespace/name``.

    ``published``: what slices say, with what it is; ``slice_nodes``: nodes that slices name.
    """

    nodes: frozenset[str]
    published: Mapping[str, str]
    slice_nodes: frozenset[str]
    classes: frozenset[str]
    taint_rules: frozenset[str]
    pods: frozenset[str]
    claims: frozenset[str]
    spaces: frozenset[str]


@dataclass(frozen=True, slots=True)
class Told:
    """An answer to ``question``: ``whole`` is the reply as a JSON object, for who may see everything.

    For others it is b"", and ``spaces`` are the namespaces that the answer names: what may be seen of it is asked for
    when the rights there are known, see ``app.answers``.
    """

    question: tuple[Any, ...]
    spaces: frozenset[str]
    whole: bytes


@dataclass(frozen=True, slots=True)
class Own:
    """The Pod that an answer is about, which the caller may get, and its claims."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]

    def keys(self) -> set[str]:
        """``namespace/name`` of the Pod, its claims, and what it names as claims and templates."""
        space = self.pod.metadata.namespace
        entries = self.pod.spec.resourceClaims
        named = (name for one in entries for name in (one.resourceClaimName, one.resourceClaimTemplateName) if name)
        return {self.pod.key, *(claim.key for claim in self.claims), *(f"{space}/{name}" for name in named)}

    def words(self) -> set[str]:
        """Every word and name that can be read in them."""
        texts = (msgspec.json.encode(one).decode() for one in (self.pod, *self.claims))
        found: set[str] = set()
        for run in (match[0] for text in texts for match in _RUN.finditer(text)):
            domain, _, last = run.rpartition(".")
            # "driver".attribute in a selector reads as one word.
            found.update((run, *run.split("/"), domain, last))
        return found


def own_of(state: ClusterState, pod: Pod) -> Own:
    """``pod`` with its claims as they are."""
    return Own(pod, tuple(state.devices.claims_of(pod)))


def names_of(state: ClusterState) -> Names:
    """``names_steps`` in one go."""
    return ended(names_steps(state))


def names_steps(state: ClusterState) -> Generator[None, None, Names]:
    """Every name in a state, in slices. Cost: O(objects and attributes), 20 ms for 5,000 devices."""
    published: dict[str, str] = {}
    slice_nodes: set[str] = set()
    infos = list(state.devices.slices.infos())
    for number, info in enumerate(infos):
        for device in info.devices:
            for _, value in device.attributes.values():
                published.update((text, "value") for text in _texts(value))
        if number % _SLICES_PER_STEP == 0:
            yield
    for info in infos:
        spec = info.slice.spec
        published.update((device.name, "device") for device in spec.devices)
        published.update({spec.pool.name: "pool", info.slice.metadata.name: "slice", spec.driver: "driver"})
        slice_nodes.update(filter(None, (spec.nodeName, *(device.nodeName for device in spec.devices))))
    return Names(
        frozenset(state.nodes.name_of(row) for row in state.nodes.order().tolist()),
        published,
        frozenset(slice_nodes),
        frozenset(state.devices.classes.names()),
        frozenset(rule.metadata.name for rule in state.devices.slices.rules()),
        frozenset(pod.key for pod in state.pods.values()),
        frozenset(state.devices.claims),
        spaces_of(state),
    )


def spaces_of(state: ClusterState) -> frozenset[str]:
    """Every namespace there is: of its own, of a Pod or of a claim. Cost: O(Pods and claims)."""
    pods = {pod.metadata.namespace for pod in state.pods.values()}
    return frozenset((*state.namespaces, *pods, *(key.partition("/")[0] for key in state.devices.claims)))


def _texts(value: object) -> Iterable[str]:
    """The strings of an attribute's value."""
    if isinstance(value, str):
        return (value,) if value else ()
    return [text for text in value if isinstance(text, str) and text] if isinstance(value, tuple | list) else ()


def scrubber(sight: Sight, names: Names, own: Own | None = None) -> Scrubber:
    """A scrubber for one answer. ``own`` is not hidden from the caller. Cost: O(names that are hidden)."""
    own_keys = own.keys() if own is not None else set()
    shown = own.words() if own is not None else set()
    hidden = {name: what for name, what in _hidden(sight, names) if name not in shown}
    phrases = sorted((name for name in hidden if not _RUN.fullmatch(name)), key=len, reverse=True)

    def visible_key(key: str) -> bool:
        if key in own_keys:
            return True
        is_pod, is_claim = key in names.pods, key in names.claims
        if is_pod or is_claim:
            return (sight.pod(key) or not is_pod) and (sight.claim(key) or not is_claim)
        return sight.pod(key) and sight.claim(key)

    def known_key(key: str) -> bool:
        return key in own_keys or key in names.pods or key in names.claims

    def visible_space(name: str) -> bool:
        return sight.namespace(name) or (own is not None and own.pod.metadata.namespace == name)

    return Scrubber(hidden, names.spaces, visible_key, known_key, visible_space, tuple(phrases))


def _hidden(sight: Sight, names: Names) -> Iterable[tuple[str, str]]:
    """Names that are nowhere visible, with what they are; a name of several kinds is that of the last one."""
    if not sight.slices:
        known = names.nodes if sight.nodes else ()
        yield from ((name, what) for name, what in names.published.items() if name not in known)
    if not sight.nodes:
        # Slices tell on which node they are: who may list them knows these.
        known = names.slice_nodes if sight.slices else ()
        yield from ((name, "node") for name in sorted({*names.nodes, *names.slice_nodes}.difference(known)))
    if not sight.classes:
        yield from ((name, "class") for name in names.classes)
    if not sight.taint_rules:
        yield from ((name, "taint rule") for name in names.taint_rules)

"""Who may not list an object does not read its name in any answer; who may, reads everything."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.explain.attempts import ended
from scheduler.explain.cluster_map import map_steps
from scheduler.explain.findings import Finding, Findings
from scheduler.explain.hints import find_hints
from scheduler.explain.inventory import take_inventory
from scheduler.explain.lint import lint
from scheduler.explain.pods import explain_pod
from scheduler.explain.redaction import (
    mentioned,
    redact_explanation,
    redact_findings,
    redact_inventory,
    redact_map,
)
from scheduler.explain.sight import EVERYTHING, Scrubber, Sight, names_of, own_of, scrubber, spaces_of
from scheduler.explain.text import explanation_lines
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, NOW, Object, device, held, request, slice_of, snapshot, want
from tests.explain.situations import Situation
from tests.explain.test_situations import ALL

MINE = frozenset({"default"})
NAMESPACED = Sight(pods=MINE, claims=MINE, templates=MINE)
MODEL = f'device.attributes["{DRIVER}"].model == "secretmodel9"'


def inside(space: str, item: Object) -> Object:
    item["metadata"]["namespace"] = space
    for user in item.get("status", {}).get("reservedFor", ()):
        user["uid"] = f"pod/{space}/{user['name']}"
    return item


def secret_world() -> list[Object]:
    """Everything that belongs to others has "secret" in its name; the waiting Pod is default/p."""
    theirs = inside("secret-team", held("secret-claim", "secret-node-1", "gpu-secret-0", pod="secret-pod"))
    slices = [
        slice_of(
            f"secret-node-{n}",
            [device(f"gpu-secret-{d}", model=("secretmodel1", "A secret model")[d]) for d in range(2)],
        )
        for n in (1, 2)
    ]
    return [
        node("secret-node-1"),
        node("secret-node-2"),
        gpu_class(),
        *slices,
        theirs,
        inside("secret-team", pod("secret-pod", claim="secret-claim", nodeName="secret-node-1")),
        want(request("r", 3, MODEL)),
        pod("p", claim="want"),
    ]


def explanation(items: list[Object], gates: dict[str, bool] | None = None) -> Any:
    snap = snapshot(items, gates)
    mine = snap.pod("default", "p")
    profile, _ = snap.profile_for(mine)
    found = explain_pod(profile, mine, snap.state, snap.now)
    if found.phase == "waiting":
        find_hints(profile, mine, snap.state, snap.now, found)
    return snap, mine, found


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return []


def test_a_user_of_one_namespace_reads_no_name_of_others() -> None:
    """Neither data nor text of the explanation has a secret name, but the reason is still told."""
    snap, mine, found = explanation(secret_world())
    assert "secret-node-1" in msgspec.json.encode(found).decode(), "the world has something to hide"
    seen = redact_explanation(found, NAMESPACED, names_of(snap.state), own_of(snap.state, mine))
    text = "\n".join(explanation_lines(seen, NOW))
    for answer in (msgspec.json.encode(seen).decode(), text):
        assert "secret" not in answer.replace("secretmodel9", ""), answer
    assert "selector false" in text
    assert "(node 1)" in text
    assert seen.phase == found.phase


def test_the_holder_of_a_device_is_hidden_and_counted() -> None:
    """A device in use by a claim elsewhere is in use by "claims that you may not list"."""
    items = [item for item in secret_world() if item["metadata"]["name"] != "want"]
    snap, mine, found = explanation([*items, want(request("r", 2))])
    seen = redact_explanation(found, NAMESPACED, names_of(snap.state), own_of(snap.state, mine))
    text = "\n".join(explanation_lines(seen, NOW))
    assert "claims that you may not list" in text
    assert "secret" not in text
    may_see_team = replace(
        NAMESPACED, pods=frozenset({"default", "secret-team"}), claims=frozenset({"default", "secret-team"})
    )
    text = "\n".join(
        explanation_lines(redact_explanation(found, may_see_team, names_of(snap.state), own_of(snap.state, mine)), NOW)
    )
    assert "claim secret-team/secret-claim (pod secret-team/secret-pod" in text
    assert "secret-node" not in text


def test_who_sees_everything_gets_the_answer_as_it_is() -> None:
    """Nothing is copied, nothing is changed."""
    snap, mine, found = explanation(secret_world())
    assert redact_explanation(found, EVERYTHING, names_of(snap.state), own_of(snap.state, mine)) is found


def test_own_devices_and_nodes_stay_visible() -> None:
    """What the caller's own Pod and claim say anyway is not hidden from them."""
    mine = held("want", "n1", "gpu-0", pod="p")
    items = [node("n1"), node("n2"), gpu_class(), slice_of("n1", [device("gpu-0")]), slice_of("n2", [device("gpu-7")])]
    snap, own, found = explanation([*items, mine, pod("p", claim="want", nodeName="n1")])
    seen = msgspec.json.encode(
        redact_explanation(found, NAMESPACED, names_of(snap.state), own_of(snap.state, own))
    ).decode()
    assert '"node":"n1"' in seen
    assert f"{DRIVER}/n1/gpu-0" in seen
    assert not re.search(r"\bn2\b", seen)


@pytest.mark.parametrize("situation", ALL, ids=lambda one: one.name.replace(" ", "-"))
def test_no_waiting_situation_tells_a_hidden_name(situation: Situation) -> None:
    """Whatever plugin or device is to blame, no node, pool or device that the caller cannot list is named."""
    snap, mine, found = explanation(situation.items, situation.gates)
    seen = msgspec.to_builtins(redact_explanation(found, NAMESPACED, names_of(snap.state), own_of(snap.state, mine)))
    hide = scrubber(NAMESPACED, names_of(snap.state), own_of(snap.state, mine))
    every = "\n".join(strings(seen))
    for name in hide.hidden:
        assert not re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", every), (name, every)
    for key in (*(other.key for other in snap.state.pods.values()), *snap.state.devices.claims):
        assert key.startswith("default/") or key not in every


def test_inventory_of_a_namespace() -> None:
    """Totals stay; drivers, pools, nodes and other namespaces go."""
    snap = snapshot(secret_world())
    found = take_inventory(snap.state, "node", NOW)
    assert len(found.lines) == 2
    seen = redact_inventory(found, NAMESPACED, names_of(snap.state))
    assert "secret" not in msgspec.json.encode(seen).decode()
    (line,) = seen.lines
    assert (line.total, line.used) == (4, 1)
    slices_too = redact_inventory(found, replace(NAMESPACED, slices=True), names_of(snap.state))
    assert [line.node for line in slices_too.lines] == ["secret-node-1", "secret-node-2"], "slices name their nodes"
    assert slices_too.namespaces == {}


def test_inventory_by_device_for_who_sees_devices_but_not_claims() -> None:
    """Somebody who may list nodes and slices, as an operator of hardware, does not read whose Pods run there."""
    snap = snapshot(secret_world())
    found = take_inventory(snap.state, "device", NOW)
    operator = Sight(nodes=True, slices=True, classes=True, taint_rules=True)
    seen = redact_inventory(found, operator, names_of(snap.state))
    holders = [holder for line in seen.lines for holder in line.holders]
    assert holders == ["claim (object 1) (pod (object 2))"]
    assert seen.lines[0].node == "secret-node-1"
    assert "secret-team" not in msgspec.json.encode(seen).decode()


def test_a_map_for_who_sees_devices_but_not_claims() -> None:
    """The same on the map; without slices there are numbers only."""
    snap = snapshot(secret_world())
    found = ended(map_steps(snap.state, NOW))
    assert [node.node for node in found.nodes] == ["secret-node-1", "secret-node-2"]
    assert found.states["used"] == 1
    operator = Sight(nodes=True, slices=True, classes=True, taint_rules=True)
    seen = redact_map(found, operator, names_of(snap.state))
    assert seen.nodes[0].devices[0].holders == ["claim (object 1) (pod (object 2))"]
    assert found.nodes[0].devices[0].holders[0].startswith("claim secret-team/"), "the answer itself is as it was"
    bare = redact_map(found, NAMESPACED, names_of(snap.state))
    assert (bare.nodes, bare.states) == ([], found.states)


def test_findings_of_a_namespace() -> None:
    """Only findings about one's own objects, without other names."""
    snap = snapshot([*secret_world(), inside("secret-team", want(request("r", 9), name="secret-want"))])
    found = lint(snap.state, snap.objects.templates, [], snap.objects.raw, ["dra-scheduler"])
    assert {finding.subject for finding in found.findings} >= {"ResourceClaim secret-team/secret-want"}
    seen = redact_findings(found, NAMESPACED, names_of(snap.state))
    assert {finding.subject for finding in seen.findings} == {"ResourceClaim default/want"}
    assert "secret" not in msgspec.json.encode(seen).decode().replace("secretmodel9", "")
    odd = Findings([Finding("error", "check", "Gadget secret-1", "", "", "", "")])
    assert redact_findings(odd, NAMESPACED, names_of(snap.state)).findings == [], "an unknown kind is nobody's to see"


def test_mentioned_namespaces() -> None:
    """The rights that have to be asked for are those of the namespaces in the answer."""
    snap, _, found = explanation(
        [item for item in secret_world() if item["metadata"]["name"] != "want"] + [want(request("r", 2))]
    )
    assert mentioned(found, spaces_of(snap.state)) == {"default", "secret-team"}
    assert mentioned({"text": "nothing here"}, spaces_of(snap.state)) == set()


NAME = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?(\.[a-z0-9]{1,3})?", fullmatch=True)


@settings(max_examples=120, deadline=None)
@given(
    st.sets(NAME, min_size=1, max_size=8),
    st.lists(st.one_of(NAME, st.sampled_from("-./ ,:()'")), max_size=20),
    st.data(),
)
def test_no_hidden_name_survives_in_any_text(names: set[str], pieces: list[str], data: st.DataObject) -> None:
    """Wherever a hidden name stands as a word of its own, it is replaced; text without one is as it was."""
    hidden = data.draw(st.sampled_from(sorted(names)))
    pieces = [*pieces, " ", hidden, data.draw(st.sampled_from([" ", ".", ":", "-more", "/gpu-1", ")", ""]))]
    text = "".join(pieces)
    hide = Scrubber(dict.fromkeys(names, "node"), frozenset(), lambda key: True, lambda key: False, lambda name: True)
    seen = re.sub(r"\(node \d+\)", "()", hide.text(text))
    assert not re.search(rf"(?<![A-Za-z0-9]){re.escape(hidden)}(?![A-Za-z0-9])", seen) or _overlapped(hidden, names)
    plain = "no name stands here"
    if not set(plain.split()) & names:
        assert hide.text(plain) == plain


def _overlapped(hidden: str, names: set[str]) -> bool:
    """Two hidden names may share a part of the text: then the longer, earlier one goes and cuts the other."""
    return any(
        other != hidden and set(re.findall(r"[a-z0-9]+", other)) & set(re.findall(r"[a-z0-9]+", hidden))
        for other in names
    )


def test_namespaced_names_are_hidden_with_their_namespace() -> None:
    """ns/name goes as a whole, a bare namespace too, the same one by the same word."""
    hide = Scrubber(
        {}, frozenset({"a", "b"}), lambda key: key.startswith("a/"), lambda key: True, lambda name: name == "a"
    )
    assert (
        hide.text("claim b/x (pod b/y), again b/x, in b.")
        == "claim (object 1) (pod (object 2)), again (object 1), in (namespace 1)."
    )
    assert hide.text("claim a/x in a") == "claim a/x in a"

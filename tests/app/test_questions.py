"""Questions to a running scheduler: the same answers as from files, authorised per object, names hidden."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduler.api.versions import ResourceKinds
from scheduler.app.answers import RECENT_S, Answers
from scheduler.app.snapshot import from_items, list_items
from scheduler.audit.records import ClaimUse, DeviceUse, NodeScore, Record
from scheduler.config import load_config
from scheduler.dra.features import Features
from scheduler.edge.audit_store import AuditStore
from scheduler.embedded.faults import Action, Fault
from scheduler.explain.hints import find_hints
from scheduler.explain.pods import explain_pod
from scheduler.explain.sight import EVERYTHING, Sight
from tests.app.asker import ADMIN, MINE, NOBODY, asker
from tests.app.objects import gpu_slice, pod

Object = dict[str, Any]
XSS = '"><img src=x onerror=alert(1)>'


async def test_the_running_scheduler_says_what_files_say() -> None:
    """The explanation over HTTP equals the one from a snapshot by LISTs, hints included."""
    async with asker() as ask:
        items, _ = await list_items(ask.world.client, ResourceKinds(), Features())
        snap = from_items(items, load_config(""), {}, 0.0, live=True)
        big = snap.pod("default", "big")
        profile, _ = snap.profile_for(big)
        found = explain_pod(profile, big, snap.state, snap.now)
        find_hints(profile, big, snap.state, snap.now, found)
        answer = await ask.answer("namespaces/default/pods/big/explanation")
        assert answer["nodes"] == msgspec.to_builtins(found.nodes)
        assert [hint["text"] for hint in answer["hints"]] == [hint.text for hint in found.hints]
        assert answer["message"] == found.message
        (holder,) = answer["users"]
        assert holder == "team/their-claim"


async def test_a_user_of_one_namespace() -> None:
    """They get their own Pods, not those of others; no answer has a name from elsewhere."""
    async with asker() as ask:
        status, body = await ask.get("namespaces/default/pods/big/explanation", MINE)
        assert status == 200
        text = "\n".join(body["text"])
        assert "(node 1)" in text or "(node 2)" in text
        assert "1 in use" in text
        for secret in ("team", "their-pod", "their-claim", "n1", "n2"):
            assert secret not in str(body).replace("\\n1", ""), secret
        for path in ("map", "inventory?by=node", "inventory?by=device", "lint", "pods"):
            seen = str(await ask.answer(path, MINE))
            assert "their" not in seen, path
            assert "team" not in seen, path
            assert "'n1'" not in seen, path
        assert [one["pod"] for one in (await ask.answer("pods", MINE))["pods"]] == ["default/big"]
        assert (await ask.answer("pods?namespace=default", MINE))["found"] == 1
        assert (await ask.answer("pods?namespace=team", MINE))["found"] == 0
        assert (await ask.answer("pods?namespace=team")) == {"pods": [], "found": 0}
        assert (await ask.answer("map", MINE))["nodes"] == []
        admin = await ask.answer("map")
        assert [one["node"] for one in admin["nodes"]] == ["n1", "n2"]
        assert admin["states"]["used"] == 1
        assert "team" in str(await ask.answer("inventory"))


async def test_refusals_do_not_tell_what_exists() -> None:
    """A Pod that is there and one that is not are refused in the same words; nobody's token is nobody's."""
    async with asker() as ask:
        there = await ask.get("namespaces/team/pods/their-pod/explanation", MINE)
        absent = await ask.get("namespaces/team/pods/no-such-pod/explanation", MINE)
        assert there[0] == absent[0] == 403
        assert there[1]["message"].replace("their-pod", "X") == absent[1]["message"].replace("no-such-pod", "X")
        assert 'User "mine" cannot get resource "pods"' in there[1]["message"]
        for token in ("", "wrong", ADMIN[:-1]):
            status, body = await ask.get("map", token)
            assert (status, body["reason"]) == (401, "Unauthorized")
        assert (await ask.get("namespaces/default/pods/big/explanation", NOBODY))[0] == 403
        assert (await ask.answer("pods", NOBODY)) == {"pods": [], "found": 0}


async def test_loopback_is_no_right() -> None:
    """What a port-forward carries comes from loopback, too: without a token nothing is answered."""
    async with asker() as ask:
        of_the_pod = [f"namespaces/default/pods/big/{what}" for what in ("explanation", "story")]
        for path in ("me", "map", "pods", "lint", "inventory", *of_the_pod):
            assert (await ask.get(path, ""))[0] == 401, path


async def test_what_cannot_be_asked_is_refused_for_now() -> None:
    """Reviews that fail make 503 with a time to wait, never an answer."""
    async with asker() as ask:
        ask.world.server.faults.add(Fault(Action.ANSWER, kind="subjectaccessreviews", times=None))
        status, body = await ask.get("map")
        assert (status, body["reason"]) == (503, "ServiceUnavailable")
        assert "nodes" not in body


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("namespaces/default/pods/none/explanation", 404),
        ("namespaces/default/pods/%00/explanation", 400),
        (f"namespaces/default/pods/{'x' * 300}/explanation", 400),
        ("namespaces/default/pods/ü/explanation", 400),
        ("inventory?by=nothing", 400),
        ("map?limit=-1", 400),
        ("map?limit=9999999999", 400),
        ("namespaces/default/pods/big/story", 404),
    ],
)
async def test_bad_questions(path: str, status: int) -> None:
    """Each is refused with a reason in JSON."""
    async with asker() as ask:
        found, body = await ask.get(path)
        assert found == status, body
        assert body["kind"] == "Status"
        assert body["message"]


async def test_questions_leave_the_deciding_state_alone() -> None:
    """Hints take Pods and claims away in the questions' own state; the scheduler's is as before, and goes on."""
    async with asker() as ask:
        state = ask.world.service.state
        before = state.version, dict(state.devices.ledger.state()), dict(state.placements)
        await asyncio.gather(*(ask.answer("namespaces/default/pods/big/explanation") for _ in range(5)))
        assert (state.version, dict(state.devices.ledger.state()), dict(state.placements)) == before
        await ask.world.call("POST", "/api/v1/namespaces/default/pods", pod("later"))

        async def bound() -> bool:
            return "later" in await ask.world.bound()

        await ask.world.until(bound, "a new Pod is placed")
        answer = await ask.answer("namespaces/default/pods/later/explanation")
        assert answer["phase"] == "scheduled"


async def test_hostile_texts_are_data() -> None:
    """Whatever stands in attributes and messages comes as JSON, with a type that no browser takes for markup."""
    item = gpu_slice("n2", 2)
    item["spec"]["devices"][0]["attributes"] = {"model": {"string": XSS}}
    item["metadata"]["name"] = "odd"
    item["spec"]["pool"]["name"] = "odd"
    async with asker([item]) as ask:
        assert XSS in str(await ask.answer("map"))
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with ask.session.get(f"{ask.url}/questions/v1/map", headers=headers) as answer:
            assert answer.content_type == "application/json"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"


def trail_of_the_past(folder: Path) -> str:
    """default/past was on old-node with a device, and had to go for a Pod of another namespace; its audit file."""
    file = str(folder / "audit.db")
    gone = ClaimUse("default/lost", "uid", given=True, devices=(DeviceUse("old.example.com/old-pool/old-gpu"),))
    scores = (NodeScore("old-node", 90), NodeScore("older-node", 80))
    decision = Record(
        "1", "decision", 100.0, pod="default/past", node="old-node", outcome="bound", claims=(gone,), scores=scores
    )
    preempted = Record("2", "preempted", 200.0, pod="default/past", node="old-node", by="hidden-team/boss", text="room")
    store = AuditStore(file, max_age_s=1e12, max_size_bytes=1 << 24)
    store.write([decision, preempted])
    store.close()
    return file


SECRETS = ("old-node", "older-node", "old-pool", "old-gpu", "old.example.com", "hidden-team", "boss")


async def test_the_record_of_a_pod_that_is_gone(tmp_path: Path) -> None:
    """The trail tells its story to who may get Pods there; names that only the record knows are hidden, too."""
    file = trail_of_the_past(tmp_path)
    async with asker(audit_file=file) as ask:
        lines = (await ask.answer("namespaces/default/pods/past/story"))["lines"]
        assert any("bound to node old-node" in line for line in lines)
        assert any("preempted for pod hidden-team/boss" in line for line in lines)
        seen = "\n".join((await ask.answer("namespaces/default/pods/past/story", MINE))["lines"])
        assert "pod default/past" in seen
        assert "claim default/lost" in seen
        for secret in SECRETS:
            assert secret not in seen, seen
        status, body = await ask.get("namespaces/default/pods/pas/story")
        assert status == 404
        assert "past" not in body["message"], "names that are alike are nobody's business"
        assert (await ask.get("namespaces/team/pods/their-pod/story", MINE))[0] == 403


async def test_the_record_as_data(tmp_path: Path) -> None:
    """Of Pods, claims, devices and nodes, in a window of time, to who may see the subject."""
    device = "old.example.com/old-pool/old-gpu"
    async with asker(audit_file=trail_of_the_past(tmp_path)) as ask:
        for kind, name in (
            ("pod", "default/past"),
            ("claim", "default/lost"),
            ("node", "old-node"),
            ("device", device),
        ):
            told = await ask.answer(f"record?kind={kind}&name={name}")
            assert (told["kind"], told["name"], told["records"][0]["outcome"]) == (kind, name, "bound")
            assert told["holdings"][0]["device"] == device
        late = await ask.answer("record?kind=pod&name=default/past&since=150&until=inf")
        assert [record["kind"] for record in late["records"]] == ["preempted"]
        assert (await ask.answer("record?kind=device&name=old-gpu"))["name"] == device
        for kind, name in (("pod", "default/past"), ("claim", "default/lost")):
            seen = await ask.answer(f"record?kind={kind}&name={name}", MINE)
            assert (seen["name"], seen["records"][0]["outcome"]) == (name, "bound")
            assert "default/past" in str(seen)
            assert [secret for secret in SECRETS if secret in str(seen)] == []
        for kind, name in (("node", "old-node"), ("node", "n9"), ("device", device), ("pod", "hidden-team/boss")):
            assert (await ask.get(f"record?kind={kind}&name={name}", MINE))[0] == 403, name


@pytest.mark.parametrize(
    ("query", "status", "problem"),
    [
        ("kind=pod&name=default/none", 404, "nothing is on record"),
        ("kind=pod&name=past", 400, "NAMESPACE/NAME"),
        ("kind=claim&name=/past", 403, ""),
        ("kind=slice&name=x", 400, "none of pod, claim, device, node"),
        ("kind=claim-uid&name=a/b", 400, "none of"),
        ("name=default/past", 400, "none of"),
        ("kind=pod", 400, "not a name"),
        (f"kind=node&name={'x' * 2000}", 400, "not a name"),
        ("kind=pod&name=default/past&since=soon", 400, "since"),
        ("kind=pod&name=default/past&until=nan", 400, "until"),
        ("kind=pod&name=default/past&since=300", 404, "nothing is on record"),
    ],
)
async def test_bad_questions_about_the_record(query: str, status: int, problem: str, tmp_path: Path) -> None:
    """Each is refused with a reason."""
    async with asker(audit_file=trail_of_the_past(tmp_path)) as ask:
        found, body = await ask.get(f"record?{query}", MINE if status == 403 else ADMIN)
        assert (found, problem in body["message"]) == (status, True), body


async def test_without_a_trail_that_is_said() -> None:
    """No file, no stories: 404 with the reason."""
    async with asker() as ask:
        status, body = await ask.get("record?kind=node&name=n1")
        assert (status, "this scheduler keeps none" in body["message"]) == (404, True)


async def test_an_old_answer_is_not_redacted_as_a_fresh_one() -> None:
    """What is at hand too long is looked for anew; so is what is not there."""
    async with asker() as ask:
        answers = Answers(ask.world.service, forking=False)
        told = await answers.inventory("model", keep=True)
        (question,) = answers._recent
        when, answer, names = answers._recent[question]
        assert told.whole == b""
        answers._recent[question] = when - RECENT_S - 1, None, names
        again = msgspec.json.decode(await answers.redacted(told, EVERYTHING))
        assert again["answer"]["lines"] == msgspec.to_builtins(answer.lines)
        answers._recent.clear()
        assert msgspec.json.decode(await answers.redacted(told, Sight()))["answer"]["lines"] != []
        await answers.close()

"""HTTP extenders on the whole way of a Pod, against an extender with a plain policy."""

from __future__ import annotations

import base64
import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from e2e.extender import PolicyExtender, serving
from scheduler.edge.certificates import ServingCertificate
from tests.app.objects import node, pod
from tests.app.world import World, world

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n"
VERBS = "filterVerb: filter, prioritizeVerb: prioritize, weight: 1"


def config(*extenders: str) -> str:
    """A configuration with these extenders (flow mappings)."""
    return HEADER + "".join(f"- {{{one}}}\n" for one in extenders)


async def placed(there: World, name: str) -> str:
    """The node of a Pod once it has one."""

    async def bound() -> bool:
        return name in await there.bound()

    await there.until(bound, f"pod {name} is bound")
    return (await there.bound())[name]


async def message(there: World, name: str) -> str:
    """What the Pod's condition says once it says something."""
    found: list[str] = []

    async def told() -> bool:
        conditions = (await there.pod(name)).get("status", {}).get("conditions", [])
        found[:] = [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]
        return bool(found and found[0])

    await there.until(told, f"pod {name} is told why")
    return found[0]


async def create(there: World, body: Any) -> None:
    """Create a Pod."""
    await there.call("POST", "/api/v1/namespaces/default/pods", body)


async def test_filter_and_prioritize_decide_with_full_objects() -> None:
    """The extender sees whole Pods and nodes, refuses one node, and its score outweighs the plugins'."""
    extender = PolicyExtender(refused={"a": "no"}, scores={"b": 1, "c": 9})
    nodes = [node("a"), node("b"), node("c")]
    async with serving(extender) as url, world(nodes, config(f"urlPrefix: {url}, {VERBS}")) as there:
        await create(there, pod("p"))
        assert await placed(there, "p") == "c"
    assert extender.verbs() == ["filter", "prioritize"]
    asked = extender.asked[0][1]
    assert asked["NodeNames"] is None
    assert {item["metadata"]["name"] for item in asked["Nodes"]["items"]} == {"a", "b", "c"}
    assert asked["Pod"]["spec"]["containers"][0]["image"] == "pause"
    assert asked["Nodes"]["items"][0]["status"]["capacity"]["cpu"] == "8"
    assert {item["metadata"]["name"] for item in extender.asked[1][1]["Nodes"]["items"]} == {"b", "c"}


async def test_refusals_are_told_and_any_event_wakes_the_pod() -> None:
    """The reasons stand in the message; a new node lets the Pod try again."""
    extender = PolicyExtender(refused={"a": "licence in use"}, impossible={"b": "no licence"})
    capable = VERBS + ", nodeCacheCapable: true"
    async with serving(extender) as url, world([node("a"), node("b")], config(f"urlPrefix: {url}, {capable}")) as there:
        await create(there, pod("p"))
        text = await message(there, "p")
        assert text.startswith("0/2 nodes are available: 1 licence in use, 1 no licence.")
        await there.call("POST", "/api/v1/nodes", node("c"))
        assert await placed(there, "p") == "c"
    assert extender.asked[0][1]["Nodes"] is None
    assert sorted(extender.asked[0][1]["NodeNames"]) == ["a", "b"]


async def test_a_failing_extender_ends_the_attempt_with_its_words() -> None:
    """A 500 of an extender that is not ignorable is the Pod's message."""
    extender = PolicyExtender(codes={"filter": 500})
    async with serving(extender) as url, world([node("a")], config(f"urlPrefix: {url}, {VERBS}")) as there:
        await create(there, pod("p"))
        assert await message(there, "p") == f"failed filter with extender at URL {url}/filter, code 500"


async def test_an_ignorable_extender_that_is_away_is_passed_over() -> None:
    """Nobody listens on the port, and the Pod is bound all the same."""
    away = "urlPrefix: 'http://127.0.0.1:9/x', ignorable: true, " + VERBS
    async with world([node("a"), node("b")], config(away)) as there:
        await create(there, pod("p"))
        assert await placed(there, "p") in ("a", "b")
        assert any("ignorable" in str(fields.get("message")) for _, _, fields in there.log.lines)


async def test_an_extender_asks_only_about_its_resources() -> None:
    """A Pod without the managed resource is never shown to it; with it, NodeResourcesFit ignores the resource."""
    extender = PolicyExtender(refused={"a": "no"})
    managed = "managedResources: [{name: example.com/x, ignoredByScheduler: true}]"
    async with serving(extender) as url:
        text = config(f"urlPrefix: {url}, {VERBS}, {managed}")
        async with world([node("a"), node("b")], text) as there:
            await create(there, pod("plain"))
            await placed(there, "plain")
            assert extender.asked == []
            wanting = pod("wanting")
            wanting["spec"]["containers"][0]["resources"]["limits"] = {"example.com/x": "1"}
            wanting["spec"]["containers"][0]["resources"]["requests"]["example.com/x"] = "1"
            await create(there, wanting)
            assert await placed(there, "wanting") == "b"
            assert extender.verbs() == ["filter"]


async def test_an_extender_binds() -> None:
    """The Binding is the extender's; a refusal is the Pod's message."""
    extender = PolicyExtender(errors={"bind": "not today"})
    async with serving(extender) as url, world([node("a")], config(f"urlPrefix: {url}, bindVerb: bind")) as there:
        await create(there, pod("p"))
        assert await message(there, "p") == "not today"

        async def bind(body: Any) -> str:
            target = {"apiVersion": "v1", "kind": "Node", "name": body["Node"]}
            meta = {"name": body["PodName"], "namespace": body["PodNamespace"], "uid": body["PodUID"]}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
            await there.call("POST", f"/api/v1/namespaces/default/pods/{body['PodName']}/binding", binding)
            return "bound, and yet I complain"

        extender.errors, extender.bind = {}, bind
        assert await placed(there, "p") == "a"
        await there.until(lambda: _seen(there, "scheduled"), "the Pod counts as scheduled")


async def _seen(there: World, name: str) -> bool:
    return there.counts.seen[name] > 0


async def test_an_extender_chooses_the_victims_node() -> None:
    """Of two nodes with one victim each the extender leaves one."""
    extender = PolicyExtender(only_victims_on="b")
    async with serving(extender) as url:
        text = config(f"urlPrefix: {url}, preemptVerb: preempt")
        low = [pod(f"low-{name}", cpu="7", nodeName=name, terminationGracePeriodSeconds=0) for name in "ab"]
        high = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 10,
        }
        async with world([node("a"), node("b"), high, *low], text) as there:
            await create(there, pod("high", cpu="6", priorityClassName="high"))

            async def gone() -> bool:
                listed = await there.call("GET", "/api/v1/namespaces/default/pods")
                going = [one for one in listed["items"] if one["metadata"].get("deletionTimestamp")]
                names = {one["metadata"]["name"] for one in listed["items"]} - {
                    one["metadata"]["name"] for one in going
                }
                return "low-b" not in names and "low-a" in names

            await there.until(gone, "low-b has to go")
    assert set(extender.asked[0][1]["NodeNameToVictims"]) == {"a", "b"}


async def test_https_is_verified_only_against_a_ca() -> None:
    """enableHTTPS alone does not verify, as upstream; a CA that did not sign the certificate refuses it."""
    extender = PolicyExtender(refused={"a": "no"})
    other = base64.b64encode(_certificate_of_another_server()).decode()
    async with serving(extender, ServingCertificate().context) as url:
        text = config(f"urlPrefix: {url}, {VERBS}, enableHTTPS: true")
        async with world([node("a"), node("b")], text) as there:
            await create(there, pod("p"))
            assert await placed(there, "p") == "b"
        text = config(f"urlPrefix: {url}, {VERBS}, enableHTTPS: true, tlsConfig: {{caData: {other}}}")
        async with world([node("a"), node("b")], text) as there:
            await create(there, pod("p"))
            assert "certificate verify failed" in await message(there, "p")


def _certificate_of_another_server() -> bytes:
    """PEM of a self-signed certificate that nobody here serves with."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another")])
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    built = built.not_valid_after(now + datetime.timedelta(days=1))
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

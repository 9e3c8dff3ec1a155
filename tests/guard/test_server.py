"""The webhook over HTTP, kopf inside: every request gets an answer, reviews in the API server's form."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from scheduler.api.admission import review_problem
from scheduler.api.kinds import RESOURCE_CLAIM
from scheduler.dra.devices import DeviceKey
from scheduler.dra.judge import Refusal
from scheduler.edge.credentials import insecure
from scheduler.embedded import EmbeddedServer
from scheduler.errors import ConfigError
from scheduler.guard import frame
from scheduler.guard.certificates import Lifetimes, Pair, first_set, make_authority
from scheduler.guard.intake import BODY_MAX_BYTES
from scheduler.guard.process import ask_for_certificates
from scheduler.guard.reviewer import Answer, NotActiveError
from scheduler.guard.server import AdmissionServer

REFUSAL = Refusal("held", DeviceKey("d", "p", "a"), "device d/p/a is held by claim ns/other")


def review(**request: Any) -> dict[str, Any]:
    """An AdmissionReview of a claim's status; keywords replace fields of the request."""
    item = {
        "metadata": {"name": "one", "namespace": "ns", "uid": "u1", "resourceVersion": "7"},
        "spec": {"devices": {"requests": []}},
        "status": {},
    }
    fields = {
        "uid": "review-1",
        "operation": "UPDATE",
        "subResource": "status",
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "userInfo": {"username": "system:kube-scheduler"},
        "object": item,
        "oldObject": item,
        "dryRun": False,
    }
    request = {name: value for name, value in (fields | request).items() if value is not None}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


class Webhook:
    """The server, what reviews answer, and what was asked. ``inactive``: why this replica does not answer."""

    def __init__(self) -> None:
        self.answer: Answer | Exception = Answer(True)
        self.asked: list[tuple[str, str, bool]] = []
        self.errors: list[BaseException] = []
        self.observed: list[tuple[str, int]] = []
        self.inactive = ""
        self.server = AdmissionServer(
            "127.0.0.1",
            0,
            None,
            self._active,
            observe=lambda mode, status, duration_s: self.observed.append((mode, status)),
            on_error=self.errors.append,
        )

    def _active(self) -> None:
        if self.inactive:
            raise NotActiveError(self.inactive)

    async def review(self, mode: str, old: Any, new: Any, dry_run: bool) -> Answer:
        """What kopf calls."""
        self.asked.append((mode, new.key, dry_run))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def post(self, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """HTTP status and decoded answer."""
        # A stream: aiohttp warns about large bodies in one piece.
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.server.port}") as session,
            session.post(path, data=data) as answer,
        ):
            return answer.status, await answer.json()


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    """A webhook that serves, with kopf on an embedded API server."""
    api = EmbeddedServer()
    url = await api.start()
    made, ready, stop = Webhook(), asyncio.Event(), asyncio.Event()
    frame.quiet_kopf()
    kopf = asyncio.create_task(frame.run_kopf(insecure(url), RESOURCE_CLAIM, made.server, made.review, ready, stop))
    listening = asyncio.create_task(made.server.listening.wait())
    await asyncio.wait([kopf, listening], return_when=asyncio.FIRST_COMPLETED)
    yield made
    stop.set()
    kopf.cancel()
    with suppress(asyncio.CancelledError):
        await kopf
    await api.stop()


async def test_allowed_refused_and_warned(webhook: Webhook) -> None:
    """uid and allowed come back; a refusal is a 403 with the text; mode warn gives warnings."""
    assert await webhook.post("/enforce", review()) == (
        200,
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": "review-1", "allowed": True},
        },
    )
    webhook.answer = Answer(False, (REFUSAL,))
    _, refused = await webhook.post("/enforce", review())
    assert refused["response"]["allowed"] is False
    assert refused["response"]["status"] == {"message": REFUSAL.text, "code": 403}
    webhook.answer = Answer(True, (REFUSAL,), True)
    _, warned = await webhook.post("/warn", review(dryRun=True))
    assert warned["response"] == {"uid": "review-1", "allowed": True, "warnings": [REFUSAL.text]}
    assert webhook.asked == [("enforce", "ns/one", False), ("enforce", "ns/one", False), ("warn", "ns/one", True)]
    assert webhook.observed == [("enforce", 200), ("enforce", 200), ("warn", 200)]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 400, "the body is no JSON"),
        (b"no json", 400, "the body is no JSON"),
        (b"\xff\xfe{}", 400, "the body is no JSON"),
        (b"[" * 100_000, 400, "the body is no JSON"),
        (b"[1, 2]", 400, "the body is no object"),
        (b"{}", 400, "kind is None, not AdmissionReview"),
        ({"kind": "AdmissionReview"}, 400, "request is missing"),
        (review(uid=None), 400, "request.uid is missing"),
        (review(resource=None), 400, "request.resource is missing"),
        (review(resource={"group": "x"}), 400, "request.resource.version is missing"),
        (review(object=None), 400, "request.object is missing"),
        (review(oldObject="text"), 400, "request.oldObject is missing"),
        (review(userInfo=None), 400, "request.userInfo is missing"),
        (review(object={"metadata": 1}), 400, "request.object.metadata is missing"),
        (review(oldObject={"metadata": {"uid": "u", "resourceVersion": "x"}}), 400, "resourceVersion is no number"),
        (review(resource={"group": "", "version": "v1", "resource": "pods"}), 400, "cannot be answered"),
        (b" " * (BODY_MAX_BYTES + 1), 413, "larger than"),
    ],
)
async def test_what_is_no_review_gets_a_clear_answer(webhook: Webhook, body: object, status: int, text: str) -> None:
    """Nothing reaches the judgement, and the next review is answered as ever."""
    found, answer = await webhook.post("/enforce", body)
    assert (found, webhook.asked, webhook.errors) == (status, [], [])
    assert text in answer["error"]
    assert (await webhook.post("/enforce", review()))[0] == 200


async def test_parameters_of_any_depth_are_no_reason(webhook: Webhook) -> None:
    """The API server stores what drivers' users nest thousands of levels deep; a claim with that is judged like any."""
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    body = (
        json.dumps(review())
        .encode()
        .replace(
            b'"devices": {"requests": []}',
            b'"devices": {"requests": [], "config": [{"opaque": {"driver": "d", "parameters": %b}}]}' % deep,
        )
    )
    assert body.count(b"opaque") == 2
    status, answer = await webhook.post("/enforce", body)
    assert (status, answer.get("response", answer)) == (200, {"uid": "review-1", "allowed": True})
    assert webhook.asked == [("enforce", "ns/one", False)]


async def test_strangers_are_refused_where_callers_are_known(tmp_path: Path) -> None:
    """With --client-ca-file only who shows a certificate of these authorities is answered."""
    now = time.time()
    ours = first_set(("127.0.0.1",), Lifetimes(), now)
    callers, others = make_authority(3600.0, now), make_authority(3600.0, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(written(tmp_path / "server.pem", ours.serving))
    authority = tmp_path / "callers.pem"
    authority.write_bytes(callers.certificate)
    ask_for_certificates(context, str(authority))
    with pytest.raises(ConfigError, match="--client-ca-file"):
        ask_for_certificates(context, str(tmp_path / "none.pem"))

    async def answer(document: Any, **_: Any) -> Any:
        return {"uid": document["request"]["uid"]}

    server = AdmissionServer("127.0.0.1", 0, context, lambda: None, known_callers=True)
    async with aclosing(server(answer)) as serving:
        await anext(serving)
        url = f"https://127.0.0.1:{server.port}/enforce"
        known, other = (
            written(tmp_path / f"{name}.pem", client_certificate(signer))
            for name, signer in (("known", callers), ("other", others))
        )
        assert await call(url, ours.bundle, "") == (401, {"error": "a client certificate is needed (--client-ca-file)"})
        assert await call(url, ours.bundle, known) == (200, {"uid": "review-1"})
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await call(url, ours.bundle, other)


def client_certificate(authority: Pair) -> Pair:
    """What an API server would show."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-apiserver")]))
        .issuer_name(signer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(signer.not_valid_before_utc)
        .not_valid_after(signer.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem), private)


def written(file: Path, pair: Pair) -> str:
    """A file with certificate and key."""
    file.write_bytes(pair.certificate + pair.key)
    return str(file)


async def call(url: str, trusted: bytes, certificate: str) -> tuple[int, Any]:
    """POST a review over TLS, with a client certificate or without."""
    context = ssl.create_default_context(cadata=trusted.decode())
    if certificate:
        context.load_cert_chain(certificate)
    async with aiohttp.ClientSession() as session, session.post(url, json=review(), ssl=context) as answer:
        return answer.status, await answer.json()


async def test_a_claim_that_cannot_be_read_is_refused_with_the_field(webhook: Webhook) -> None:
    """A claim whose status has another shape: allowed false, 422, the path of the field."""
    broken = review()["request"]["object"] | {"status": {"allocation": {"devices": {"results": "many"}}}}
    _, answer = await webhook.post("/enforce", review(object=broken))
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["code"] == 422
    assert "$.status.allocation.devices.results" in answer["response"]["status"]["message"]


async def test_unknown_paths_are_not_taken_for_a_mode(webhook: Webhook) -> None:
    """kopf would allow what no handler looks at."""
    status, answer = await webhook.post("/enforced", review())
    assert status == 404
    assert "paths: /enforce, /warn" in answer["error"]


async def test_a_replica_that_stands_by_says_503(webhook: Webhook) -> None:
    """Before the judgement and in the middle of it."""
    webhook.inactive = "standing by"
    assert await webhook.post("/enforce", review()) == (503, {"error": "standing by"})
    webhook.inactive, webhook.answer = "", NotActiveError("the lease was lost meanwhile")
    assert await webhook.post("/enforce", review()) == (503, {"error": "the lease was lost meanwhile"})
    assert webhook.errors == []


async def test_an_error_of_ours_is_no_refusal(webhook: Webhook) -> None:
    """500, so that the failurePolicy decides; the log gets the error."""
    webhook.answer = RuntimeError("boom")
    status, answer = await webhook.post("/enforce", review())
    assert (status, answer) == (500, {"error": "the guard failed: RuntimeError: boom"})
    assert [str(error) for error in webhook.errors] == ["boom"]


async def test_kopf_remembers_no_claim(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory of reviewed objects is never cleared: a thousand claims must leave nothing."""
    made: list[Any] = []
    remember = frame._Forgetful.recall_memo

    async def recall(self: Any, *positional: Any, **named: Any) -> Any:
        made.append(self)
        return await remember(self, *positional, **named)

    monkeypatch.setattr(frame._Forgetful, "recall_memo", recall)
    for index in range(20):
        item = review()["request"]["object"]
        item["metadata"]["uid"] = f"u{index}"
        await webhook.post("/enforce", review(object=item, oldObject=item))
    assert len(made) == 20
    assert list(made[0].iter_all_memories()) == []


def test_a_whole_review_has_no_problem() -> None:
    """The check passes what the API server sends."""
    assert review_problem(review()) == ""

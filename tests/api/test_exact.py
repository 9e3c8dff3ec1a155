"""Changes in protobuf: what is asked for is there afterwards, everything else is the same byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api import exact
from scheduler.api.exact import ExactChange, NotProtobufError, changed, identity
from scheduler.api.resource import FINALIZER, ConsumerReference

field = exact._field
TEXTS = st.text(max_size=200)
UIDS = st.sampled_from(["u1", "u2", "u3"])
CONSUMERS = st.builds(lambda name, uid: ConsumerReference(resource="pods", name=name, uid=uid), TEXTS, UIDS)
SPEC = field(2, b"\x0a\x05" + b'{"a" ' + b"\x10\x96\x01")
UNKNOWN = field(77, b"from a newer server") + b"\x98\x06\x2a" + b"\xa5\x06abcd" + b"\xa1\x06abcdefgh"


def metadata(uid: str, revision: str, finalizers: list[str]) -> bytes:
    known = field(1, b"name") + field(5, uid.encode()) + field(6, revision.encode())
    return known + b"".join(field(14, f.encode()) for f in finalizers) + field(17, b"managed")


def status(consumers: list[ConsumerReference]) -> bytes:
    return field(1, b"allocation {") + b"".join(field(2, exact._consumer(c)) for c in consumers) + field(4, b"devices")


def body(meta: bytes, state: bytes | None) -> bytes:
    claim = field(1, meta) + SPEC + (b"" if state is None else field(3, state)) + UNKNOWN
    return b"k8s\x00" + field(1, b"\x0a\x02v1") + field(2, claim) + field(3, b"") + field(4, b"")


def test_who_it_is() -> None:
    assert identity(body(metadata("uid-7", "42", []), None)) == ("uid-7", "42")


@given(TEXTS, TEXTS, st.lists(st.sampled_from(["a", FINALIZER, "b"]), max_size=4), st.booleans())
def test_a_finalizer_comes_and_goes(uid: str, revision: str, finalizers: list[str], there: bool) -> None:
    before = body(metadata(uid, revision, finalizers), status([]))
    others = [name for name in finalizers if name != FINALIZER]
    kept = field(1, b"name") + field(5, uid.encode()) + field(6, revision.encode())
    kept += b"".join(field(14, name.encode()) for name in others) + field(17, b"managed")
    wanted = kept + (field(14, FINALIZER.encode()) if there else b"")
    assert changed(before, ExactChange(finalizer=there)) == body(wanted, status([]))


@given(st.lists(CONSUMERS, max_size=4), st.lists(CONSUMERS, max_size=3, unique_by=lambda c: c.uid), st.just("") | UIDS)
def test_consumers_come_and_go(before: list[ConsumerReference], add: list[ConsumerReference], remove: str) -> None:
    change = ExactChange(add=tuple(add), remove=remove)
    gone = {remove} | {c.uid for c in add}
    kept = [c for c in before if c.uid not in gone]
    after = changed(body(metadata("u", "1", []), status(before)), change)
    if not add and not remove:
        assert after == body(metadata("u", "1", []), status(before))
        return
    wanted = field(1, b"allocation {") + b"".join(field(2, exact._consumer(c)) for c in kept) + field(4, b"devices")
    assert after == body(metadata("u", "1", []), wanted + b"".join(field(2, exact._consumer(c)) for c in add))


def test_a_claim_without_status_gets_one() -> None:
    one = ConsumerReference(resource="pods", name="p", uid="u1")
    after = changed(body(metadata("u", "1", []), None), ExactChange(add=(one,)))
    assert field(3, field(2, exact._consumer(one))) in after


@given(st.binary(max_size=60), st.booleans())
def test_what_is_no_object_is_refused(garbage: bytes, marked: bool) -> None:
    for function in (identity, lambda data: changed(data, ExactChange(finalizer=True))):
        try:
            function((b"k8s\x00" if marked else b"") + garbage)
        except NotProtobufError:
            continue


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_cut_object_is_refused(cut: int) -> None:
    whole = body(metadata("u", "1", ["a"]), status([]))
    with pytest.raises(NotProtobufError):
        changed(whole[:-cut], ExactChange(finalizer=True))


def test_json_is_refused() -> None:
    with pytest.raises(NotProtobufError, match="does not begin as one"):
        identity(b'{"kind": "ResourceClaim"}')

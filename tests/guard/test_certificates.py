"""Rotation: the serving certificate is always signed by an authority that everybody has had for long enough."""

from __future__ import annotations

import random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from scheduler.guard.certificates import (
    CertificateSet,
    Lifetimes,
    due_step,
    expires_at,
    first_set,
    from_values,
    hosts_of,
    make_authority,
    sign,
)

HOSTS = ("guard.ns.svc", "127.0.0.1")
NOW = 1_800_000_000.0
LIFETIMES = Lifetimes(serving_s=900.0, authority_s=3000.0, overlap_s=100.0)


def signed_by(stored: CertificateSet) -> list[bytes]:
    """The authorities of the bundle that have signed the serving certificate."""
    serving = x509.load_pem_x509_certificate(stored.serving.certificate)
    found = []
    for authority in x509.load_pem_x509_certificates(stored.bundle):
        try:
            serving.verify_directly_issued_by(authority)
        except Exception:
            continue
        found.append(authority.public_bytes(Encoding.PEM))
    return found


def test_the_first_set_is_good_for_its_hosts() -> None:
    """Names and addresses; the authority may sign, the serving certificate may not."""
    stored = first_set(HOSTS, LIFETIMES, NOW)
    assert hosts_of(stored.serving) == set(HOSTS)
    assert len(signed_by(stored)) == 1
    assert due_step(stored, HOSTS, LIFETIMES, NOW, NOW) is None
    assert expires_at(stored.serving.certificate) == NOW + 900
    for pem, is_authority in ((stored.authority.certificate, True), (stored.serving.certificate, False)):
        basic = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.BasicConstraints)
        assert basic.value.ca is is_authority


def test_a_set_survives_its_secret() -> None:
    """What is written can be read back, in each state of a rotation."""
    stored = first_set(HOSTS, LIFETIMES, NOW)
    told = []
    for turn in range(4):
        assert from_values(stored.values()) == stored
        now = NOW + 2500 + 150 * turn
        step = due_step(stored, HOSTS, LIFETIMES, now, NOW)
        assert step is not None or turn == 3
        if step is not None:
            stored = step[0]
            told.append(step[1])
    assert told == [
        "a new authority is published beside the present one",
        "the new authority signs, the old one is still trusted",
        "the old authority is not trusted any more",
    ]


@pytest.mark.parametrize("damage", ["authority.key", "tls.crt", "changed", "tls.key"])
def test_a_damaged_secret_counts_as_none(damage: str) -> None:
    """A part that is missing, is no PEM or belongs to another key."""
    values = first_set(HOSTS, LIFETIMES, NOW).values()
    other = first_set(HOSTS, LIFETIMES, NOW).values()
    assert from_values({name: value for name, value in values.items() if name != damage}) is None
    assert from_values({**values, damage: b"-----nonsense"}) is None
    if damage != "changed":
        assert from_values({**values, damage: other[damage]}) is None


def test_the_serving_certificate_is_renewed_in_its_last_third_or_for_other_hosts() -> None:
    """600 of 900 s pass in peace."""
    stored = first_set(HOSTS, LIFETIMES, NOW)
    assert due_step(stored, HOSTS, LIFETIMES, NOW + 590, NOW) is None
    step = due_step(stored, HOSTS, LIFETIMES, NOW + 610, NOW)
    assert step is not None
    assert expires_at(step[0].serving.certificate) == NOW + 610 + 900
    step = due_step(stored, (*HOSTS, "other"), LIFETIMES, NOW, NOW)
    assert step is not None
    assert hosts_of(step[0].serving) == {*HOSTS, "other"}


def test_an_expired_authority_is_replaced_at_once() -> None:
    """After a long sleep nothing is trusted any more: no use in being gentle."""
    stored = first_set(HOSTS, LIFETIMES, NOW)
    step = due_step(stored, HOSTS, LIFETIMES, NOW + 4000, NOW)
    assert step is not None
    assert step[0].authority != stored.authority
    assert step[0].previous == b""


def test_a_serving_certificate_does_not_outlive_its_authority() -> None:
    """Else it would be served when nobody trusts it."""
    authority = make_authority(100.0, NOW)
    assert expires_at(sign(authority, HOSTS, 900.0, NOW + 50).certificate) == NOW + 100


@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_ever_shown_a_certificate_he_does_not_trust(seed: int) -> None:
    """Turns at any times, verifiers that learn of the bundle late (within the overlap): every handshake succeeds."""
    rng = random.Random(seed)
    pauses, lag = [rng.randint(5, 120) for _ in range(80)], rng.randint(0, 60)
    now = NOW
    stored = first_set(HOSTS, LIFETIMES, now)
    published, bundle = now, stored.bundle
    history = [(now, bundle)]
    authorities = {stored.authority.certificate}
    for pause in pauses:
        now += pause
        step = due_step(stored, HOSTS, LIFETIMES, now, published)
        if step is not None:
            stored = step[0]
            authorities.add(stored.authority.certificate)
        if stored.bundle != bundle:
            bundle, published = stored.bundle, now
            history.append((now, bundle))
        trusted = [pem for at, pem in history if at <= now - lag] or [history[0][1]]
        assert any(signer in trusted[-1] for signer in signed_by(stored)), "a verifier that lags behind refuses"
        assert expires_at(stored.serving.certificate) > now
    assert len(authorities) > 1

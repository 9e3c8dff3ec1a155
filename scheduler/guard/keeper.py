"""Keeps the guard's own certificates: in a Secret, in the TLS context of this replica, and in the caBundle.

Every replica serves what the Secret holds. The active one writes it, takes the steps of the rotation, and puts the
authorities into the webhook configuration; a step is taken only after the configuration was seen with the present ones.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from scheduler.api.admission import (
    Secret,
    ca_bundle_patch,
    decode_secret,
    decode_webhook_configuration,
    secret_body,
    secret_patch,
    secret_path,
    webhook_configuration_path,
)
from scheduler.api.bodies import JSON_PATCH, MERGE_PATCH
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import NotFound
from scheduler.errors import ClusterError
from scheduler.guard.certificates import CertificateSet, Lifetimes, Pair, due_step, expires_at, first_set, from_values

CHECK_S = 10.0


class CertificateKeeper:
    """``context`` is the TLS context of the server; ``loaded`` is set once it has a certificate.

    ``leads``: whether this replica may write. ``clock``: seconds since the epoch. ``tell`` gets each step, ``trouble``
    each failure, in words.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        namespace: str,
        secret: str,
        configuration: str,
        hosts: Sequence[str],
        lifetimes: Lifetimes,
        leads: Callable[[], bool],
        clock: Callable[[], float],
        tell: Callable[[str], None] = lambda text: None,
        trouble: Callable[[str], None] = lambda text: None,
        check_s: float = CHECK_S,
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.loaded = asyncio.Event()
        self.expires_at_s = 0.0
        self._client, self._namespace, self._secret, self._configuration = client, namespace, secret, configuration
        self._hosts, self._lifetimes, self._leads, self._clock = hosts, lifetimes, leads, clock
        self._tell, self._trouble, self._check_s = tell, trouble, check_s
        self._served: Pair | None = None
        # The authorities that the configuration was seen with, and since when.
        self._published: tuple[bytes, float] = (b"", 0.0)
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look now: this replica has become active."""
        self._wake.set()

    async def run(self) -> None:
        """Keep up until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.turn()
            except (ClusterError, msgspec.DecodeError, OSError) as error:
                self._trouble(f"certificates: {error}")
            try:
                await asyncio.wait_for(self._wake.wait(), self._check_s if self.loaded.is_set() else 1.0)
            except TimeoutError:
                continue

    async def turn(self) -> None:
        """Read the Secret, serve what it holds; as the active replica also write what is missing or due."""
        secret = await self._read()
        stored = None if secret is None else from_values(secret.values())
        if stored is not None:
            self._serve(stored)
        if not self._leads():
            return
        if stored is None:
            stored = first_set(self._hosts, self._lifetimes, self._clock())
            await self._write(secret, stored)
            self._tell("an authority and a serving certificate were made")
            self._serve(stored)
        if not await self._publish(stored):
            return
        now = self._clock()
        if self._published[0] != stored.bundle:
            self._published = stored.bundle, now
        step = due_step(stored, self._hosts, self._lifetimes, now, self._published[1])
        if step is not None:
            following, text = step
            await self._write(await self._read(), following)
            self._serve(following)
            await self._publish(following)
            self._tell(text)

    async def _read(self) -> Secret | None:
        try:
            return decode_secret((await self._client.call("GET", secret_path(self._namespace, self._secret))).body)
        except NotFound:
            return None

    async def _write(self, secret: Secret | None, wanted: CertificateSet) -> None:
        if secret is None:
            body = secret_body(self._namespace, self._secret, wanted.values())
            await self._client.call("POST", secret_path(self._namespace), body)
        else:
            path = secret_path(self._namespace, self._secret)
            await self._client.call("PATCH", path, secret_patch(secret, wanted.values()), MERGE_PATCH)

    async def _publish(self, stored: CertificateSet) -> bool:
        """Put the bundle into the configuration; True when it was there already."""
        path = webhook_configuration_path(self._configuration)
        try:
            configuration = decode_webhook_configuration((await self._client.call("GET", path)).body)
        except NotFound:
            self._trouble(f"there is no ValidatingWebhookConfiguration {self._configuration}: nobody asks the guard")
            return False
        patch = ca_bundle_patch(configuration, stored.bundle)
        if patch is None:
            return True
        await self._client.call("PATCH", path, patch, JSON_PATCH)
        return False

    def _serve(self, stored: CertificateSet) -> None:
        """Hand the pair to TLS, which reads only files: they exist for a moment, in a folder only we can open."""
        if stored.serving == self._served:
            return
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "serving.pem"
            file.touch(mode=0o600)
            file.write_bytes(stored.serving.key + stored.serving.certificate)
            self.context.load_cert_chain(file)
        self._served = stored.serving
        self.expires_at_s = expires_at(stored.serving.certificate)
        self.loaded.set()

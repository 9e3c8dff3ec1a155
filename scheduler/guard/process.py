"""``dra-scheduler guard``: one replica from start to exit code.

0 after SIGTERM or SIGINT, 1 when the Lease was lost or something that must run has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from scheduler import __version__
from scheduler.api.bodies import Event, ObjectReference
from scheduler.api.resource import ResourceClaim
from scheduler.api.versions import ResourceKinds
from scheduler.dra.admissions import HELD_MAX, Admissions
from scheduler.dra.features import Features
from scheduler.edge.auth import Authorizer
from scheduler.edge.bad_objects import BadObject
from scheduler.edge.beat import Beat
from scheduler.edge.certificates import ServingCertificate
from scheduler.edge.client import ApiClient, OpenGate
from scheduler.edge.credentials import Access, find_access
from scheduler.edge.discovery import discover_kinds
from scheduler.edge.election import ElectionSettings
from scheduler.edge.events import EventRecorder
from scheduler.edge.http import Check, HealthServer, ping
from scheduler.edge.leader import LeaderElector
from scheduler.edge.logging import configure_logging, get_logger
from scheduler.edge.loop_trouble import run_to_end
from scheduler.errors import ConfigError
from scheduler.guard.activity import Activity
from scheduler.guard.frame import quiet_kopf, run_kopf
from scheduler.guard.keeper import CertificateKeeper
from scheduler.guard.metrics import GuardMetrics
from scheduler.guard.options import GuardOptions
from scheduler.guard.reads import Reads
from scheduler.guard.reviewer import Answer, Mode, Reviewer
from scheduler.guard.server import AdmissionServer

CONTROLLER = "dra-scheduler-guard"
LOOP_STUCK_S = 20.0
SWEEP_S = 1.0
DRAIN_S = 20.0
FILE_CHECK_S = 10.0
_IN_FLIGHT_GRACE_S = 0.2


class Guard:
    """One process: watches, the Lease, the webhook, the health port. ``run`` answers with the exit code."""

    def __init__(self, options: GuardOptions, access: Access, client: ApiClient, kinds: ResourceKinds) -> None:
        self.options, self.access, self.client, self.kinds = options, access, client, kinds
        self.log = get_logger(CONTROLLER)
        self.metrics = GuardMetrics()
        self.book = Admissions(guard_features(options.feature_gates))
        self.beat = Beat()
        self.host = socket.gethostname()
        self._loop = asyncio.get_running_loop()
        self._ended, self._leads = asyncio.Event(), asyncio.Event()
        self._lost = ""
        self._told_full = False
        self.elector = self._elector()
        client.gate = self.elector
        self.reads = Reads(client, self.book, kinds, on_bad=self._bad_object, on_trouble=self._trouble)
        self.activity = Activity(
            self.elector,
            lambda: self.reads.synced,
            self.reads.relist_claims,
            lifetime_s=options.api_request_timeout_s,
            tell=self.log.info,
        )
        self.reviewer = Reviewer(self.book, self.reads, self.activity.check, time.monotonic)
        self.recorder = EventRecorder(client, on_trouble=self._trouble)
        self.files, self.keeper = self._certificates()
        self.server = AdmissionServer(
            options.bind_address,
            options.webhook_port,
            self._context(),
            self.activity.check,
            known_callers=bool(options.client_ca_file),
            observe=self.metrics.requested,
            on_error=lambda error: self.log.error("review failed", error=repr(error), exc_info=error),
        )

    def _elector(self) -> LeaderElector:
        options = self.options
        settings = ElectionSettings(
            identity=f"{self.host}_{uuid.uuid4()}",
            namespace=options.namespace,
            name=options.lease_name,
            lease_duration_s=options.lease_duration_s,
            renew_deadline_s=options.renew_deadline_s,
            retry_period_s=options.retry_period_s,
        )
        return LeaderElector(
            self.access,
            settings,
            self.beat,
            on_leading=self._note_leading,
            on_lost=self._note_lost,
            exit_process=os._exit,
            on_trouble=lambda text: self.log.warning("leader election", message=text),
        )

    # Called in the election's thread.

    def _note_leading(self) -> None:
        self._loop.call_soon_threadsafe(self._leads.set)

    def _note_lost(self, reason: str) -> None:
        self._lost = reason or "lease lost"
        self.log.error("Leaderelection lost", reason=reason)
        self._loop.call_soon_threadsafe(self._ended.set)

    # In the loop again.

    def _certificates(self) -> tuple[ServingCertificate | None, CertificateKeeper | None]:
        options = self.options
        if options.tls_cert_file:
            return ServingCertificate(options.tls_cert_file, options.tls_private_key_file), None
        keeper = CertificateKeeper(
            self.client,
            namespace=options.namespace,
            secret=options.certificate_secret,
            configuration=options.webhook_configuration,
            hosts=options.hosts,
            lifetimes=options.lifetimes,
            leads=lambda: self.elector.leading,
            clock=time.time,
            tell=lambda text: self.log.info("certificates", message=text),
            trouble=self._trouble,
            check_s=min(FILE_CHECK_S, max(0.2, options.lifetimes.overlap_s / 3)),
        )
        return None, keeper

    def _context(self) -> ssl.SSLContext:
        if self.files is not None:
            context = self.files.context
        else:
            assert self.keeper is not None  # one of the two is made
            context = self.keeper.context
        if self.options.client_ca_file:
            ask_for_certificates(context, self.options.client_ca_file)
        return context

    def _bad_object(self, bad: BadObject) -> None:
        self.metrics.bad_objects.labels(bad.kind.name).inc()
        self.log.error("undecodable object", kind=bad.kind.name, object=bad.key, problem=bad.problem, kept=bad.kept)

    def _trouble(self, text: str) -> None:
        self.log.warning("trouble", message=text)

    # One review.

    async def review(self, mode: Mode, old: ResourceClaim, new: ResourceClaim, dry_run: bool) -> Answer:
        """Ask the reviewer; tell log, metrics and, unless nothing is to be left behind, an Event of the claim."""
        answer = await self.reviewer.review(mode, old, new, dry_run)
        self.metrics.answered(mode, answer, dry_run)
        if answer.refusals:
            self._log_refusals(old.key, answer, dry_run)
            if not dry_run:
                # The book's version: the body's may be anything.
                self.recorder.record(self._event(self.book.claims.get(old.uid, old), answer))
        return answer

    def _log_refusals(self, key: str, answer: Answer, dry_run: bool) -> None:
        """A line for each, but one only for all that have no room."""
        if not any(refusal.reason == "full" for refusal in answer.refusals):
            what = "warned" if answer.allowed else "refused"
            self.log.warning(what, claim=key, message=answer.text, dry_run=dry_run)
        elif not self._told_full:
            self._told_full = True
            self.log.error("no room for reservations", claim=key, message=answer.text, held=self.book.held)

    def _event(self, claim: ResourceClaim, answer: Answer) -> Event:
        meta = claim.metadata
        regarding = ObjectReference(
            "ResourceClaim", self.kinds.claim.api_version, meta.namespace, meta.name, meta.uid, meta.resourceVersion
        )
        reason = "AllocationConflict" if answer.allowed else "AllocationRefused"
        note = f"stored all the same (mode warn): {answer.text}" if answer.allowed else answer.text
        return Event("Warning", reason, "Allocating", note, regarding, CONTROLLER, f"{CONTROLLER}-{self.host}")

    # The life of the replica.

    async def run(self) -> int:
        """Until a signal, a lost Lease, or the end of something that must run."""
        ready, stop = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(work) for work in self._background()]
        health = await self._serve_health()
        # kopf cancels at its end every task that is younger than itself: it comes last.
        kopf = asyncio.create_task(run_kopf(self.access, self.kinds.claim, self.server, self.review, ready, stop))
        ended = asyncio.create_task(self._ended.wait())
        started = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait([kopf, started, ended], return_when=asyncio.FIRST_COMPLETED)
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._ended.set)
            await asyncio.wait([kopf, ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
            return await self._stop(kopf, stop, tasks)
        finally:
            for task in (*tasks, ended, started):
                task.cancel()
            if health is not None:
                await health.stop()

    def _background(self) -> list[Any]:
        works: list[Any] = [reflector.run() for reflector in self.reads.reflectors]
        works += [self._lead(), self._sweep_forever(), self._keep_beating(), self.recorder.run()]
        works.append(self.keeper.run() if self.keeper is not None else self._reload_files())
        if self.access.renewable:
            works.append(self.access.keep_renewed(report=self._trouble))
        return works

    async def _lead(self) -> None:
        """Stand for election once everything is known; settle once elected; then stay."""
        await self.reads.wait_synced()
        self.log.info("caches synced", claims=len(self.book.claims), slices=len(self.book.slices))
        self.elector.start()
        await self._leads.wait()
        self.log.info("became leader")
        if self.keeper is not None:
            self.keeper.wake()
        await self.activity.settle()
        await asyncio.Event().wait()

    async def _keep_beating(self) -> None:
        while True:
            self.beat.touch()
            await asyncio.sleep(0.5)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._told_full = self._told_full and self.book.held > HELD_MAX / 2
            old = self.book.expired(time.monotonic(), self.options.api_request_timeout_s)
            if old:
                await self.reads.settle(old)
                left = {reservation.entry for reservation in self.book.reservations()}
                self.metrics.expired.inc(sum(reservation.entry not in left for reservation in old))

    async def _reload_files(self) -> None:
        assert self.files is not None
        while True:
            await asyncio.sleep(FILE_CHECK_S)
            try:
                if await asyncio.to_thread(self.files.reload):
                    self.log.info("certificates", message="the certificate file has changed and was loaded")
            except ConfigError as error:
                self._trouble(f"the old certificate stays in use: {error}")

    async def _stop(self, kopf: asyncio.Task[None], stop: asyncio.Event, tasks: list[asyncio.Task[Any]]) -> int:
        """Answer nothing more, wait for what was admitted, then give the Lease back if nothing is open."""
        broken = self._failure([kopf, *tasks])
        self.activity.stopping = True
        if self._lost or broken:
            if broken:
                self.log.error("ended by an error", error=broken)
            await asyncio.to_thread(self.elector.stop, False)
        else:
            await asyncio.sleep(_IN_FLIGHT_GRACE_S)
            clean = self.activity.settled and await self._drained()
            await self.recorder.drain(2.0)
            if not clean and self.elector.leading:
                self.log.warning("the lease is left to run out: something admitted has not been seen stored")
            await asyncio.to_thread(self.elector.stop, clean)
        stop.set()
        # Told to stop, kopf waits five seconds for every task younger than itself, ours too; cancelled, it ends.
        kopf.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await asyncio.wait_for(kopf, 10.0)
        return 1 if self._lost or broken else 0

    @staticmethod
    def _failure(tasks: list[asyncio.Task[Any]]) -> str:
        """What ended a task that must run, "" when all run or were told to stop."""
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                return f"{type(error).__name__}: {error}"
        return ""

    async def _drained(self) -> bool:
        """True once every reservation is settled; False when that takes too long."""
        deadline_s = self._loop.time() + DRAIN_S
        while self.book.reservations():
            if self._loop.time() > deadline_s:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _serve_health(self) -> HealthServer | None:
        options = self.options
        if not options.secure_port:
            return None

        def metrics() -> tuple[bytes, str]:
            self.metrics.active.set(0 if self.activity.why_not() else 1)
            self.metrics.reservations.set(len(self.book.reservations()))
            self.metrics.certificate.set(self.keeper.expires_at_s if self.keeper is not None else 0)
            return self.metrics.render()

        reviewer = ApiClient(self.access, gate=OpenGate())
        server = HealthServer(
            self._checks(),
            metrics,
            host=options.bind_address,
            port=options.secure_port,
            certificate=ServingCertificate(),
            authorizer=Authorizer(reviewer),
            trust_loopback=options.trust_loopback,
            on_trouble=self._trouble,
        )
        await server.start()
        return server

    def _checks(self) -> Mapping[str, Mapping[str, Check]]:
        def beat() -> str:
            return "" if self.beat.age_s() < LOOP_STUCK_S else f"the loop has not turned for {self.beat.age_s():.0f} s"

        def election() -> str:
            return "" if self.elector.healthy() else "the lease thread is stuck"

        def certificate() -> str:
            return "" if self.keeper is None or self.keeper.loaded.is_set() else "there is no certificate yet"

        alive: Mapping[str, Check] = {"ping": ping, "beat": beat, "leaderElection": election}
        ready: Mapping[str, Check] = {"certificate": certificate, "active": self.activity.why_not}
        return {"livez": alive, "healthz": alive, "readyz": {**alive, **ready}}


def ask_for_certificates(context: ssl.SSLContext, file: str) -> None:
    """Ask each caller for a certificate and verify it by the authorities in ``file``. Raises ConfigError.

    One that shows none is let in by TLS and refused by the server, in words.
    """
    try:
        context.load_verify_locations(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("--client-ca-file", f"{file}: {error}") from error
    context.verify_mode = ssl.CERT_OPTIONAL


def guard_features(gates: Mapping[str, bool]) -> Features:
    """Everything that some scheduler may use counts, unless ``gates`` turn it off.

    Gates that only widen what slices may say are on: a slice that is not looked at would make its pool incomplete.
    """
    return Features.from_gates({"DRADeviceCompatibilityGroups": True, **gates})


def run(options: GuardOptions) -> int:
    """Run one replica to its end; the exit code. Raises ConfigError for what is wrong before the start."""
    guard_features(options.feature_gates)
    configure_logging("json" if options.logging_format == "json" else "text", options.verbosity)
    quiet_kopf()
    return run_to_end(_run(options), get_logger(CONTROLLER))


async def _run(options: GuardOptions) -> int:
    log = get_logger(CONTROLLER)
    access = await find_access(options.kubeconfig)
    log.info("starting", version=__version__, server=access.server)
    async with ApiClient(access, user_agent=f"{CONTROLLER}/{__version__}") as client:
        kinds = await discover_kinds(client, lambda text: log.warning("discovery", message=text))
        return await Guard(options, access, client, kinds).run()

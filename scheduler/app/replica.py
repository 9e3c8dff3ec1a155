"""``dra-scheduler run``: one replica from start to exit code.

0 after SIGTERM or SIGINT (kube-scheduler answers 1 without leader election: a listed difference), 1 when the Lease was
lost or the start failed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
import uuid
from collections.abc import Mapping, Sequence

from scheduler import __version__
from scheduler.api.versions import ResourceKinds
from scheduler.app.auditing import Auditing, build_auditing
from scheduler.app.dashboard import dashboard_mounts
from scheduler.app.measuring import Measuring
from scheduler.app.meters import ServiceMeter, refresh_gauges
from scheduler.app.profiles import check_config
from scheduler.app.service import Service
from scheduler.config import RunOptions
from scheduler.config.gates import DEFAULT_GATES
from scheduler.config.written import document
from scheduler.edge.audit_metrics import AuditMetrics
from scheduler.edge.auth import Authorizer
from scheduler.edge.beat import Beat, SteadyClock
from scheduler.edge.certificates import ServingCertificate
from scheduler.edge.client import ApiClient, OpenGate, WriteGate
from scheduler.edge.credentials import Access, find_access
from scheduler.edge.discovery import discover_kinds
from scheduler.edge.election import ElectionSettings
from scheduler.edge.http import Check, HealthServer, Mount, ping
from scheduler.edge.leader import LeaderElector
from scheduler.edge.logging import configure_logging, get_logger, set_verbosity
from scheduler.edge.loop_trouble import loop_trouble, run_to_end
from scheduler.edge.memory import keep_large_apart
from scheduler.edge.metrics import Metrics
from scheduler.edge.pages import DebugPages
from scheduler.edge.pauses import Pauses
from scheduler.edge.pod_resources import PodResources
from scheduler.edge.question_metrics import QuestionMetrics

LOOP_STUCK_S = 20.0
UPSTREAM_MINOR = "1.37"
PATHS = (
    "/configz",
    "/dashboard/",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/metrics/resources",
    "/metrics/slis",
    "/questions/v1",
    "/readyz",
    "/statusz",
)
STOP_TIMEOUT_S = 25.0


class Replica:
    """One process: the service, its lease, its port. ``run`` answers with the exit code."""

    def __init__(self, options: RunOptions, access: Access, reviews: Access | None = None) -> None:
        self.options, self.access, self.reviews = options, access, reviews
        self._host = access.server.partition("://")[2]
        self._started_s = time.time()
        self.log = get_logger("dra-scheduler")
        self.metrics = Metrics(
            hidden=options.hidden_metrics,
            disabled=options.disabled_metrics,
            groups=options.feature_gates.get("GenericWorkload", False),
        )
        self.metrics.gates({**DEFAULT_GATES, **options.feature_gates})
        self.beat = Beat()
        self.host = socket.gethostname()
        self.elector = self._elector() if options.config.leader_election.leader_elect else None
        self._ended, self._leads = asyncio.Event(), asyncio.Event()
        self._lost = ""
        self._stopping = False
        self._loop = asyncio.get_running_loop()

    def _elector(self) -> LeaderElector:
        election = self.options.config.leader_election
        settings = ElectionSettings(
            identity=f"{self.host}_{uuid.uuid4()}",
            namespace=election.resource_namespace,
            name=election.resource_name,
            lease_duration_s=election.lease_duration_s,
            renew_deadline_s=election.renew_deadline_s,
            retry_period_s=election.retry_period_s,
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

    def _observe(self, method: str, status: int, duration_s: float) -> None:
        self.metrics.request_seen(self._host, method, status, duration_s)

    # called in the election's thread

    def _note_leading(self) -> None:
        self.metrics.leader.labels(self.options.config.leader_election.resource_name).set(1)
        self.log.info("became leader")
        self._loop.call_soon_threadsafe(self._leads.set)

    def _note_lost(self, reason: str) -> None:
        self._lost = reason or "lease lost"
        self.metrics.leader.labels(self.options.config.leader_election.resource_name).set(0)
        self.log.error("Leaderelection lost", reason=reason)
        self._loop.call_soon_threadsafe(self._ended.set)

    # the life of the replica

    async def run(self) -> int:
        """Until a signal or a lost lease."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._ended.set)
        self._loop.set_exception_handler(loop_trouble(self.log))
        gate: WriteGate = self.elector or OpenGate()
        async with (
            ApiClient(self.access, gate=gate, observe=self._observe) as client,
            ApiClient(self.reviews or self.access, gate=OpenGate()) as reviewer,
        ):
            kinds = await discover_kinds(client, lambda text: self.log.warning("discovery", message=text))
            self.log.info("resource.k8s.io", version=kinds.claim.version, taint_rules=kinds.taint_rule.version)
            service = self._service(client, kinds)
            self.metrics.read_from(service.reflectors.values(), service.recorder)
            server = await self._serve(reviewer, service)
            beating = asyncio.create_task(self._keep_beating())
            pauses = Pauses(
                lambda late_s: self.metrics.loop_pause.observe((), late_s),
                lambda own_s: self.metrics.loop_pause_own.observe((), own_s),
                time.monotonic,
                time.thread_time,
            )
            listening = asyncio.create_task(pauses.run())
            if self.access.renewable:
                renewing = asyncio.create_task(self.access.keep_renewed(report=self.log.warning))
            if not self._delays_caches:
                service.start()
            deciding = asyncio.create_task(self._decide(service))
            ended = asyncio.create_task(self._ended.wait())
            try:
                await asyncio.wait([deciding, ended], return_when=asyncio.FIRST_COMPLETED)
                self._stopping = True
                return await self._stop(service, deciding)
            finally:
                for task in (beating, listening, ended):
                    task.cancel()
                if self.access.renewable:
                    renewing.cancel()
                if server is not None:
                    await server.stop()

    async def _keep_beating(self) -> None:
        """The event loop turns: that is what the lease thread wants to know, also while standing by."""
        while True:
            self.beat.touch()
            await asyncio.sleep(0.5)

    @property
    def _delays_caches(self) -> bool:
        """True when a standby shall not watch (delayCacheUntilActive)."""
        return self.options.config.delay_cache_until_active and self.elector is not None

    async def _decide(self, service: Service) -> None:
        delayed = self._delays_caches
        if delayed and self.elector is not None:
            self.elector.start()
            await self._leads.wait()
            service.start()
        await service.wait_synced()
        self.log.info("caches synced", nodes=len(service.state.nodes), claims=len(service.state.devices.claims))
        if self.elector is not None and not delayed:
            self.elector.start()
        await service.run()

    async def _stop(self, service: Service, deciding: asyncio.Task[None]) -> int:
        if self._lost:
            deciding.cancel()
            await asyncio.gather(deciding, return_exceptions=True)
            await service.close(drain=False)
            if self.elector is not None:
                await asyncio.to_thread(self.elector.stop, False)
            return 1
        service.stop()
        try:
            if service.synced:
                await asyncio.wait_for(asyncio.shield(deciding), STOP_TIMEOUT_S)
            else:
                deciding.cancel()
        except TimeoutError:
            self.log.warning("commits did not end in time, leaving them to the next leader")
            deciding.cancel()
        await service.close()
        if self.elector is not None:
            await asyncio.to_thread(self.elector.stop, True)
        failed = deciding.done() and not deciding.cancelled() and deciding.exception() is not None
        if failed:
            self.log.error("ended by an error", error=str(deciding.exception()))
        return 1 if failed else 0

    def _service(self, client: ApiClient, kinds: ResourceKinds) -> Service:
        options = self.options
        service = Service(
            options.config,
            client,
            ServiceMeter(self.metrics),
            self.log,
            clock=SteadyClock(),
            instance=lambda name: f"{name}-{self.host}",
            feature_gates=options.feature_gates,
            may_decide=lambda: self.elector is None or self.elector.leading,
            beat=self.beat.touch,
            verify_caches=options.verify_caches,
            max_unschedulable_s=options.pod_max_in_unschedulable_pods_s,
            kinds=kinds,
            measuring=Measuring(self.metrics),
            auditing=self._auditing(),
            namespaces=options.namespaces,
        )
        service.loop.wall = time.time
        return service

    def _auditing(self) -> Auditing | None:
        options = self.options
        if not options.audit.file and not options.audit.record:
            return None
        return build_auditing(
            options.audit,
            options.config,
            options.feature_gates,
            AuditMetrics(self.metrics.registry),
            lambda text: self.log.warning("trouble", message=text),
            clock=time.time,
            run_id=uuid.uuid4().hex[:12],
            replica=self.host,
            namespaces=options.namespaces,
        )

    async def _serve(self, client: ApiClient, service: Service) -> HealthServer | None:
        options = self.options
        if not options.secure_port:
            return None

        def metrics() -> tuple[bytes, str]:
            operations = {"binding": service.loop.commit_count}
            refresh_gauges(self.metrics, service.queue, service.state, self.beat.age_s(), operations)
            self.metrics.tasks.set(len(asyncio.all_tasks()))
            return self.metrics.render()

        serving = options.serving
        pod_resources = PodResources(service.state.pods.values, lambda: self.elector is None or self.elector.leading)
        server = HealthServer(
            self._checks(service),
            metrics,
            host=options.bind_address,
            port=options.secure_port,
            certificate=ServingCertificate(
                options.tls_cert_file, options.tls_private_key_file, serving.tls_min_version, serving.cipher_suites
            ),
            authorizer=Authorizer(
                client,
                token_ttl_s=serving.token_ttl_s,
                authorized_ttl_s=serving.authorized_ttl_s,
                unauthorized_ttl_s=serving.unauthorized_ttl_s,
            ),
            configuration=lambda: document(options.config),
            pod_resources=pod_resources.render,
            pages=self._pages(),
            debugging=options.config.enable_profiling,
            always_allowed=serving.always_allowed,
            trust_loopback=options.trust_loopback,
            reuse_port=serving.reuse_port,
            mounts=self._mounts(client, service),
            on_trouble=lambda text: self.log.warning("secure port", message=text),
        )
        await server.start()
        return server

    def _mounts(self, client: ApiClient, service: Service) -> Sequence[Mount]:
        """The dashboard and the questions, unless they are turned off."""
        if not self.options.dashboard:
            return ()
        metrics = QuestionMetrics(
            self.metrics.registry,
            time.monotonic,
            disabled=self.options.disabled_metrics,
            on_trouble=lambda text: self.log.warning("trouble", message=text),
        )
        options = self.options
        return dashboard_mounts(
            service,
            client,
            verify=options.verify_caches,
            metrics=metrics,
            audit_file=options.audit.file,
            on_trouble=lambda text: self.log.error("trouble", message=text),
        )

    def _pages(self) -> DebugPages:
        return DebugPages(
            version=__version__,
            emulated=UPSTREAM_MINOR,
            started_s=self._started_s,
            clock=time.time,
            paths=PATHS,
            flags=self.options.flags,
            set_verbosity=set_verbosity,
        )

    def _checks(self, service: Service) -> Mapping[str, Mapping[str, Check]]:
        def beat() -> str:
            return "" if self.beat.age_s() < LOOP_STUCK_S else f"the loop has not turned for {self.beat.age_s():.0f} s"

        def election() -> str:
            return "" if self.elector is None or self.elector.healthy() else "the lease thread is stuck"

        def synced() -> str:
            standing_by = self._delays_caches and not self._leads.is_set()
            return "" if service.synced or standing_by else "not every kind has been listed yet"

        def shutdown() -> str:
            return "process is shutting down" if self._stopping or self._lost else ""

        alive: Mapping[str, Check] = {"ping": ping, "beat": beat, "leaderElection": election}
        return {
            "livez": alive,
            "healthz": alive,
            "readyz": {**alive, "informer-sync": synced, "shutdown": shutdown},
        }


def run(options: RunOptions) -> int:
    """Run one replica to its end; the exit code. Raises ConfigError for what is wrong before the start."""
    check_config(options.config, options.feature_gates)
    keep_large_apart()
    configure_logging("json" if options.logging_format == "json" else "text", options.verbosity)
    return run_to_end(_run(options), get_logger("dra-scheduler"))


async def _run(options: RunOptions) -> int:
    log = get_logger("dra-scheduler")
    for warning in options.config.warnings:
        log.warning(warning)
    access = await find_access(options.kubeconfig, master=options.master)
    reviews_file = options.serving.reviews_kubeconfig
    reviews = await find_access(reviews_file) if reviews_file else None
    log.info(
        "starting",
        version=__version__,
        server=access.server,
        profiles=[profile.scheduler_name for profile in options.config.profiles],
    )
    return await Replica(options, access, reviews).run()

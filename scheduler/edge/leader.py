"""Holds the Lease from a thread of its own, with a connection of its own.

A loop that hangs must lose the leadership instead of keeping it: the thread renews only while the loop beats. Every
write of the scheduler asks ``check`` first. Losing the Lease is final: the process must end (exit code 1), and does,
by force if need be, when the loop cannot end it.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from scheduler import __version__
from scheduler.api.bodies import JSON, MERGE_PATCH, Lease, decode_lease, lease_body, lease_patch, lease_path
from scheduler.edge.beat import Beat, boot_clock
from scheduler.edge.credentials import Access
from scheduler.edge.election import Election, ElectionSettings, LeaseWrite, State
from scheduler.edge.errors import AnswerLost, NotFound, NotLeading, api_error
from scheduler.edge.times import micro_time
from scheduler.errors import ClusterError

HEALTH_GRACE_S = 20.0
EXIT_GRACE_S = 5.0


class _Connection(http.client.HTTPConnection):
    """A blocking connection with our TLS context and server name."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        parts = urlsplit(access.server)
        host, port = parts.hostname or "", parts.port or (443 if access.tls else 80)
        self._access, self._host = access, host
        if access.proxy:
            proxy = urlsplit(access.proxy)
            super().__init__(proxy.hostname or "", proxy.port or 80, timeout=timeout_s)
            self.set_tunnel(host, port)
        else:
            super().__init__(host, port, timeout=timeout_s)
        self.prefix = parts.path.rstrip("/")

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._access.tls is not None:
            self.sock = self._access.tls.wrap_socket(self.sock, server_hostname=self._access.server_name or self._host)


class LeaseClient:
    """Reads and writes one Lease, blocking, over one connection that is renewed after every failure."""

    def __init__(self, access: Access, settings: ElectionSettings, timeout_s: float) -> None:
        self._access, self._settings, self._timeout_s = access, settings, timeout_s
        self._connection: _Connection | None = None

    def read(self) -> Lease | None:
        """The Lease, None when there is none. Raises ClusterError."""
        try:
            return self._lease("GET", lease_path(self._settings.namespace, self._settings.name))
        except NotFound:
            return None

    def write(self, write: LeaseWrite) -> Lease:
        """Create or patch the Lease; the answer. Raises ClusterError (Conflict: somebody was faster)."""
        namespace, name = self._settings.namespace, self._settings.name
        if write.lease is None:
            return self._lease("POST", lease_path(namespace), lease_body(namespace, name, write.spec), JSON)
        return self._lease("PATCH", lease_path(namespace, name), lease_patch(write.lease, write.spec), MERGE_PATCH)

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lease(self, method: str, path: str, body: bytes | None = None, content_type: str = "") -> Lease:
        headers = {"Accept": JSON, "User-Agent": f"dra-scheduler/{__version__} leader-election"}
        authorization = self._access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if content_type:
            headers["Content-Type"] = content_type
        try:
            if self._connection is None:
                self._connection = _Connection(self._access, self._timeout_s)
            self._connection.request(method, self._connection.prefix + path, body, headers)
            answer = self._connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise AnswerLost(f"{method} {path}: {error or type(error).__name__}") from error
        except ValueError as error:
            self.close()
            # Its text shows the header it is about, the token may be the one: it is kept out of tracebacks, too.
            raise AnswerLost(f"{method} {path}: the request cannot be written: {type(error).__name__}") from None
        if status == 401:
            self._access.forget_token()
        if not 200 <= status < 300:
            raise api_error(status, content, f"{method} {path}", answer.headers.get("Retry-After", ""))
        try:
            return decode_lease(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise AnswerLost(f"{method} {path}: the answer is no lease: {error}") from error


class LeaderElector:
    """Runs an election in a thread. Everything but ``start`` and ``stop`` may be called from any thread.

    ``on_leading`` and ``on_lost`` (with the reason) are called once each, in the thread; ``on_leading`` again at the
    next turn when it raised. ``exit_process`` is called with 1 when ``stop`` was not called within ``exit_grace_s``
    after the loss: the loop hangs. Whatever is raised in a turn makes it a failed one, the thread goes on.
    """

    def __init__(
        self,
        access: Access,
        settings: ElectionSettings,
        beat: Beat,
        *,
        on_leading: Callable[[], None],
        on_lost: Callable[[str], None],
        exit_process: Callable[[int], object],
        on_trouble: Callable[[str], None] = lambda text: None,
        exit_grace_s: float = EXIT_GRACE_S,
        clock: Callable[[], float] = boot_clock,
        rng: random.Random | None = None,
    ) -> None:
        self._settings, self._beat, self._clock = settings, beat, clock
        self._election = Election(settings)
        # A request may use half the time there is, so that one that hangs leaves room for another.
        self._client = LeaseClient(access, settings, timeout_s=settings.renew_deadline_s / 2)
        self._on_leading, self._on_lost, self._on_trouble = on_leading, on_lost, on_trouble
        self._exit_process, self._exit_grace_s = exit_process, exit_grace_s
        self._rng = rng or random.Random()
        self._stopping = threading.Event()
        self._release = False
        self._told: State = "standby"
        self._thread = threading.Thread(target=self._run, name="leader-election", daemon=True)

    def start(self) -> None:
        """Begin to stand for election."""
        self._thread.start()

    def stop(self, release: bool = True, timeout_s: float | None = None) -> None:
        """End the thread; with ``release`` the Lease is given back first, so that a standby takes over at once.

        Call it after the last write has ended. Blocks, bounded by the timeout of one request.
        """
        self._release = release
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s if timeout_s is not None else self._settings.renew_deadline_s)

    @property
    def state(self) -> State:
        """standby, leading or lost."""
        return self._election.state

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen."""
        return self._election.holder

    @property
    def handed_over(self) -> bool:
        """True when the Lease that we took had been given back; False when it had run out or there was none."""
        return self._election.handed_over

    @property
    def leading(self) -> bool:
        """True while writes may be sent."""
        return self._election.may_write(self._clock())

    def remaining_s(self) -> float:
        """Seconds left of the Lease; negative when ended."""
        return self._election.remaining_s(self._clock())

    def check(self) -> None:
        """Raise NotLeading unless the Lease is held with a margin. Cost: one clock reading. (A WriteGate.)"""
        if self.leading:
            return
        if self._election.state == "leading":
            raise NotLeading(f"the lease ends in {self.remaining_s():.1f} s, nothing is written any more")
        raise NotLeading(f"not the leader ({self._election.lost_reason or 'standby'})")

    def healthy(self) -> bool:
        """False when we think we lead but the Lease ended more than 20 s ago: this thread is stuck. Or it has died."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._stopping.is_set():
            return False
        return self._election.state != "leading" or self.remaining_s() > -HEALTH_GRACE_S

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._safely(self._turn)
            self._safely(self._tell)
            if self._election.state == "lost":
                if not self._stopping.wait(self._exit_grace_s):
                    self._exit_process(1)
                break
            self._stopping.wait(self._election.pause_s(self._clock(), self._rng.random()))
        self._end()

    def _safely(self, step: Callable[[], None]) -> None:
        """A step that raises is a failed turn: nobody would stand for election any more if it ended the thread."""
        try:
            step()
        except Exception as error:
            self._election.failed(self._clock())
            if not isinstance(error, ClusterError):
                self._client.close()  # a request may have been left half written
            self._report(f"lease {self._settings.namespace}/{self._settings.name}: {_words(error)}")

    def _report(self, text: str) -> None:
        with contextlib.suppress(Exception):  # words that find no ear cost nobody the office
            self._on_trouble(text)

    def _turn(self) -> None:
        """Read if necessary, write if it is time. A loop that does not beat gets neither."""
        if self._beat.age_s() > self._settings.renew_deadline_s:
            self._election.failed(self._clock())
            self._report(f"the scheduling loop has not turned for {self._beat.age_s():.1f} s, the lease is left alone")
            return
        if self._election.needs_read:
            lease = self._client.read()
            self._election.observed(lease, self._clock())
        write = self._election.next_write(self._clock(), micro_time(time.time()))
        if write is not None:
            sent_at_s = self._clock()
            self._election.written(self._client.write(write), sent_at_s, self._clock())

    def _tell(self) -> None:
        state = self._election.state
        if state == self._told:
            return
        if self._told == "standby" and state == "leading":
            self._on_leading()
            self._told = state
        elif state == "lost":
            self._told = state
            self._on_lost(self._election.lost_reason)

    def _end(self) -> None:
        write = self._election.release(micro_time(time.time())) if self._release else None
        if write is not None:
            try:
                self._client.write(write)
            except Exception as error:
                self._report(f"the lease was not given back: {_words(error)}")
        self._client.close()


def _words(error: Exception) -> str:
    """Only errors of ours are told with their text: that of others may show a header, and the token with it."""
    return str(error) if isinstance(error, ClusterError) else f"failed with {type(error).__name__}"

"""ControlPlane: etcd, kube-apiserver, kube-controller-manager and, when asked, kube-scheduler on loopback ports."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from e2e.controlplane import build
from e2e.controlplane.certificates import CertificateAuthority
from e2e.controlplane.credentials import ADMIN, BUILT_IN_USERS, User, kubeconfig, token_file_text
from e2e.controlplane.processes import ManagedProcess, ProcessFailedError, free_port

DEFAULT_CONTROLLERS = (
    "resourceclaim-controller",
    "namespace-controller",
    "garbage-collector-controller",
)
_SERVICE_ACCOUNT_CONTROLLER = "serviceaccount-controller"
_READY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ControlPlaneOptions:
    """What a suite may ask for. Gates and runtime_config are the servers' own flag values.

    controllers: names for kube-controller-manager; empty: it is not started.
    fairness: API priority and fairness; off also lifts the in-flight limits (benchmarks).
    users: further static tokens, token -> User.
    """

    controllers: Sequence[str] = DEFAULT_CONTROLLERS
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    fairness: bool = True
    users: Mapping[str, User] = field(default_factory=dict)
    apiserver_arguments: Sequence[str] = ()
    controller_manager_arguments: Sequence[str] = ()


def _gate_arguments(gates: Mapping[str, bool]) -> list[str]:
    text = ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
    return [f"--feature-gates={text}"] if text else []


class ControlPlane:
    """One control plane in its own folder; a context manager that leaves nothing behind.

    Methods block (3 to 6 s for a start) and may be called from any thread.
    """

    def __init__(self, options: ControlPlaneOptions | None = None) -> None:
        self.options = options or ControlPlaneOptions()
        self.binaries = build.control_plane_binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="dra-scheduler-e2e-"))
        # tmpfs spares etcd the disk; where there is none the ordinary temporary folder does as well.
        shm = Path("/dev/shm")
        self._etcd_folder = Path(tempfile.mkdtemp(prefix="dra-scheduler-etcd-", dir=shm if shm.is_dir() else None))
        self._ca = CertificateAuthority(self.folder)
        self._users = {**BUILT_IN_USERS, **self.options.users}
        self.processes: dict[str, ManagedProcess] = {}
        self._etcd_port, self._api_port = free_port(), free_port()
        self.url = f"https://127.0.0.1:{self._api_port}"
        self.ca_file = self._ca.certificate_file
        self.admin_token = self.token_of(ADMIN)
        self._trust = ssl.create_default_context(cafile=str(self.ca_file))
        self.kubeconfig = self.kubeconfig_for()

    def __enter__(self) -> ControlPlane:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything but kube-scheduler and wait until it is ready."""
        self._start_etcd()
        self._prepare_apiserver()
        self.start_apiserver()
        if self.options.controllers:
            self._start_controller_manager()

    def stop(self) -> None:
        """Stop every process, last started first, and remove the folders."""
        for process in reversed(self.processes.values()):
            # etcd's data are thrown away and nobody waits for kube-apiserver's goodbye to its clients.
            process.stop(grace_s=5.0)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self._etcd_folder, ignore_errors=True)

    def pids(self) -> dict[str, int]:
        """Name -> process id of what runs now."""
        return {name: process.pid for name, process in self.processes.items() if process.pid is not None}

    def log_tails(self, lines: int = 40) -> str:
        """The end of every server's log, for the report of a failed test."""
        parts = [f"--- {name} ---\n{process.log_tail(lines)}" for name, process in self.processes.items()]
        return "\n".join(parts)

    def _add(self, name: str, arguments: Sequence[str]) -> ManagedProcess:
        process = ManagedProcess(name, [str(self.binaries / name), *arguments], self.folder / f"{name}.log")
        self.processes[name] = process
        return process

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        etcd = self._add(
            "etcd",
            [
                f"--data-dir={self._etcd_folder}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
        )
        etcd.start()
        etcd.wait_ready(lambda: self._answers_ok(f"{client}/health"), _READY_TIMEOUT_S)

    def _prepare_apiserver(self) -> None:
        tokens = self.folder / "tokens.csv"
        tokens.write_text(token_file_text(self._users))
        tokens.chmod(0o600)
        serving_crt, serving_key = self._ca.serving_files("kube-apiserver")
        public, private = self._ca.service_account_key_files()
        self._service_account_private_key = private
        # Without TaintNodesByCondition switched off every new fake Node gets a not-ready taint.
        disabled = ["TaintNodesByCondition"]
        if _SERVICE_ACCOUNT_CONTROLLER not in self.options.controllers:
            disabled.append("ServiceAccount")  # it would wait for a ServiceAccount that nobody makes
        limits = ["--enable-priority-and-fairness=false", "--max-requests-inflight=0"]
        limits.append("--max-mutating-requests-inflight=0")
        served = ",".join(f"{name}={str(on).lower()}" for name, on in self.options.runtime_config.items())
        self._add(
            "kube-apiserver",
            [
                f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                f"--secure-port={self._api_port}",
                f"--tls-cert-file={serving_crt}",
                f"--tls-private-key-file={serving_key}",
                f"--client-ca-file={self.ca_file}",
                f"--token-auth-file={tokens}",
                # Nobody is a front proxy here, but servers that delegate authentication wait for this CA.
                f"--requestheader-client-ca-file={self.ca_file}",
                "--requestheader-allowed-names=front-proxy",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={public}",
                f"--service-account-signing-key-file={private}",
                "--service-cluster-ip-range=10.0.0.0/24",
                f"--disable-admission-plugins={','.join(disabled)}",
                "--profiling=false",
                # A stop then waits 2 s for open connections instead of 60, and says 429 to requests meanwhile.
                "--shutdown-send-retry-after=true",
                *([f"--runtime-config={served}"] if served else []),
                *_gate_arguments(self.options.feature_gates),
                *([] if self.options.fairness else limits),
                *self.options.apiserver_arguments,
            ],
        )

    def start_apiserver(self) -> None:
        """Start kube-apiserver (again, on the same port and the same etcd) and wait for /readyz."""
        apiserver = self.processes["kube-apiserver"]
        apiserver.start()
        apiserver.wait_ready(lambda: self._answers_ok(f"{self.url}/readyz"), _READY_TIMEOUT_S)

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """Stop kube-apiserver: politely, or with SIGKILL."""
        apiserver = self.processes["kube-apiserver"]
        if kill:
            apiserver.kill()
        else:
            apiserver.stop()

    def restart_apiserver(self, *, kill: bool = False) -> None:
        """Stop and start kube-apiserver; data, port, tokens and certificates stay."""
        self.stop_apiserver(kill=kill)
        self.start_apiserver()

    def pause(self, name: str) -> None:
        """Freeze a process (SIGSTOP): its connections stay open and nothing is answered."""
        self.processes[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Thaw a frozen process."""
        self.processes[name].signal(signal.SIGCONT)

    def _start_controller_manager(self) -> None:
        port = free_port()
        manager = self._add(
            "kube-controller-manager",
            [
                f"--kubeconfig={self.kubeconfig}",
                f"--authentication-kubeconfig={self.kubeconfig}",
                f"--authorization-kubeconfig={self.kubeconfig}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={self.folder}",
                "--leader-elect=false",
                f"--controllers={','.join(self.options.controllers)}",
                f"--service-account-private-key-file={self._service_account_private_key}",
                f"--root-ca-file={self.ca_file}",
                # Benchmarks and suites create hundreds of Pods at once; the defaults (20/s) would pace them.
                "--kube-api-qps=1000",
                "--kube-api-burst=2000",
                *_gate_arguments(self.options.feature_gates),
                *self.options.controller_manager_arguments,
            ],
        )
        manager.start()
        # Its own certificate is self-signed and made at start: only the answer matters here.
        manager.wait_ready(
            lambda: self._answers_ok(f"https://127.0.0.1:{port}/healthz", verify=False), _READY_TIMEOUT_S
        )

    def start_kube_scheduler(self, config: Mapping[str, Any] | None = None) -> ManagedProcess:
        """Start kube-scheduler 1.37.2 with a KubeSchedulerConfiguration (fields beside apiVersion and kind).

        Runs as system:kube-scheduler, without leader election unless the config asks for it.
        """
        document: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig_for("system:kube-scheduler"))},
            **(config or {}),
        }
        file = self.folder / "kube-scheduler.yaml"
        file.write_text(yaml.safe_dump(document))
        port = free_port()
        scheduler = self._add(
            "kube-scheduler",
            [
                f"--config={file}",
                f"--authentication-kubeconfig={self.kubeconfig}",
                f"--authorization-kubeconfig={self.kubeconfig}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={self.folder}",
                "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
                *_gate_arguments(self.options.feature_gates),
            ],
        )
        self.kube_scheduler_url = f"https://127.0.0.1:{port}"
        scheduler.start()
        scheduler.wait_ready(
            lambda: self._answers_ok(f"{self.kube_scheduler_url}/readyz", verify=False), _READY_TIMEOUT_S
        )
        return scheduler

    def stop_kube_scheduler(self, *, kill: bool = False) -> None:
        """Stop kube-scheduler; nothing happens when it was never started."""
        scheduler = self.processes.pop("kube-scheduler", None)
        if scheduler is None:
            return
        if kill:
            scheduler.kill()
        else:
            scheduler.stop()

    # -- credentials --------------------------------------------------------------------------------------

    def token_of(self, user: str) -> str:
        """The static token of a built-in user or of one in options.users; KeyError when there is none."""
        for token, candidate in self._users.items():
            if candidate.name == user:
                return token
        raise KeyError(user)

    def service_account_token(self, namespace: str, name: str, lifetime_s: int = 3600) -> str:
        """A token for an existing ServiceAccount, through the TokenRequest API."""
        answer = self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": lifetime_s},
            },
        )
        return str(answer["status"]["token"])

    def serving_files(self, name: str) -> tuple[Path, Path]:
        """(certificate, key) for a server on 127.0.0.1 that every client of this control plane trusts."""
        return self._ca.serving_files(name)

    def kubeconfig_for(
        self,
        user: str = ADMIN,
        *,
        groups: Sequence[str] = (),
        token: str | None = None,
        service_account: tuple[str, str] | None = None,
        namespace: str = "default",
    ) -> Path:
        """Write a kubeconfig and return its path.

        Identity: the given token, or a service account (namespace, name), or a known user's static token, or
        a client certificate for any other user name in ``groups``.
        """
        certificate = None
        if service_account is not None:
            user = f"system:serviceaccount:{service_account[0]}:{service_account[1]}"
            token = self.service_account_token(*service_account)
        elif token is None:
            try:
                token = self.token_of(user)
            except KeyError:
                certificate = self._ca.client_pem(user, groups)
        document = kubeconfig(
            self.url, self._ca.certificate_pem, user, token=token, certificate=certificate, namespace=namespace
        )
        file = self.folder / f"{user.replace(':', '_').replace('/', '_')}.kubeconfig"
        file.write_text(yaml.safe_dump(document))
        file.chmod(0o600)
        return file

    # -- requests -----------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One blocking request as admin, for set-up code; raises urllib.error.HTTPError on refusal."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.admin_token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30, context=self._trust) as answer:
            content: dict[str, Any] = json.loads(answer.read())
            return content

    def _answers_ok(self, url: str, *, verify: bool = True) -> bool:
        context = self._trust
        if not verify:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(url)
        if verify and url.startswith(self.url):
            request.add_header("Authorization", f"Bearer {self.admin_token}")
        try:
            with urllib.request.urlopen(
                request, timeout=5, context=context if url.startswith("https") else None
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


__all__ = ["ControlPlane", "ControlPlaneOptions", "ProcessFailedError"]

#!/usr/bin/env python3
"""Build the real control plane (etcd, Kubernetes 1.37.2, kubectl) into a cache folder; Python's library only.

Run with any Python >= 3.11: ``python3 e2e/controlplane/build.py [--oracle]``.
The last line of standard output is the folder that holds the binaries.
Cold on two cores: about 11 minutes; with a warm Go build cache: seconds; when present: nothing is done.

Exit codes: 0 built or present, 1 the build failed, 3 there is no Go toolchain and nothing else to use.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "1.37.2"
HERE = Path(__file__).resolve().parent
ORACLE_SOURCE = HERE.parent / "oracle"
EXIT_NO_GO = 3

# The servers report what the linker wrote here; without it they say v0.0.0-master+$Format:%H$, and clients
# that compare versions (kubectl, the emulation version of kube-apiserver) would see another server.
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class BuildError(Exception):
    """The Go toolchain was there but a build failed; the message holds the tail of its output."""


class GoMissingError(Exception):
    """Neither ``go`` nor KUBEBUILDER_ASSETS nor a finished cache folder is there."""


@dataclass(frozen=True)
class Target:
    """One binary: the Go package that makes it and the module folder it is built in."""

    binary: str
    package: str
    module: Path
    linker_flags: str = "-s -w"


def _kubernetes_linker_flags() -> str:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    values = {
        "gitVersion": f"v{KUBERNETES_VERSION}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    settings = [f"-X {package}.{name}={value}" for package in _VERSION_PACKAGES for name, value in values.items()]
    return " ".join(["-s", "-w", *settings])


CONTROL_PLANE = (
    Target("etcd", "go.etcd.io/etcd/server/v3", HERE / "etcd"),
    *(
        Target(name, f"k8s.io/kubernetes/cmd/{name}", HERE, _kubernetes_linker_flags())
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    ),
)
ORACLE = (Target("oracle", ".", ORACLE_SOURCE),)


def cache_root() -> Path:
    """Where binaries are kept: $DRA_SCHEDULER_CACHE, else $XDG_CACHE_HOME/dra-scheduler, else ~/.cache/..."""
    own = os.environ.get("DRA_SCHEDULER_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "dra-scheduler"


def _go_version(go: str) -> str:
    return subprocess.run([go, "env", "GOVERSION"], check=True, capture_output=True, text=True).stdout.strip()


def _key(targets: Sequence[Target], go_version: str) -> str:
    """A short hash over everything that decides the binaries: module sums, our own Go code, flags, toolchain."""
    digest = hashlib.sha256(go_version.encode())
    for target in targets:
        digest.update(f"{target.binary} {target.package} {target.linker_flags}".encode())
    for module in sorted({target.module for target in targets}):
        for path in sorted([module / "go.mod", module / "go.sum", *module.glob("*.go")]):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One build at a time on this machine; the lock ends with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_one(go: str, target: Target, folder: Path) -> None:
    started = time.monotonic()
    print(f"building {target.binary} ...", flush=True)
    command = [go, "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", target.linker_flags]
    run = subprocess.run(
        [*command, "-o", str(folder / target.binary), target.package],
        cwd=target.module,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise BuildError(f"go build {target.package} failed:\n" + "\n".join(run.stdout.splitlines()[-40:]))
    print(f"built {target.binary} in {time.monotonic() - started:.1f} s", flush=True)


def build(name: str, targets: Sequence[Target]) -> Path:
    """Return the folder with the targets' binaries, building it first when it is not there.

    The folder appears by one rename, so a reader never sees half of it.
    Raises GoMissingError without a toolchain, BuildError when a build fails.
    """
    go = shutil.which("go")
    if go is None:
        raise GoMissingError("no go in PATH and KUBEBUILDER_ASSETS is not set")
    root = cache_root()
    final = root / f"{name}-{_key(targets, _go_version(go))}"
    if final.is_dir():
        return final
    with _locked(root / f"{name}.lock"):
        if final.is_dir():  # another process built it while we waited
            return final
        started = time.monotonic()
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
        try:
            for target in targets:
                _build_one(go, target, temporary)
            temporary.rename(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        print(f"{name}: {len(targets)} binaries in {time.monotonic() - started:.1f} s", flush=True)
    return final


def control_plane_binaries() -> Path:
    """The folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        return Path(assets)
    return build("controlplane", CONTROL_PLANE)


def oracle_binary() -> Path:
    """The path of the program that answers what Kubernetes 1.37.2 answers (e2e/oracle)."""
    return build("oracle", ORACLE) / "oracle"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line entry; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Build the control plane that the e2e suites run on.")
    parser.add_argument("--oracle", action="store_true", help="also build e2e/oracle, print its folder first")
    options = parser.parse_args(arguments)
    try:
        folder = control_plane_binaries()
        if options.oracle:
            print(f"oracle: {oracle_binary()}")
    except GoMissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_NO_GO
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the coverage-guided targets, one process each, with seeds, words and limits."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.fuzz.seeds import SEEDS, words_file

TARGETS = ("quantity", "label-selector", "node-selector", "cel", "config", "deep")
LENGTHS = {"quantity": 4200, "cel": 11_000, "config": 6000, "deep": 4000}
"""Longest input in bytes, where it is not 1000."""
INPUT_TIMEOUT_S = 60
"""One input may take so long; a hang, not a measurement: the machine may be loaded."""
MEMORY_MB = 1500
MISSING = "atheris is not installed: it has wheels for Linux on x86-64 only"


@dataclass(frozen=True)
class GuidedRun:
    """``inputs`` that were tried, ``reached`` branches; ``fault`` is libFuzzer's last words, "" when all is well."""

    target: str
    inputs: int
    reached: int
    fault: str


def available() -> bool:
    """True where atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def run_target(name: str, runs: int, seed: int, timeout_s: float) -> GuidedRun:
    """``runs`` inputs of one target; equal seeds give equal inputs. Raises TimeoutExpired after ``timeout_s``."""
    with tempfile.TemporaryDirectory(prefix="dra-fuzz-") as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for index, text in enumerate(SEEDS[name]):
            (corpus / f"{index:03}").write_bytes(text.encode("utf-8", "surrogatepass"))
        Path(folder, "words").write_text(words_file(name))
        command = [sys.executable, "-m", "e2e.fuzz.targets", name, f"-runs={runs}", f"-seed={seed}"]
        command += [f"-max_len={LENGTHS.get(name, 1000)}", f"-timeout={INPUT_TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}"]
        command += [f"-dict={folder}/words", f"-artifact_prefix={folder}/", "-print_final_stats=1", str(corpus)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False)
    said = done.stdout + done.stderr
    inputs = re.findall(r"^#(\d+)\s", said, re.MULTILINE)
    reached = re.findall(r"\bcov: (\d+)", said)
    told = said[said.find("=== Uncaught Python exception") :] if "=== Uncaught" in said else said
    fault = "" if done.returncode == 0 else told[:1500] + told[-1500:]
    return GuidedRun(name, int(inputs[-1]) if inputs else 0, int(reached[-1]) if reached else 0, fault)

"""``make sbom``: what the scheduler's image holds, as CycloneDX 1.6, and the licences in a list.

Names, versions and hashes are those of requirements-runtime.lock; licences, descriptions and who needs whom come from
the installed packages. Without ``--output`` the files go to dist/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supply.lock import ROOT, RUNTIME, Pinned, normalised, read_lock

Json = dict[str, Any]
# Packages whose metadata declare no licence: read from the licence file that they install.
FROM_FILES = {"cel-python": "Apache-2.0"}
SBOM, LICENSES = "dra-scheduler.cdx.json", "licenses.txt"


class SbomError(Exception):
    """The bill cannot be made; the message says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write both files; 1 when something is missing in the environment or has no licence."""
    parser = argparse.ArgumentParser(prog="make sbom", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder (default dist)")
    folder: Path = parser.parse_args(argv).output
    try:
        bill = make_sbom(scan(), read_lock(RUNTIME))
        text = json.dumps(bill, indent=2, sort_keys=True) + "\n"
        validate(text)
    except SbomError as error:
        print(f"make sbom: {error}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SBOM).write_text(text, encoding="utf-8")
    lines = license_lines(bill)
    (folder / LICENSES).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(bill['components'])} packages: {folder / SBOM}, {folder / LICENSES}")
    unknown = [line for line in lines if line.endswith("unknown")]
    if unknown:
        print(f"make sbom: no licence is declared by {', '.join(line.split()[0] for line in unknown)}", file=sys.stderr)
    return 1 if unknown else 0


def scan() -> Json:
    """What is installed in this environment, as cyclonedx-py describes it. Cost: ten seconds of CPU."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", sys.prefix, "--output-reproducible",
               "--no-validate",  # what is left of it is validated
               "--spec-version", "1.6", "--pyproject", str(ROOT / "pyproject.toml"), "-o", "-"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SbomError(f"cyclonedx-py: {done.stderr.strip()}")
    scanned: Json = json.loads(done.stdout)
    return scanned


def make_sbom(scanned: Json, pins: Sequence[Pinned]) -> Json:
    """The scanned bill, cut down to what is pinned, with the hashes of the lock file.

    Raises SbomError when a pinned package is not installed in just that version.
    """
    by_name = {normalised(component["name"]): component for component in scanned["components"]}
    components: list[Json] = []
    for pin in pins:
        component = by_name.get(pin.name)
        if component is None or component["version"] != pin.version:
            there = "is not installed" if component is None else f"is installed in version {component['version']}"
            raise SbomError(f"{pin.name} {pin.version} {there}; run make install")
        components.append(_with_hashes(component, pin))
    kept = {component["bom-ref"] for component in components} | {scanned["metadata"]["component"]["bom-ref"]}
    edges = [
        {"ref": edge["ref"], "dependsOn": sorted(set(edge.get("dependsOn", ())) & kept)}
        for edge in scanned.get("dependencies", ())
        if edge["ref"] in kept
    ]
    return {**scanned, "components": components, "dependencies": edges}


def _with_hashes(component: Json, pin: Pinned) -> Json:
    hashes = [{"alg": f"SHA-{kind.removeprefix('sha')}", "content": value} for kind, value in pin.hashes]
    files = {
        "type": "distribution",
        "url": component["purl"],
        "hashes": hashes,
        "comment": "files that may be installed",
    }
    if not component.get("licenses") and pin.name in FROM_FILES:
        component = {**component, "licenses": [{"license": {"id": FROM_FILES[pin.name]}}]}
    references = [one for one in component.get("externalReferences", ()) if one["type"] != "distribution"]
    return {**component, "externalReferences": [*references, files]}


def validate(text: str) -> None:
    """Raises SbomError when the bill does not follow the CycloneDX schema."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise SbomError(f"not valid CycloneDX: {problem}")


def license_lines(bill: Json) -> list[str]:
    """``name version licence`` of every component, sorted; the licence as it is declared, "unknown" without one."""
    return sorted(f"{one['name']} {one['version']} {_license(one)}" for one in bill["components"])


def _license(component: Json) -> str:
    names = []
    for entry in component.get("licenses", ()):
        held = entry.get("license", {})
        names.append(entry.get("expression") or held.get("id") or held.get("name") or "")
    # An SPDX id says the same as the classifier beside it.
    return " / ".join(dict.fromkeys(name for name in names if name)) or "unknown"


if __name__ == "__main__":
    sys.exit(main())

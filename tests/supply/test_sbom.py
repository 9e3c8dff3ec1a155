"""The bill of materials names what ships, with hashes and licences, in CycloneDX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supply.lock import RUNTIME, Pinned, read_lock
from supply.sbom import LICENSES, SBOM, SbomError, license_lines, main, make_sbom, validate

Json = dict[str, Any]
PIN = Pinned("my-package", "1.5", (("sha256", "0" * 64),))


def scanned(version: str = "1.5", **more: Any) -> Json:
    """What a scan of an environment with two packages gives."""
    names = {"My_Package": version, "tool": "1"}
    components = [
        {
            "bom-ref": name,
            "type": "library",
            "name": name,
            "version": number,
            "purl": f"pkg:pypi/{name.lower()}@{number}",
            **more,
        }
        for name, number in names.items()
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"bom-ref": "root", "type": "application", "name": "us"}},
        "components": components,
        "dependencies": [{"ref": "root", "dependsOn": ["My_Package", "tool"]}, {"ref": "tool"}, {"ref": "My_Package"}],
    }


def test_only_what_is_pinned_is_named_and_with_its_hashes() -> None:
    """Development tools of the environment stay out, of the graph too."""
    bill = make_sbom(scanned(), [PIN])
    (component,) = bill["components"]
    (files,) = component["externalReferences"]
    assert files["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    assert bill["dependencies"] == [
        {"ref": "root", "dependsOn": ["My_Package"]},
        {"ref": "My_Package", "dependsOn": []},
    ]
    validate(json.dumps(bill))


def test_another_version_than_the_pinned_one_is_no_bill() -> None:
    """What is installed must be what ships."""
    with pytest.raises(SbomError, match=r"my-package 1\.5 is installed in version 1\.4; run make install"):
        make_sbom(scanned("1.4"), [PIN])
    with pytest.raises(SbomError, match="other 1 is not installed"):
        make_sbom(scanned(), [Pinned("other", "1", PIN.hashes)])


@pytest.mark.parametrize(
    ("licenses", "shown"),
    [
        ([{"expression": "MIT OR Apache-2.0"}], "MIT OR Apache-2.0"),
        ([{"license": {"id": "MIT"}}, {"license": {"name": "Own"}}, {"license": {"id": "MIT"}}], "MIT / Own"),
        ([], "unknown"),
    ],
)
def test_licences_are_listed_as_declared(licenses: list[Json], shown: str) -> None:
    """Expression, SPDX id or name; none is unknown, which fails the command."""
    bill = make_sbom(scanned(licenses=licenses), [PIN])
    assert license_lines(bill) == [f"My_Package 1.5 {shown}"]


def test_something_else_is_not_valid() -> None:
    """The schema is looked at."""
    with pytest.raises(SbomError, match="not valid CycloneDX"):
        validate('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{}]}')


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_this_environment_has_a_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of requirements-runtime.lock and nothing else, each with a licence."""
    assert main(["--output", str(tmp_path)]) == 0, capsys.readouterr().err
    bill = json.loads((tmp_path / SBOM).read_text())
    assert len(bill["components"]) == len(read_lock(RUNTIME))
    lines = (tmp_path / LICENSES).read_text().splitlines()
    assert len(lines) == len(bill["components"])
    assert all(not line.endswith("unknown") for line in lines)

"""CEL selectors of claims, templates and classes must compile before they are stored, as on the real server.

The text after "compilation failed: " is our compiler's, not cel-go's.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.cel import CompileError, compile_selector
from scheduler.embedded.status import FieldError, Json, field_invalid


def validate(plural: str, obj: Json, old: Json | None = None) -> list[FieldError]:
    """Compiles each selector; expressions that `old` holds already are left alone, whatever they are."""
    known = {text for _, text in _expressions(plural, old)} if old else set()
    errors = []
    for path, text in _expressions(plural, obj):
        if text in known:
            continue
        try:
            compile_selector(text)
        except CompileError as error:
            errors.append(field_invalid(path, text, f"compilation failed: {error.message}"))
    return errors


def _expressions(plural: str, obj: Json) -> Iterator[tuple[str, str]]:
    spec = obj.get("spec") or {}
    match plural:
        case "deviceclasses":
            yield from _selectors(spec, "spec")
        case "resourceclaims":
            yield from _claim(spec, "spec")
        case "resourceclaimtemplates":
            yield from _claim(spec.get("spec") or {}, "spec.spec")


def _claim(spec: Json, path: str) -> Iterator[tuple[str, str]]:
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        at = f"{path}.devices.requests[{index}]"
        yield from _selectors(request.get("exactly") or {}, f"{at}.exactly")
        for place, alternative in enumerate(request.get("firstAvailable") or ()):
            yield from _selectors(alternative, f"{at}.firstAvailable[{place}]")


def _selectors(owner: Json, path: str) -> Iterator[tuple[str, str]]:
    for index, selector in enumerate(owner.get("selectors") or ()):
        yield f"{path}.selectors[{index}].cel.expression", str((selector.get("cel") or {}).get("expression") or "")

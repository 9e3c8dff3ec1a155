"""String and bytes literals: quotes, raw prefixes and escapes."""

from __future__ import annotations

from typing import Final

from scheduler.cel.errors import CompileError

_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"',
    "`": "`", "?": "?",
}  # fmt: skip
_HEX_LENGTH: Final = {"x": 2, "X": 2, "u": 4, "U": 8}


def decode_string(text: str, line: int, column: int) -> str:
    """The value of a string literal as written, with quotes and prefix."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body
    parts: list[str] = []
    for piece, code in _pieces(body, line, column, escapes_unicode=True):
        if code is not None and (0xD800 <= code <= 0xDFFF or code > 0x10FFFF):
            raise CompileError("invalid unicode code point", line, column)
        parts.append(piece if code is None else chr(code))
    return "".join(parts)


def decode_bytes(text: str, line: int, column: int) -> bytes:
    """The value of a bytes literal without its ``b``; text outside escapes counts as UTF-8."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body.encode()
    return b"".join(
        piece.encode() if code is None else bytes([code])
        for piece, code in _pieces(body, line, column, escapes_unicode=False)
    )


def _body(text: str) -> tuple[str, bool]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[width:-width], raw


def _pieces(body: str, line: int, column: int, *, escapes_unicode: bool) -> list[tuple[str, int | None]]:
    """Literal pieces and escaped code points, in order."""
    pieces: list[tuple[str, int | None]] = []
    at = 0
    while at < len(body):
        slash = body.find("\\", at)
        if slash < 0:
            pieces.append((body[at:], None))
            break
        pieces.append((body[at:slash], None))
        mark = body[slash + 1]
        at = slash + 2
        if mark in _SIMPLE:
            pieces.append((_SIMPLE[mark], None))
        elif mark in _HEX_LENGTH and (escapes_unicode or mark in "xX"):
            width = _HEX_LENGTH[mark]
            pieces.append(("", int(body[at : at + width], 16)))
            at += width
        elif mark in "0123":
            pieces.append(("", int(body[slash + 1 : slash + 4], 8)))
            at = slash + 4
        else:
            raise CompileError("unable to unescape string", line, column)
    return pieces

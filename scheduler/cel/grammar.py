"""The parser: cel-python's grammar, extended by what Kubernetes' CEL has beyond it, under our own tree builder.

Belongs here: everything that depends on cel-python and lark. cel-python's own parser object is neither used nor
changed; only the text of its grammar is read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from scheduler.cel.build import TreeBuilder
from scheduler.cel.errors import CompileError
from scheduler.cel.nodes import Node

MAX_TEXT_BYTES: Final = 10 * 1024

# Rules whose body differs: chains keep no node per level, optional syntax, trailing commas, quoted names, `-` folding.
_RULES: Final = {
    "expr": '?expr: conditionalor | conditionalor "?" conditionalor ":" expr -> conditional',
    "conditionalor": '?conditionalor: conditionaland | conditionalor "||" conditionaland -> logical_or',
    "conditionaland": '?conditionaland: relation | conditionaland "&&" relation -> logical_and',
    "relation": (
        '?relation: addition | relation "<" addition -> relation_lt | relation "<=" addition -> relation_le'
        ' | relation ">=" addition -> relation_ge | relation ">" addition -> relation_gt'
        ' | relation "==" addition -> relation_eq | relation "!=" addition -> relation_ne'
        " | relation IN addition -> relation_in"
    ),
    "addition": (
        '?addition: multiplication | addition "+" multiplication -> addition_add'
        ' | addition "-" multiplication -> addition_sub'
    ),
    "multiplication": (
        '?multiplication: unary | multiplication "*" unary -> multiplication_mul'
        ' | multiplication "/" unary -> multiplication_div | multiplication "%" unary -> multiplication_mod'
    ),
    "unary": "?unary: member | NOT+ member -> unary_not | MINUS+ member -> unary_neg",
    "member": "?member: member_dot | member_dot_arg | member_index | member_object | primary",
    "member_dot": 'member_dot: member "." [OPTIONAL] field',
    "member_index": 'member_index: member "[" [OPTIONAL] expr "]"',
    "member_object": 'member_object: member "{" [fieldinits] "}" | member "{" "," "}"',
    "primary": "?primary: dot_ident_arg | dot_ident | ident_arg | ident | paren_expr | list_lit | map_lit | literal",
    "list_lit": 'list_lit: LBRACKET [listinits] "]" | LBRACKET "," "]"',
    "map_lit": 'map_lit: LBRACE [mapinits] "}" | LBRACE "," "}"',
    "fieldinits": 'fieldinits: fieldinit ("," fieldinit)* ","?\nfieldinit: [OPTIONAL] field ":" expr',
    "mapinits": (
        'mapinits: mapinit ("," mapinit)* ","?\nmapinit: [OPTIONAL] expr ":" expr\n'
        'listinits: listinit ("," listinit)* ","?\nlistinit: [OPTIONAL] expr\n'
        "field: IDENT | QUOTED_IDENT"
    ),
}
_DROPPED_RULE: Final = re.compile(r"^(relation|addition|multiplication|unary)_\w+\s*:.*\n", re.MULTILINE)
_RULE: Final = r"^{name}(?:\.\d+)?\s*:.*(?:\n[ \t]+.*)*\n"

# A backslash never stands before a quote here: lark would take the two for an escaped quote.
_PLAIN: Final = r"(?:\\[abfnrtv\"'?`\\]|\\[0-3][0-7]{2}|\\[xX][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|%s)"
_STRINGS: Final = "|".join(
    [
        '"""' + _PLAIN % r"[^\\]" + '*?"""',
        "'''" + _PLAIN % r"[^\\]" + "*?'''",
        '[rR]"""(?:.|\\n)*?"""',
        "[rR]'''(?:.|\\n)*?'''",
        '"' + _PLAIN % r'[^"\n\r\\]' + '*"',
        "'" + _PLAIN % r"[^'\n\r\\]" + "*'",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
    ]
)
_TERMINALS: Final = {
    "IDENT": r"IDENT.0: /(?!(?:true|false|null|in)(?![_a-zA-Z0-9]))[_a-zA-Z][_a-zA-Z0-9]*/",
    "INT_LIT": r"INT_LIT.1: /0x[0-9a-fA-F]+|[0-9]+/",
    "UINT_LIT": r"UINT_LIT.2: /(?:0x[0-9a-fA-F]+|[0-9]+)[uU]/",
    "FLOAT_LIT": r"FLOAT_LIT.2: /[0-9]+[eE][+-]?[0-9]+|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?/",
    "STRING_LIT": "STRING_LIT.3: /" + _STRINGS.replace("/", r"\/") + "/",
    "MLSTRING_LIT": "",
    "BYTES_LIT": "BYTES_LIT.3: /[bB](?:" + _STRINGS.replace("/", r"\/") + ")/",
    "BOOL_LIT": "BOOL_LIT.1: /(?:true|false)(?![_a-zA-Z0-9])/",
    "NULL_LIT": "NULL_LIT.1: /null(?![_a-zA-Z0-9])/",
    "RESERVED": "",
}
_ADDED: Final = r"""
IN.1: /in(?![_a-zA-Z0-9])/
NOT: "!"
MINUS: "-"
OPTIONAL: "?"
LBRACKET: "["
LBRACE: "{"
QUOTED_IDENT: /`[a-zA-Z0-9_.\-\/ ]+`/
"""


def _grammar_text() -> str:
    """cel-python's own. Its package is found but not imported: 0.1 s of CPU for parts that are not used."""
    spec = find_spec("celpy")
    get_data = None if spec is None else getattr(spec.loader, "get_data", None)
    if spec is None or get_data is None or not spec.submodule_search_locations:
        raise RuntimeError("cel-python is not installed")
    data: bytes = get_data(f"{spec.submodule_search_locations[0]}/cel.lark")
    return data.decode("utf-8")


def extended_grammar() -> str:
    """cel-python's grammar text with the rules and terminals above in place of its own."""
    text = _DROPPED_RULE.sub("", _grammar_text())
    for name, definition in (*_RULES.items(), *_TERMINALS.items()):
        pattern = re.compile(_RULE.format(name=re.escape(name)), re.MULTILINE)
        if not pattern.search(text):
            raise RuntimeError(f"cel-python's grammar no longer defines {name}")
        text = pattern.sub((definition + "\n").replace("\\", r"\\"), text, count=1)
    return text.replace("MLSTRING_LIT |", "") + _ADDED


@lru_cache(maxsize=1)
def _parser() -> Any:
    # Built on first use (about 0.1 s): commands that never see an expression do not pay for it.
    return Lark(extended_grammar(), parser="lalr", start="expr", transformer=TreeBuilder())


def build_parser() -> None:
    """Do now what the first expression would wait for. Cost: 0.1 to 0.3 s, once; thread-safe."""
    _parser().parse('device.driver == ""')  # the lexer compiles its patterns with the first text


def parse(text: str) -> Node:
    """Parse and expand macros. Raises CompileError with a position; cost is linear in the text."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise CompileError(f"expression is longer than {MAX_TEXT_BYTES} bytes")
    try:
        node = _parser().parse(text)
    except VisitError as error:
        if isinstance(error.orig_exc, CompileError):
            raise error.orig_exc from None
        raise
    except UnexpectedToken as error:
        raise CompileError(_unexpected(error.token), *_position(error, text)) from None
    except UnexpectedCharacters as error:
        message = f"syntax error: token recognition error at: {error.char!r}"
        raise CompileError(message, *_position(error, text)) from None
    except UnexpectedInput as error:
        raise CompileError("syntax error", *_position(error, text)) from None
    if not isinstance(node, Node):
        raise CompileError("syntax error")
    return node


def _unexpected(token: Token) -> str:
    return "syntax error: unexpected end of expression" if token.type == "$END" else f"syntax error at {str(token)!r}"


def _position(error: UnexpectedInput, text: str) -> tuple[int, int]:
    line = getattr(error, "line", -1)
    column = getattr(error, "column", -1)
    if not isinstance(line, int) or line < 1 or column < 1:
        lines = text.split("\n")
        return len(lines), len(lines[-1]) + 1
    return line, column

"""How each strategy works: docstring, highlighted source, where the idea comes from.

Everything comes from `run.json`, which may have been written elsewhere: source is only ever highlighted, never
run, and only plain https addresses become links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from pygments import highlight
from pygments.filter import Filter
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Operator, String, Text

_LONGEST = 20_000
"""Characters of one docstring or source that the page shows; a strategy is a file of ten lines."""

_MARKED = re.compile(r"(https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:]|``[^`]+``|`[^`\n]+`)")


@dataclass(frozen=True)
class Piece:
    """A stretch of text: a link if `address` is not empty, code if it stood between backticks, or plain."""

    text: str
    address: str = ""
    code: bool = False


Prose = tuple[Piece, ...]

_COLOURS = {
    **dict.fromkeys((Keyword, Operator.Word), Keyword),
    **dict.fromkeys((Name.Function, Name.Class, Name.Decorator), Name.Function),
    **{String: String.Double, Comment: Comment},
}
"""Kinds of tokens that have a colour -> the kind whose colour that is."""


@dataclass(frozen=True)
class Source:
    """One strategy or workload as `run.json` describes it."""

    name: str
    summary: Prose
    docstring: tuple[Prose, ...]
    """The paragraphs after the summary."""
    origin: Prose
    code: Markup
    """Highlighted; safe, because Pygments escapes what it highlights."""
    path: str
    facts: tuple[tuple[str, str], ...] = ()


def strategies(info: Mapping[str, Any]) -> list[Source]:
    """The strategies of a run, in the order of `run.json`; entries that are not objects are left out."""
    return [_source(entry) for entry in entries(info, "strategies")]


def workloads(info: Mapping[str, Any]) -> list[Source]:
    """The workloads of a run, with their parameters as facts."""
    return [_source(entry, _shapes(entry)) for entry in entries(info, "workloads")]


def entries(info: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects in a list of `run.json`, or none if there is no such list."""
    found = info.get(key)
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, Sequence) else []


def prose(text: str) -> Prose:
    """The text cut into plain stretches, code between backticks, and http(s) addresses."""
    return tuple(_piece(part, index % 2 == 1) for index, part in enumerate(_MARKED.split(text)) if part)


def paragraphs(text: str) -> list[str]:
    """Paragraphs are parted by blank lines. Their lines flow again, unless one is indented or begins a list."""
    found = re.split(r"\n\s*\n", text.strip())
    return [part if re.search(r"^(\s|[-*] |\d+\. )", part, re.M) else " ".join(part.split()) for part in found if part]


def _piece(part: str, marked: bool) -> Piece:
    if not marked:
        return Piece(part)
    return Piece(part.strip("`"), code=True) if part.startswith("`") else Piece(part, address=part)


def _source(entry: Mapping[str, Any], facts: tuple[tuple[str, str], ...] = ()) -> Source:
    docstring = paragraphs(_text(entry, "docstring"))
    summary = " ".join(_text(entry, "summary").split()) or (docstring[0] if docstring else "")
    return Source(
        name=_text(entry, "name") or "unnamed",
        summary=prose(summary),
        docstring=tuple(prose(text) for text in docstring if text != summary),
        origin=prose(_text(entry, "source")),
        code=Markup(highlight(_text(entry, "code"), _LEXER, HtmlFormatter(nowrap=True))),
        path=_text(entry, "path"),
        facts=facts,
    )


class _Coloured(Filter):
    """Only what has a colour keeps its kind: a `span` for every name and sign makes source five times as long."""

    def filter(self, lexer: Lexer | None, stream: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
        for kind, text in stream:
            yield next((colour for of, colour in _COLOURS.items() if kind in of), Text), text


_LEXER = PythonLexer(filters=[_Coloured(), "tokenmerge"])


def _shapes(entry: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    parameters = entry.get("parameters")
    if not isinstance(parameters, Mapping):
        return ()
    shapes = [
        (str(name), " × ".join(map(str, shape)) or "scalar") for name, shape in parameters.items() if _is_list(shape)
    ]
    return (("parameters in all", f"{_text(entry, 'parameter_count') or 'unknown'}"), *shapes)


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return "" if value is None else str(value)[:_LONGEST]

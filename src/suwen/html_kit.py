"""The HTML of reports: elements with all texts escaped, one style sheet, the page. What a report says is not here."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

#: Nothing may be fetched and no script runs, whatever the texts of a collection hold.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
#: Stands where there is no number.
DASH = "–"

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #59616b; --paper: #ffffff; --panel: #f5f6f8;
  --line: #d9dde3; --accent: #0b5cad; --ours: #e7f1fb; --good: #0a6b3d; --bad: #a3310f;
  --bar: #9cc3ea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #a4adb8; --paper: #1b1e23; --panel: #24282f;
  --line: #3b424c; --accent: #7db8f5; --ours: #1f3348; --good: #6fd3a0; --bad: #f2a083;
  --bar: #2f5d8a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem clamp(1rem, 4vw, 2.5rem) 4rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", "PingFang SC", "Microsoft YaHei",
  "Noto Sans CJK SC", "Noto Sans", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0.5rem 0; } h2 { font-size: 1.35rem; margin: 2.75rem 0 0.5rem;
  padding-top: 0.75rem; border-top: 2px solid var(--line); } h3 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
p, li { max-width: 46rem; } a { color: var(--accent); } .soft, figcaption, .definitions { color: var(--soft); }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; padding: 0; }
.scroll { overflow: auto; max-height: 36rem; margin: 0.75rem 0 0.25rem; border: 1px solid var(--line);
  border-radius: 6px; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 0.9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0.6rem 0.75rem; font-weight: 600; }
th, td { padding: 0.4rem 0.75rem; text-align: right; border-top: 1px solid var(--line); vertical-align: top; }
td { white-space: nowrap; }
thead th { background: var(--panel); vertical-align: bottom; position: sticky; top: 0; z-index: 2; min-width: 8rem;
  max-width: 16rem; overflow-wrap: break-word; }
thead small { display: block; font-weight: 400; color: var(--soft); }
th:first-child, td:first-child, .word { text-align: left; } td.word { white-space: normal; min-width: 10rem; }
.bar { display: block; height: 0.45rem; margin-top: 0.25rem; background: var(--bar); border-radius: 3px;
  margin-left: auto; min-width: 1px; } td:has(.bar) { min-width: 5rem; }
tbody th { font-weight: 500; min-width: 9rem; max-width: 28rem; position: sticky; left: 0; z-index: 1;
  background: var(--paper); }
thead th:first-child { left: 0; z-index: 3; }
tr.ours th, tr.ours td { background: var(--ours); } td.best { font-weight: 700; }
.from { display: inline-block; margin-left: 0.4rem; padding: 0 0.4rem; border: 1px solid currentColor;
  border-radius: 99px; font-size: 0.72rem; color: var(--soft); white-space: nowrap; }
.ours .from { color: var(--accent); }
.definitions { font-size: 0.85rem; margin: 0.25rem 0 1rem; max-width: none; } .definitions dt { display: inline;
  font-weight: 600; } .definitions dd { display: inline; margin: 0 0.75rem 0 0.25rem; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; border: 1px solid var(--line);
  border-radius: 6px; display: block; } figcaption { font-size: 0.85rem; margin-top: 0.3rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 1.5rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: 0.5rem 0; padding: 0.4rem 0.75rem; }
summary { cursor: pointer; } .mark { color: var(--accent); font-weight: 600; }
blockquote { margin: 0.5rem 0; padding: 0.4rem 0.9rem; border-left: 4px solid var(--line); white-space: pre-wrap;
  max-width: 60rem; }
.gain { color: var(--good); font-weight: 600; } .loss { color: var(--bad);
  font-weight: 600; } .sides { display: grid; gap: 0.5rem 1.5rem; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 18rem), 1fr)); } .sides h5 { margin: 0.6rem 0 0.2rem; font-size: 0.85rem; color: var(--soft); }
.sides ol { margin: 0; padding-left: 1.3rem; font-size: 0.9rem; } h4 { margin: 1rem 0 0.25rem; font-size: 1rem; }
.notice { border-left: 4px solid var(--accent); background: var(--panel); padding: 0.5rem 0.9rem; max-width: none; }
ul.notice { padding-left: 2rem; }
@media (max-width: 40rem) { th, td { padding: 0.35rem 0.5rem; } tbody th { max-width: 10rem; min-width: 7rem; }
  .scroll { max-height: 70vh; } }
"""


class Cell(NamedTuple):
    """A cell of a table: its text, whether it is words and no number, the best of its kind, the share of a bar."""

    text: str
    word: bool = False
    best: bool = False
    bar: float | None = None


class Row(NamedTuple):
    """A row: its heading, its cells, a badge that says where it comes from, and whether it is one of ours."""

    heading: str
    cells: Sequence[Cell | str]
    badge: str = ""
    ours: bool = False


#: The heading of a column, with a small second line or without; and a row of which only heading and cells are given.
Column = str | tuple[str, str]
PlainRow = tuple[str, Sequence[Cell | str]]


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def heading(text: str, anchor: str = "", level: int = 2) -> str:
    """A heading; with an anchor it can be linked to."""
    return f"<h{level}{f' id={_quoted(anchor)}' if anchor else ''}>{escape(text)}</h{level}>"


def table(
    caption: str,
    headings: Sequence[Column],
    rows: Iterable[Row | PlainRow],
    definitions: Mapping[str, str] | None = None,
) -> str:
    """A table that scrolls by itself on a small screen.

    Args:
        caption: What it shows.
        headings: Of the columns, that of the row headings first; a pair has a small second line.
        rows: The rows; a heading and its cells are enough.
        definitions: What the names in it mean.
    """
    every = [Row(*row) for row in rows]
    words = {place for row in every for place, cell in enumerate(row.cells, 1) if isinstance(cell, Cell) and cell.word}
    top = "".join(_column(name, "word" if place in words else "") for place, name in enumerate(headings))
    body = "".join(_row(row) for row in every)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label={_quoted(caption)}><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
        + definition_list(definitions or {})
    )


def _column(name: Column, kind: str) -> str:
    text, under = (name, "") if isinstance(name, str) else name
    return f'<th scope="col"{_class(kind)}>{escape(text)}{f"<small>{escape(under)}</small>" if under else ""}</th>'


def _row(row: Row) -> str:
    badge = f' <span class="from">{escape(row.badge)}</span>' if row.badge else ""
    cells = "".join(_cell(cell if isinstance(cell, Cell) else Cell(cell)) for cell in row.cells)
    return f'<tr{_class("ours" if row.ours else "")}><th scope="row">{escape(row.heading)}{badge}</th>{cells}</tr>\n'


def _cell(cell: Cell) -> str:
    share = min(cell.bar or 0.0, 1.0)
    bar = f'<span class="bar" style="width:{100 * share:.1f}%"></span>' if share > 0 else ""
    return f"<td{_class('best' if cell.best else 'word' if cell.word else '')}>{escape(cell.text)}{bar}</td>"


def bullets(items: Iterable[str], kind: str = "") -> str:
    """A list of remarks."""
    return f"<ul{_class(kind)}>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def definition_list(definitions: Mapping[str, str]) -> str:
    """Names and what they mean, under the table that uses them."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(what)}</dd>" for name, what in definitions.items())
    return f'<dl class="definitions">{items}</dl>' if items else ""


def figure(light: bytes, dark: bytes, alt: str, caption: str, size: tuple[float, float]) -> str:
    """A PNG picture held in the page itself, on light or dark ground as the reader has it; the size is in inches."""
    width, height = (round(100 * side) for side in size)
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{_data(dark)}">'
        f'<img src="{_data(light)}" width="{width}" height="{height}" alt={_quoted(alt)}></picture>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def figures(pictures: Iterable[str]) -> str:
    """Pictures in a grid."""
    return f'<div class="figures">{"".join(pictures)}</div>'


def details(mark: str, line: str, body: str, kind: str = "mark") -> str:
    """Something to open: a mark in colour, a line of text, and what is behind it."""
    return f"<details><summary><span{_class(kind)}>{escape(mark)}</span> {escape(line)}</summary>{body}</details>\n"


def quotes(texts: Iterable[tuple[str, str]]) -> str:
    """Texts as they are, each under its name."""
    return "".join(f"{paragraph(name, 'soft')}<blockquote>{escape(text)}</blockquote>" for name, text in texts)


def sides(columns: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Lists side by side, each under its heading."""
    blocks = []
    for name, items in columns:
        listed = "".join(f"<li>{escape(item)}</li>" for item in items)
        blocks.append(f"<div><h5>{escape(name)}</h5>{f'<ol>{listed}</ol>' if listed else '<p>nothing</p>'}</div>")
    return f'<div class="sides">{"".join(blocks)}</div>'


def document(title: str, lead: str, links: Sequence[tuple[str, str]], body: Iterable[str], *, refresh: int = 0) -> str:
    """The whole page; links are pairs of an anchor and a name. It may be asked for again after so many seconds."""
    again = f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else ""
    items = "".join(f'<li><a href="#{escape(anchor)}">{escape(name)}</a></li>' for anchor, name in links)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"{again}<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1>{paragraph(lead, 'soft')}"
        f'<nav aria-label="Contents"><ul>{items}</ul></nav></header>\n<main>\n'
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def number(value: float | None, form: str = ".3f") -> str:
    """A number, or a dash where there is none or it is not defined."""
    return DASH if value is None or math.isnan(value) else format(value, form)


def percent(value: float) -> str:
    """A share in percent, or a dash."""
    return number(value, ".1%")


def interval(low: float, high: float, form: str = ".3f") -> str:
    """An interval in brackets after its number, or nothing where it is not defined."""
    return "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _quoted(text: str) -> str:
    return f'"{escape(text)}"'

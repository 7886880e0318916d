"""The HTML of a jury's pages: elements with everything escaped, and the style sheet. What is said is not here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

#: Nothing may be fetched and no script runs, whatever the texts of a collection hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #59616b; --paper: #ffffff; --panel: #f5f6f8;
  --line: #d9dde3; --accent: #0b5cad; --ours: #e7f1fb; --good: #0a6b3d; --bad: #a3310f; --bar: #9cc3ea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #a4adb8; --paper: #1b1e23; --panel: #24282f;
  --line: #3b424c; --accent: #7db8f5; --ours: #1f3348; --good: #6fd3a0; --bad: #f2a083; --bar: #2f5d8a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem clamp(1rem, 4vw, 2.5rem) 4rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", "PingFang SC", "Microsoft YaHei",
  "Noto Sans CJK SC", "Noto Sans", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0.5rem 0; } h2 { font-size: 1.35rem; margin: 2.75rem 0 0.5rem;
  padding-top: 0.75rem; border-top: 2px solid var(--line); }
p, li { max-width: 46rem; } a { color: var(--accent); } .soft { color: var(--soft); }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; padding: 0; }
.scroll { overflow: auto; max-height: 36rem; margin: 0.75rem 0 0.25rem; border: 1px solid var(--line);
  border-radius: 6px; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 0.9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0.6rem 0.75rem; font-weight: 600; }
th, td { padding: 0.4rem 0.75rem; text-align: right; border-top: 1px solid var(--line); vertical-align: top; }
td { white-space: nowrap; } thead th { background: var(--panel); vertical-align: bottom; position: sticky; top: 0; }
th:first-child, td:first-child, td.word { text-align: left; } td.word { white-space: normal; min-width: 10rem; }
tbody th { font-weight: 500; min-width: 8rem; max-width: 28rem; }
.bar { display: block; height: 0.45rem; margin-top: 0.25rem; background: var(--bar); border-radius: 3px;
  margin-left: auto; min-width: 1px; } td:has(.bar) { min-width: 5rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: 0.5rem 0; padding: 0.4rem 0.75rem; }
summary { cursor: pointer; } blockquote { margin: 0.5rem 0; padding: 0.4rem 0.9rem; border-left: 4px solid var(--line);
  white-space: pre-wrap; max-width: 60rem; } .mark { color: var(--accent); font-weight: 600; }
.notice { border-left: 4px solid var(--accent); background: var(--panel); padding: 0.5rem 0.9rem; max-width: none; }
@media (max-width: 40rem) { th, td { padding: 0.35rem 0.5rem; } .scroll { max-height: 70vh; } }
"""


class Cell(NamedTuple):
    """A cell: its text, whether it is words, and the share of a bar under it."""

    text: str
    word: bool = False
    bar: float | None = None


#: A row of a table: its heading and its cells.
Row = tuple[str, list["Cell | str"]]


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def heading(text: str, anchor: str) -> str:
    """A heading that can be linked to."""
    return f'<h2 id="{escape(anchor)}">{escape(text)}</h2>'


def table(caption: str, headings: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell | str]]]) -> str:
    """A table that scrolls by itself on a small screen; a row is its heading and its cells."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(_cell(cell) for cell in cells)}</tr>\n'
        for name, cells in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: Cell | str) -> str:
    cell = Cell(cell) if isinstance(cell, str) else cell
    bar = ""
    if cell.bar is not None and cell.bar > 0:
        bar = f'<span class="bar" style="width:{100 * min(max(cell.bar, 0.0), 1.0):.1f}%"></span>'
    return f"<td{_class('word' if cell.word else '')}>{escape(cell.text)}{bar}</td>"


def example(mark: str, line: str, quotes: Iterable[tuple[str, str]], body: str = "") -> str:
    """Something to open: a mark and a line, then texts under their names, then more."""
    told = "".join(
        f'<p class="soft">{escape(name)}</p><blockquote>{escape(text)}</blockquote>' for name, text in quotes
    )
    return (
        f'<details><summary><span class="mark">{escape(mark)}</span> {escape(line)}</summary>{told}{body}</details>\n'
    )


def document(title: str, lead: str, links: Sequence[tuple[str, str]], body: Iterable[str]) -> str:
    """The whole page."""
    items = "".join(f'<li><a href="#{escape(anchor)}">{escape(name)}</a></li>' for anchor, name in links)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1>{paragraph(lead, 'soft')}"
        f'<nav aria-label="Contents"><ul>{items}</ul></nav></header>\n<main>\n'
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def number(value: float, form: str = ".3f") -> str:
    """A number, or a dash where it is not defined."""
    return "–" if math.isnan(value) else format(value, form)


def percent(value: float) -> str:
    """A share in percent, or a dash."""
    return "–" if math.isnan(value) else f"{100 * value:.1f}%"


def interval(low: float, high: float, form: str = ".3f") -> str:
    """An interval in brackets, or nothing."""
    return "" if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""

"""The HTML of a report: elements with everything escaped, and the style sheet. What is said on the page is not here."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

#: Nothing may be fetched and no script runs, whatever the texts of a collection hold.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #59616b; --paper: #ffffff; --panel: #f5f6f8;
  --line: #d9dde3; --accent: #0b5cad; --ours: #e7f1fb; --good: #0a6b3d; --bad: #a3310f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #a4adb8; --paper: #1b1e23; --panel: #24282f;
  --line: #3b424c; --accent: #7db8f5; --ours: #1f3348; --good: #6fd3a0; --bad: #f2a083; } }
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
th:first-child, td:first-child, .word { text-align: left; }
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
summary { cursor: pointer; } .gain { color: var(--good); font-weight: 600; } .loss { color: var(--bad);
  font-weight: 600; } .sides { display: grid; gap: 0.5rem 1.5rem; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 18rem), 1fr)); } .sides h5 { margin: 0.6rem 0 0.2rem; font-size: 0.85rem; color: var(--soft); }
.sides ol { margin: 0; padding-left: 1.3rem; font-size: 0.9rem; } h4 { margin: 1rem 0 0.25rem; font-size: 1rem; }
.notice { border-left: 4px solid var(--accent); background: var(--panel); padding: 0.5rem 0.9rem; max-width: none; }
ul.notice { padding-left: 2rem; }
@media (max-width: 40rem) { th, td { padding: 0.35rem 0.5rem; } tbody th { max-width: 10rem; min-width: 7rem; }
  .scroll { max-height: 70vh; } }
"""


class Cell(NamedTuple):
    """A cell of a table: its text, whether it is the best of its kind, and whether it is a word, not a number."""

    text: str
    best: bool = False
    word: bool = False


class Row(NamedTuple):
    """A row: its heading, a badge that says where it comes from, its cells."""

    heading: str
    cells: Sequence[Cell]
    badge: str = ""
    ours: bool = False


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def heading(level: int, text: str, anchor: str = "") -> str:
    """A heading; with an anchor it can be linked to."""
    return f"<h{level}{f' id={_quoted(anchor)}' if anchor else ''}>{escape(text)}</h{level}>"


def table(caption: str, headings: Sequence[tuple[str, str]], rows: Iterable[Row], definitions: dict[str, str]) -> str:
    """A table that scrolls by itself on a small screen, and what its metrics are; headings have a small second line."""
    top = "".join(
        f'<th scope="col"{_class("word" if name == "metric" else "")}>{escape(name)}'
        f"{f'<small>{escape(under)}</small>' if under else ''}</th>"
        for name, under in headings
    )
    body = "".join(_row(row) for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label={_quoted(caption)}><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
        + definition_list(definitions)
    )


def _row(row: Row) -> str:
    badge = f' <span class="from">{escape(row.badge)}</span>' if row.badge else ""
    kinds = ("best" if cell.best else "word" if cell.word else "" for cell in row.cells)
    pairs = zip(row.cells, kinds, strict=True)
    cells = "".join(f"<td{_class(kind)}>{escape(cell.text)}</td>" for cell, kind in pairs)
    return f'<tr{_class("ours" if row.ours else "")}><th scope="row">{escape(row.heading)}{badge}</th>{cells}</tr>\n'


def bullets(items: Iterable[str], kind: str = "") -> str:
    """A list of remarks."""
    return f"<ul{_class(kind)}>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def definition_list(definitions: dict[str, str]) -> str:
    """Names and what they mean, under the table that uses them."""
    if not definitions:
        return ""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(what)}</dd>" for name, what in definitions.items())
    return f'<dl class="definitions">{items}</dl>'


def figure(light: bytes, dark: bytes, alt: str, caption: str, size: tuple[float, float]) -> str:
    """A picture held in the page itself, on light or dark ground as the reader has it."""
    width, height = (round(100 * side) for side in size)
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{_data(dark)}">'
        f'<img src="{_data(light)}" width="{width}" height="{height}" alt={_quoted(alt)}></picture>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def details(summary: str, kind: str, mark: str, body: str) -> str:
    """Something to open: a mark in colour, a line of text, and what is behind it."""
    return f"<details><summary><span{_class(kind)}>{escape(mark)}</span> {escape(summary)}</summary>{body}</details>\n"


def sides(columns: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Lists side by side, each under its heading."""
    blocks = []
    for name, items in columns:
        listed = "".join(f"<li>{escape(item)}</li>" for item in items)
        blocks.append(f"<div><h5>{escape(name)}</h5>{f'<ol>{listed}</ol>' if listed else '<p>nothing</p>'}</div>")
    return f'<div class="sides">{"".join(blocks)}</div>'


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


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _quoted(text: str) -> str:
    return f'"{escape(text)}"'

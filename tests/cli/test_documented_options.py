"""Every option of every command stands in the documents: who does not know of one looks there, not in the help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from suwen.cli.verbs import VERBS

ROOT = Path(__file__).parents[2]
#: Results tell what was run once; they are no place to look an option up in.
PAGES = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        for verb, one in command.commands.items():
            yield from commands(f"{name} {verb}", one)
    else:
        yield name, command


def undocumented(text: str) -> list[str]:
    """Options of which no name stands in a text."""
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text)) | {"--help"}
    return [
        f"{name} {names[0]}"
        for verb, found in VERBS.items()
        for name, command in commands(verb, found.load(verb))
        for names in ([*option.opts, *option.secondary_opts] for option in command.params)
        if names[0].startswith("-") and known.isdisjoint(names)
    ]


def test_every_option_stands_in_the_documents() -> None:
    assert undocumented("\n".join(page.read_text(encoding="utf-8") for page in PAGES)) == []


def test_an_option_that_stands_nowhere_is_noticed() -> None:
    assert "search --facet" in undocumented("`--facets` and `--k`, but no more")
    assert "search --facet" not in undocumented("with `--facet FIELD`")

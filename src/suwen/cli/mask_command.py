"""The verb that takes personal data out of texts: ``mask``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from suwen.choices import MASKED
from suwen.cli.options import Json
from suwen.cli.output import plural, print_json, say
from suwen.durable import replacing_text

mask_app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@mask_app.command()
def mask(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="Texts: .txt, .md, .jsonl, .json, .csv, .parquet.")],
    to: Annotated[Path | None, typer.Option("--out", help="Write to this file, not to standard output.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help=f"Mask only this; repeatable. {', '.join(MASKED)}.")] = None,
    field: Annotated[list[str] | None, typer.Option(help="Mask only this field of a record; repeatable.")] = None,
    key: Annotated[Path | None, typer.Option(help="Write what the masks stand for here, and keep it apart.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="Write a CSV of so many masked sentences to check instead.")] = 0,
    seed: Annotated[int, typer.Option(help="Draws the sample.")] = 0,
    encoding: Annotated[str, typer.Option(help="The encoding of the file.")] = "utf-8",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out and count records that fail.")] = False,
    json: Json = False,
) -> None:
    """Mask names, numbers and addresses of people; the same person has the same mask all over a document.

    The name of a field says what stands in it (姓名, phone). A record that still looks personal stops the run.

    Example: `suwen mask notes.jsonl --field text --out masked.jsonl`, or `suwen mask notes.jsonl --sample 100`
    """
    from suwen.corpora.masked_files import mask_file
    from suwen.text.mask import MaskError

    if json and to is None:
        raise MaskError("--json and the masked text cannot share standard output: name a file with --out")
    if to is not None and to.exists() and to.samefile(source):
        raise MaskError(f"{to} is the file being read: name another with --out")
    with ExitStack() as open_files:
        stream = open_files.enter_context(replacing_text(to)) if to else sys.stdout
        keys = open_files.enter_context(replacing_text(key)) if key else None
        options = {"kinds": kind, "fields": field or (), "encoding": encoding}
        counts = mask_file(source, stream, key=keys, count=sample, seed=seed, skip_bad=skip_bad, **options)
    if json:
        print_json({"documents": counts.documents, "masks": dict(counts.masks), "left_out": counts.bad})
    else:
        put = ", ".join(f"{name} {count}" for name, count in counts.masks.most_common()) or "nothing to mask"
        left_out = f"; {counts.bad} left out" if counts.bad else ""
        say(f"{source}: {plural(counts.documents, 'document')}; {put}{left_out}")

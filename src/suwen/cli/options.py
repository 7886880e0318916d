"""Options and arguments that several commands take, declared once. What they do is said by the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suwen.choices import NumberFormat

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="The index: its folder, or postgresql://…")]
PairFolder = Annotated[
    Path | None,
    typer.Option(
        "--pair", metavar="FOLDER", help="The pair to use; else SUWEN_PAIR, the index's own, the default pair."
    ),
]
QueryTier = Annotated[str | None, typer.Option("--tier", help="The query encoder; see `suwen info PAIR`.")]

DocumentEncoder = Annotated[
    str | None,
    typer.Option("--document-encoder", help="A full pair, a model or an adapter pair; else the pair's own."),
]
Base = Annotated[
    str | None, typer.Option("--base", help="The base of an adapter: GGUF file, folder or hub id (or SUWEN_BASE).")
]
Dtype = Annotated[NumberFormat, typer.Option("--dtype", help="Of the weights; auto is bf16 on a GPU, fp32 on a CPU.")]

Key = Annotated[
    str | None, typer.Option("--key", envvar="SUWEN_KEY", help="A key of the server that may write (or SUWEN_KEY).")
]

Sources = Annotated[
    list[Path],
    typer.Argument(help="Files or folders: PDF, Word, HTML, EPUB, txt, md, jsonl(.gz), csv, tsv, parquet, BEIR."),
]
Format = Annotated[
    str | None, typer.Option("--format", help="The sources' format, when it is not plain from the name.")
]
IdField = Annotated[str | None, typer.Option("--id-field", help="The field or column that holds the id.")]
TextField = Annotated[str | None, typer.Option("--text-field", help="The field or column that holds the text.")]
TitleField = Annotated[str | None, typer.Option("--title-field", help="The field or column that holds the title.")]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="The sources' character encoding, e.g. big5 [found for each file].")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave bad records out and report them, instead of stopping.")
]
OcrModel = Annotated[
    str | None,
    typer.Option("--ocr-model", metavar="MODEL", help="Send scans to this model of suwen.toml (vision = true)."),
]
Ocr = Annotated[bool, typer.Option("--ocr/--no-ocr", help="Read scanned pages of PDFs (needs suwen[ocr]).")]

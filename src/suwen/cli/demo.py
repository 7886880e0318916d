"""The verb that shows what suwen does: ``demo`` indexes the bundled sample collection and asks it four questions."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suwen.cli.options import Json
from suwen.cli.output import counting, out, print_json

if TYPE_CHECKING:
    from suwen.retrieve.results import Results

QUERIES = (
    "肾结石怎么判断酸性还是碱性",
    "打完胰岛素人突然发软冒虚汗，该怎么办",
    "房颤能不能只吃阿司匹林，不吃利伐沙班",
    "should stone formers cut out calcium",
)
_HITS = 3


def demo(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder for the sample's index.")] = Path(
        "suwen-demo"
    ),
    json: Json = False,
) -> None:
    """Index the bundled sample collection and ask it three questions in Chinese and one in English.

    The sample is a demonstration, not medical advice. Running it again uses the index that is there.

    Example: `suwen demo suwen-demo`
    """
    from suwen.retrieve.retriever import Index
    from suwen.retrieve.sample import index_sample

    with Index.open_or_create(index) as opened:
        with counting("indexing") as progress:
            indexed = index_sample(opened, progress=progress)
        # The first round reads the tier, the dictionary and the vectors; a service pays that once. The second is timed.
        for _ in range(2):
            answers = [opened.search(query, _HITS) for query in QUERIES]
    if json:
        outcome = {"index": str(index), "read": indexed.report.read, "encoder": indexed.report.encoder}
        print_json({**outcome, "note": indexed.said, "answers": [answer.as_dict() for answer in answers]})
        return
    report = indexed.report
    out.print(
        f"{index}: {report.read} documents of the bundled sample collection, {report.encoded} passages encoded in "
        f"{report.seconds:.1f} s. A demonstration, not medical advice.",
        soft_wrap=True,
    )
    out.print(indexed.said, soft_wrap=True)
    for answer in answers:
        _show(answer)
    _next_steps(index)


def _show(answer: Results) -> None:
    spent = answer.timings
    out.print()
    out.print(answer.query, style="bold")
    for number, hit in enumerate(answer, start=1):
        out.print(f"  {number}. {hit.title}  ({hit.id})")
    out.print(
        f"  {spent['encode'] + spent['search']:.1f} ms: encode {spent['encode']:.1f}, search {spent['search']:.1f}",
        style="dim",
    )


def _next_steps(index: Path) -> None:
    out.print()
    out.print("What to try next:", style="bold")
    # Straight after `make demo` the command is in .venv/bin, which no PATH names.
    suwen = "suwen" if shutil.which("suwen") else sys.argv[0]
    # Never the demo's own folder: its documents would make room for the reader's.
    own = "my-documents" if index.name != "my-documents" else "my-own-documents"
    for line in (
        f"{suwen} search {index} 半夜饿了肚子疼，吃两块饼干就好 --explain",
        f"{suwen} search {index} 头晕吃什么药 --where department=心内科 -k 3",
        f"{suwen} info {index}",
        f"{suwen} index {own} FOLDER     (your own .txt, .md, .pdf, .docx, .jsonl, .csv or .parquet files)",
        f"{suwen} --help",
    ):
        out.print(f"  {line}", soft_wrap=True)


VERBS = (demo,)

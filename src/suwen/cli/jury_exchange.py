"""Verbs of ``suwen jury`` for other people's tools: ``sheet``, ``import``, ``qrels``, ``systems``. Parses, prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from suwen.cli.options import Json
from suwen.cli.output import out, print_json, print_table, show
from suwen.cli.reviewing import Work


def sheet(
    work: Work,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The CSV to write.")],
    json: Json = False,
) -> None:
    """Write the pool as a CSV in which people grade: column `grade`, S to D or 3 to 0; then `import`.

    Example: `suwen jury sheet work for-wang.csv`
    """
    from suwen.jury.annotators import write_sheet
    from suwen.jury.jury_folder import JuryFolder

    pairs = write_sheet(JuryFolder(work), to)
    show({"pairs": pairs, "out": str(to)}, f"{pairs:,} pairs to grade; {to}", json=json)


def take(
    work: Work,
    file: Annotated[Path, typer.Argument(metavar="CSV", help="Grades of people: query_id, passage_id, grade.")],
    annotator: Annotated[str | None, typer.Option("--annotator", help="Who, unless a column says so.")] = None,
    json: Json = False,
) -> None:
    """Take the grades of human annotators as votes, beside the models' or without any; repeat as the file grows.

    Example: `suwen jury import work for-wang.csv --annotator wang`
    """
    from suwen.jury.annotators import import_votes
    from suwen.jury.jury_folder import JuryFolder

    done = import_votes(JuryFolder(work), file, annotator)
    by = ", ".join(f"{count:,} new votes of {name}" for name, count in done.new.items()) or "no new vote"
    show({"new": done.new, "without_a_grade": done.empty}, f"{by}; {done.empty:,} rows without a grade yet", json=json)


def qrels(
    work: Work,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The file of judgements, as TREC's tools read it.")],
    graded: Annotated[bool, typer.Option("--graded", help="0 to 3 (C and D 0, B 1, A 2, S 3), not 0 and 1.")] = False,
    json: Json = False,
) -> None:
    """Write the decided verdicts as qrels: `query 0 passage grade`, binary or graded, experts' labels where they are.

    Example: `suwen jury qrels work qrels.txt --graded`
    """
    from suwen.bench.system_ranking import jury_qrels
    from suwen.corpora.run_files import write_trec_qrels
    from suwen.jury.jury_folder import JuryFolder

    count = write_trec_qrels(to, jury_qrels(JuryFolder(work), graded=graded, final=True))
    show({"judgements": count, "out": str(to)}, f"{count:,} judgements; {to}", json=json)


def systems(
    work: Work,
    runs: Annotated[list[str], typer.Option("--run", metavar="[NAME=]FILE", help="A system's run; repeat.")],
    metric: Annotated[str, typer.Option("--metric", help="What ranks the systems.")] = "ndcg@10",
    experts: Annotated[
        Path | None, typer.Option("--qrels", help="Experts' judgements (TREC's or BEIR's) [the review's labels].")
    ] = None,
    json: Json = False,
) -> None:
    """Rank systems under the jury's labels and under experts', on the pairs both labelled: Kendall's tau.

    Example: `suwen jury systems work --run bm25.trec --run mine=runs/mine.trec --run theirs.json`
    """
    from suwen.bench.system_ranking import rank_folder
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.jury_report import plain

    found = rank_folder(JuryFolder(work), runs, metric, experts)
    if json:
        print_json(plain(found))
        return
    rows = [(one.name, f"{one.jury:.4f}", f"{one.experts:.4f}") for one in found.systems]
    print_table(f"{metric} under both labels", ("system", "jury", "experts"), rows)
    out.print(
        f"Kendall's tau {found.tau:.3f} (p {found.p_value:.3g}) of {len(rows)} systems, over {found.pairs:,} pairs of "
        f"{found.queries:,} queries that both labelled"
    )


VERBS: dict[str, Callable[..., None]] = {"sheet": sheet, "import": take, "qrels": qrels, "systems": systems}

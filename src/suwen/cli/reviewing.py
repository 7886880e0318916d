"""Verbs of ``suwen jury review``: ``sample``, ``serve``, ``import``, ``agreement``. Parses and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suwen.cli.options import Json
from suwen.cli.output import out, print_json, print_table, say, show

Work = Annotated[Path, typer.Argument(metavar="WORK", help="The folder of this jury's files.")]
review_app = typer.Typer(
    name="review",
    help="Have experts check a sample of the verdicts, blind to the jury's label.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@review_app.command()
def sample(
    work: Work,
    size: Annotated[int, typer.Option("--size", min=1, help="How many pairs.")] = 500,
    least: Annotated[int, typer.Option("--least", min=0, help="The fewest of a stratum.")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="Of the draw.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Draw again where there is a sample.")] = False,
    lacking: Annotated[
        bool, typer.Option("--false-negatives", help="Only the false negatives that `suwen jury audit` found.")
    ] = False,
    json: Json = False,
) -> None:
    """Draw a stratified sample: label by disagreement by difficulty. Writes a key, and a blind CSV for experts.

    Example: `suwen jury review sample work --size 500`
    """
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.sampling import FALSE_NEGATIVE, sample_folder

    folder = JuryFolder(work)
    only = FALSE_NEGATIVE if lacking else ""
    drawn = sample_folder(folder, size, least=least, seed=seed, again=again, only=only)
    strata: dict[str, list[int]] = {}
    for one in drawn:
        strata.setdefault(str(one.stratum), [0, one.population])[0] += 1
    show(
        {"sample": str(folder.sample), "csv": str(folder.sheet), "pairs": len(drawn), "strata": strata},
        *(f"{taken:>6,} of {of:>8,}  {name}" for name, (taken, of) in sorted(strata.items())),
        f"{len(drawn):,} pairs; for experts: {folder.sheet}; the key, not for them: {folder.sample}",
        json=json,
    )


@review_app.command()
def serve(
    work: Work,
    host: Annotated[
        str, typer.Option("--host", help="The address to serve at; others than this machine's reach all.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")] = 8765,
    guidelines: Annotated[
        Path | None, typer.Option("--guidelines", help="What reviewers go by, a text [WORK/review/guidelines.md].")
    ] = None,
) -> None:
    """Serve the labelling page: keys 1, 2, 3; several reviewers; stop and go on at any time. Ctrl-C ends it.

    It shows the guidelines and everybody's progress; where reviewers differ, one of them settles it there.

    Example: `suwen jury review serve work`
    """
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.review import Reviews
    from suwen.jury.review_page import LOOPBACK, ReviewPage, guidelines_of
    from suwen.jury.review_page import serve as bound
    from suwen.jury.sampling import read_sample

    folder = JuryFolder(work)
    drawn = read_sample(folder.sample)
    with Reviews(folder.reviews) as reviews:
        hosts = LOOPBACK if host in LOOPBACK else None
        page = ReviewPage(drawn, reviews, hosts, guidelines_of(folder, guidelines))
        server = bound(page, host, port)
        if host not in LOOPBACK:
            say("anyone who reaches this address can read the sample and label it: put a server with logins in front")
        say(f"the labelling page is at http://{host}:{server.server_address[1]}/ ; Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("every label is stored")
        finally:
            server.server_close()


@review_app.command("import")
def take(
    work: Work,
    sheet: Annotated[
        Path, typer.Argument(metavar="FILE", help="A CSV that an expert filled in, or another page's reviews.db.")
    ],
    reviewer: Annotated[str | None, typer.Option("--reviewer", help="Who, unless a column says so.")] = None,
    json: Json = False,
) -> None:
    """Take experts' labels from a CSV (positive, negative, unsure) or from another page's store; repeat as it grows.

    Example: `suwen jury review import work sample-li.csv --reviewer li`
    """
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.review import Reviews, import_labels
    from suwen.jury.sampling import read_sample

    folder = JuryFolder(work)
    drawn = read_sample(folder.sample)
    with Reviews(folder.reviews) as reviews:
        new = import_labels(sheet, reviews, drawn, reviewer)
    show({"new": new}, f"{new:,} new labels", json=json)


@review_app.command()
def agreement(work: Work, json: Json = False) -> None:
    """Show how far experts agree with the jury's own labels, by stratum and reviewer: share, interval and kappa.

    The labels are those of the rule under which the sample was drawn, whatever experts changed in the verdicts since.
    Of rows that `suwen curate sample` drew: how many are right.

    Example: `suwen jury review agreement work`
    """
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.jury_report import plain
    from suwen.jury.review import Reviews, review_report, review_rows
    from suwen.jury.sampling import read_sample
    from suwen.jury.verdicts import read_verdicts

    folder = JuryFolder(work)
    drawn = read_sample(folder.sample)
    verdicts = read_verdicts(folder.verdicts) if folder.verdicts.is_file() else iter(())
    now = next((verdict.rule for verdict in verdicts if verdict.rule), "")
    with Reviews(folder.reviews) as reviews:
        review = review_report(drawn, reviews, now)
    if json:
        print_json(plain(review) | {"outdated": review.outdated})
        return
    rows = [(name, *cells) for name, cells in review_rows(review)]
    old = " (OLD: another rule than the verdicts')" if review.outdated else ""
    if review.written:
        print_table("what people say of the rows drawn", ("", "right", "rate", "95% interval"), rows)
    else:
        top = ("pairs", "agreed", "rate", "95% interval", "kappa")
        print_table(f"agreement of experts with the jury's own labels{old}", top, rows)
    out.print(review.summary())

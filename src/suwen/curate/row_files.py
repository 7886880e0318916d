"""From file to file: verified training rows, mined rows, diverse texts, rows to check. Each rule is elsewhere."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from suwen.corpora.readers import read_documents
from suwen.corpora.training_rows import TrainingRow, read_training_rows, write_training_rows
from suwen.curate import CurateError
from suwen.curate.diversify import SEEDS, Diversity, Selected, select
from suwen.curate.leakage import NEAR_WEIGHT, HeldOut, comparable, weight
from suwen.curate.mine import USUAL, Found, Search, Window, mine_negatives, search_index
from suwen.curate.screening import check_output, draw, in_words
from suwen.curate.verify import RowFunnel, Verification, read_queries, read_query_records, verify_rows
from suwen.durable import write_lines, write_text
from suwen.encoders.pair import Pair
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.sampling import WRITTEN, Sampled, Stratum, pair_name, write_csv, write_sample
from suwen.llm.asker import Asker
from suwen.retrieve.ranking import Mode
from suwen.retrieve.retriever import Index

#: What people who check written rows are asked: what is false, not what is relevant (see ``round_trip_file``).
GUIDELINES = """# Is what the passage says right? 这段资料说的对吗？

1 Yes. Everything it says is medically right, as far as you know or can look up.
2 No. Something in it is false, made up or dangerous. Say what in the note.
3 I cannot tell: it cannot be understood or checked.

Judge the passage alone. The query, under the task it was written for, only shows what the passage is about: whether the
passage answers it is not asked here.

1 对：就你所知或所能查到的，内容在医学上都正确。
2 不对：有错误、编造或危险的内容。请在备注里写明。
3 不确定：看不懂，或者无法核实。

只看资料本身。上面的任务和问题只说明资料是为什么写的；资料能否回答这个问题，这里不问。
"""


def make_rows(
    queries: Path,
    index: Index,
    to: Path,
    asker: Asker,
    settings: Verification | None = None,
    diversity: Diversity | None = None,
    *,
    seeds: int = SEEDS,
    tier: str | None = None,
    mode: Mode = "hybrid",
    held_out: HeldOut | None = None,
) -> tuple[dict[str, int], Selected]:
    """Make training rows of queries: what an index finds for them, verified by a model; a dry run writes nothing.

    Args:
        queries: A collection, or jsonl of queries or training rows.
        index: Where answers are searched for.
        to: The rows.
        asker: The model.
        settings: How candidates are verified.
        diversity: Choose diverse queries first; all of them where it is None.
        seeds: How many of the first queries are kept unjudged.
        tier: The query encoder; the pair's default when not given.
        mode: How the index is searched.
        held_out: What must not be trained on.

    Returns:
        The counts of every step, and what the selection came to.
    """
    check_output(to, queries)
    funnel, selected, source = RowFunnel(), Selected(), read_queries(queries)
    if diversity is not None:
        encode = index.pair.encoder(tier).encode_queries
        source = select(source, lambda row: row.query, encode, diversity, seeds=seeds, count=selected)
    search = search_index(index, tier, mode=mode)
    made = verify_rows(source, search, asker, settings, held_out=held_out, funnel=funnel)
    if asker.dry_run:
        deque(made, 0)
    elif (first := next(made, None)) is None:
        raise CurateError("no row has a verified positive: nothing was written; look at the queries and the index")
    else:
        write_training_rows(to, chain([first], made))
    chosen = {f"selection_{name}": count for name, count in asdict(selected).items()} if diversity is not None else {}
    return chosen | asdict(funnel), selected


def mine_file(
    source: Path,
    index: Index,
    to: Path,
    window: Window = USUAL,
    *,
    tier: str | None = None,
    mode: Mode = "dense",
    seed: int = 0,
    held_out: HeldOut | None = None,
) -> Counter[str]:
    """Add hard negatives to a file of training rows, see :func:`~suwen.curate.mine.mine_negatives`.

    Of what is counted, ``negatives`` has those the rows brought along, ``negatives_added`` has not. No passage that
    holds a held-out text becomes a negative: a recipe refuses rows that have one.
    """
    check_output(to, source)
    names = ("rows", "negatives", "negatives_added", "rows_without_a_new_one", "rows_without_a_negative", "held_out")
    counts, search = Counter(dict.fromkeys(names, 0)), search_index(index, tier, mode=mode)
    if held_out is not None:
        search = _without(search, held_out, counts)
    brought: deque[int] = deque()

    def noted() -> Iterator[TrainingRow]:
        for row in read_training_rows(source):
            brought.append(len(row.neg))
            yield row

    def counted() -> Iterator[TrainingRow]:
        for row in mine_negatives(noted(), search, window, seed=seed):
            added = len(row.neg) - brought.popleft()
            counts.update(rows=1, negatives=len(row.neg), negatives_added=added)
            counts.update(rows_without_a_new_one=int(not added), rows_without_a_negative=int(not row.neg))
            yield row

    write_training_rows(to, counted())
    return counts


def _without(search: Search, held_out: HeldOut, counts: Counter[str]) -> Search:
    """The search without passages that hold a held-out text, each of which is counted once."""
    known: dict[str, bool] = {}

    def may(found: Found) -> bool:
        if found.content not in known:
            known[found.content] = not held_out.hit(found.content)
            counts["held_out"] += not known[found.content]
        return known[found.content]

    return lambda rows, depth: [[one for one in hits if may(one)] for hits in search(rows, depth)]


def round_trip_file(
    source: Path, index: Index, to: Path, *, top: int = 3, tier: str | None = None, mode: Mode = "dense"
) -> Counter[str]:
    """Keep the rows whose query finds its passage again (BMRetriever section 3.3).

    One of the ``top`` hits is a positive of the row, or a piece of one where the index cut it into passages, or holds
    one where the row's own passages are the smaller ones; a piece has at least ten Chinese characters or 25 letters.
    None at all is an error, and writes nothing.
    """
    check_output(to, source)
    counts, search = Counter(read=0, kept=0, passage_not_found=0), search_index(index, tier, mode=mode)

    def kept() -> Iterator[TrainingRow]:
        stream = read_training_rows(source)
        while part := list(islice(stream, 256)):
            for row, hits in zip(part, search(part, top), strict=True):
                own = [comparable(text) for text in row.pos]
                again = any(_holds(text, comparable(hit.text)) for hit in hits for text in own)
                counts.update(read=1, **{"kept" if again else "passage_not_found": 1})
                yield from [row] if again else []

    rows = kept()
    if (first := next(rows, None)) is None:
        raise CurateError(
            f"{to} is not written, for no query finds its passage again: {in_words(counts)}. Is this an index of the "
            "passages that the queries were written for? If it is, try --mode lexical, or a higher --top"
        )
    write_training_rows(to, chain([first], rows))
    return counts


def _holds(one: str, other: str) -> bool:
    """Whether two comparable texts are the same, or the longer one holds the other: no mere name, which many hold."""
    piece, whole = sorted((one, other), key=len)
    return bool(piece) and (piece == whole or (weight(piece) >= NEAR_WEIGHT and piece in whole))


def sample_rows(source: Path, folder: JuryFolder, size: int = 200, *, seed: int = 0) -> int:
    """Draw rows for people to check, as a sample of ``suwen jury review``: each query with its first positive.

    The query stands under its row's instruction. What is asked is whether the passage says what is right; the label
    that reviewers agree or disagree with is "positive", it does. Guidelines that are in the folder already stay.
    """
    if folder.sample.is_file():
        raise CurateError(f"{folder.sample} is there: labels refer to it. Draw into another folder")
    rows = list(read_training_rows(source))
    sample = [
        Sampled(
            pair_name(row.query, row.pos[0]),
            "",
            "",
            f"{row.prompt}\n{row.query}".strip(),
            row.pos[0],
            Stratum("positive", WRITTEN, ""),
            len(rows),
        )
        for row in draw(rows, size, seed)
    ]
    write_sample(folder.sample, sample)
    write_csv(folder.sheet, sample)
    if not folder.guidelines.is_file():
        write_text(folder.guidelines, GUIDELINES)
    return len(sample)


def choose_diverse(
    source: Path,
    to: Path,
    pair: Pair,
    diversity: Diversity,
    *,
    tier: str | None = None,
    kind: Literal["queries", "documents"] = "queries",
    seeds: int = SEEDS,
) -> Selected:
    """Write the diverse queries or documents of a source, see :func:`~suwen.curate.diversify.select`."""
    check_output(to, source)
    selected, encoder = Selected(), pair.encoder(tier)
    if kind == "queries":
        asked, encode_queries = read_query_records(source), encoder.encode_queries
        kept = select(asked, lambda one: one.row.query, encode_queries, diversity, seeds=seeds, count=selected)
        write_lines(to, (one.record for one in kept))
    else:
        documents, encode = read_documents(source), encoder.encode_documents
        chosen = select(documents, lambda one: one.content, encode, diversity, seeds=seeds, count=selected)
        write_lines(to, (document.record() for document in chosen))
    return selected

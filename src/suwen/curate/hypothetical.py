"""Self-learnt hypothetical documents (SL-HyDE, AutoMIR section 3): what a generator and a retriever learn from.

From unlabelled documents: a query is written for each, then several candidates of a hypothetical document, shown the
right one; the candidate that finds the right one best among all documents is kept. No label is needed. Training on
what is chosen belongs to ``training/``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut
from suwen.curate.screening import in_words
from suwen.durable import write_lines
from suwen.hyde.fusion import Vectors, fuse, ranks
from suwen.hyde.writing import QUERIES, Draws, Writer
from suwen.llm.ledger import Plan

#: Whose rank counts: the candidate's own, as the paper says, or that of its mean with the query, as its code does.
By = Literal["document", "mean"]
#: How candidates are drawn in the released code; the paper does not say.
CANDIDATES = Draws(temperature=1.2, top_p=0.9, top_k=50)
#: A rank past this is as good as none (the released code's).
DEPTH = 1000


class Chosen(NamedTuple):
    """The candidate that was chosen for a query.

    Attributes:
        candidate: Its row among all candidates.
        rank: The rank of the right document, from 1, by it.
        worst: That by the query's worst candidate.
        tied: Whether another candidate does as well; the first is taken.
        chance: The mean reciprocal rank over the query's candidates: what one taken at random is worth.
    """

    candidate: int
    rank: int
    worst: int
    tied: bool
    chance: float


def choose(
    queries: Vectors,
    candidates: Vectors,
    owners: Sequence[int],
    targets: Sequence[int],
    pool: Vectors,
    *,
    by: By = "document",
    depth: int = DEPTH,
) -> list[Chosen | None]:
    """For each query the candidate that ranks its document best; None where none brings it among the first ``depth``.

    Args:
        queries: Their vectors.
        candidates: Vectors of all candidates.
        owners: Which query each candidate is of.
        targets: The row in the pool of the document each query was written for.
        pool: Vectors of all documents. Duplicates of a target, which score as it does, do not count against it.
        by: Whose rank counts.
        depth: The last rank that counts.
    """
    own = np.asarray(owners, np.int64)
    asked = candidates if by == "document" else fuse(queries[own], candidates, range(len(own)))
    found_at = ranks(asked, np.asarray(targets, np.int64)[own], pool)
    found: list[Chosen | None] = []
    for number in range(len(queries)):
        rows = np.flatnonzero(own == number)
        best = int(found_at[rows].min()) if len(rows) else depth + 1
        if best > depth:
            found.append(None)
            continue
        firsts = rows[found_at[rows] == best]
        chance = float(np.mean(1 / found_at[rows]))
        found.append(Chosen(int(firsts[0]), best, int(found_at[rows].max()), len(firsts) > 1, chance))
    return found


class Rewrites(NamedTuple):
    """The queries that a hypothetical document was chosen for, in their order.

    Attributes:
        rows: For each, its number, the document, and the rank of the right document by it.
        counts: What was chosen and what was left out, with why.
        chosen: The mean reciprocal rank by what was chosen, times 100.
        chance: That by a candidate taken at random.
    """

    rows: list[tuple[int, str, int]]
    counts: Counter[str]
    chosen: float = 0.0
    chance: float = 0.0


def chosen_rewrites(
    queries: Sequence[str],
    targets: Sequence[int],
    documents: Sequence[str],
    writer: Writer,
    encode_queries: Callable[[Sequence[str]], Vectors],
    encode_documents: Callable[[Sequence[str]], Vectors],
    *,
    candidates: int = 5,
    by: By = "document",
    draws: Draws = CANDIDATES,
    held_out: HeldOut | None = None,
) -> Rewrites:
    """Have several hypothetical documents written for each query, shown the right one, and keep the best.

    Args:
        queries: The queries.
        targets: The place among the documents of the one each query was written for.
        documents: All documents, among which the right one is looked for.
        writer: The language model.
        encode_queries: The retriever's vectors of queries.
        encode_documents: Its vectors of documents, which hypothetical ones are too.
        candidates: Hypothetical documents of each query to choose among.
        by: Whose rank counts.
        draws: How candidates are drawn.
        held_out: What must not be trained on: candidates that hit it are left out.
    """
    right = [documents[at] for at in targets]
    written = writer.documents(queries, candidates, draws=draws, targets=right) if queries else []
    every = [(number, text) for number, own in enumerate(written) for text in own]
    clean = [(number, text) for number, text in every if held_out is None or not held_out.hit(text)]
    if not clean:
        raise CurateError(f"nothing is chosen, for the model wrote nothing that can be used: {in_words(writer.counts)}")
    owners, texts = [number for number, _ in clean], [text for _, text in clean]
    pool = encode_documents(documents)
    chosen = choose(encode_queries(queries), encode_documents(texts), owners, targets, pool, by=by)
    found = [(number, one) for number, one in enumerate(chosen) if one is not None]
    counts = Counter(
        candidates_held_out=len(every) - len(clean),
        not_found=len(chosen) - len(found),
        tied=sum(one.tied for _, one in found),
        better_than_the_worst=sum(one.rank < one.worst for _, one in found),
        rewrites=len(found),
    )
    rows = [(number, texts[one.candidate], one.rank) for number, one in found]
    worth = [
        100 * float(np.mean(values)) for values in zip(*((1 / one.rank, one.chance) for _, one in found), strict=True)
    ]
    return Rewrites(rows, counts, *worth)


def write_rewrites(
    documents: Sequence[str],
    to: Path,
    writer: Writer,
    encode_queries: Callable[[Sequence[str]], Vectors],
    encode_documents: Callable[[Sequence[str]], Vectors],
    *,
    candidates: int = 5,
    by: By = "document",
    draws: Draws = CANDIDATES,
    held_out: HeldOut | None = None,
) -> Counter[str]:
    """Write a query and the chosen hypothetical document for each document.

    The lines are AutoMIR's (``id``, ``text``, ``rewrite_query``, ``doc``), which the readers of training rows take.

    Args:
        documents: The unlabelled documents; repeated ones count once.
        to: The lines; ``.gz`` packs them.
        writer: The language model.
        encode_queries: The retriever's vectors of queries.
        encode_documents: Its vectors of documents, which hypothetical ones are too.
        candidates: Hypothetical documents of each query to choose among.
        by: Whose rank counts.
        draws: How candidates are drawn.
        held_out: What must not be trained on: documents and queries that hit it are left out.

    Returns:
        What was written and what was left out, with why.
    """
    distinct = list(dict.fromkeys(text for text in documents if text.strip()))
    counts: Counter[str] = Counter(documents=len(documents), repeated_or_empty=len(documents) - len(distinct))
    if len(distinct) < 2:
        raise CurateError("there are fewer than two distinct documents: nothing can be ranked among them")
    places = asked_of(distinct, writer, held_out, counts)
    queries, targets = [query for _, query in places], [at for at, _ in places]
    settings: dict[str, Any] = {"candidates": candidates, "by": by, "draws": draws, "held_out": held_out}
    encoders = encode_queries, encode_documents
    found = chosen_rewrites(queries, targets, distinct, writer, *encoders, **settings)
    fields = ("text", "rewrite_query", "doc", "rank")
    rows = ((queries[number], text, distinct[targets[number]], rank) for number, text, rank in found.rows)
    write_lines(to, ({"id": at, **dict(zip(fields, row, strict=True))} for at, row in enumerate(rows)))
    counts.update(found.counts)
    return counts


def plan_rewrites(documents: Sequence[str], writer: Writer, candidates: int) -> list[Plan]:
    """What the two steps of :func:`write_rewrites` take at the most; makes no call."""
    distinct = list(dict.fromkeys(text for text in documents if text.strip()))
    # A query is not written yet: as long as one may be.
    asked = [text[: QUERIES.max_tokens] for text in distinct]
    steps = (
        writer.query_requests(distinct, QUERIES),
        writer.document_requests(asked, candidates, "q2p", CANDIDATES, distinct),
    )
    return [writer.llm.plan(requests) for requests in steps]


def asked_of(
    documents: Sequence[str],
    writer: Writer,
    held_out: HeldOut | None,
    counts: Counter[str],
    draws: Draws | None = None,
) -> list[tuple[int, str]]:
    """The query of each document that has one, by the document's place; nothing that is held out.

    Args:
        documents: The documents.
        writer: The language model.
        held_out: What must not be trained on.
        counts: Where is counted what is left out.
        draws: How queries are drawn; as in the released code unless given.
    """
    found = []
    for at, query in enumerate(writer.queries(documents, draws=draws)):
        if query is None:
            counts["without_query"] += 1
        elif held_out is not None and (held_out.hit(query) or held_out.hit(documents[at])):
            counts["held_out"] += 1
        else:
            found.append((at, query))
    return found

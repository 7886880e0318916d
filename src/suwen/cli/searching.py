"""Verbs that ask: ``search``, ``info``, ``recall``."""

from __future__ import annotations

import gc
import os
from contextlib import closing
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suwen.choices import DEEPEST, Mode
from suwen.cli.options import IndexFolder, Json, PairFolder, QueryTier
from suwen.cli.output import NEGATIVE, err, measuring, out, plural, print_json, show
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from rich.text import Text

    from suwen.encoders.pair import Pair
    from suwen.retrieve.results import Facet, Hit, Results
    from suwen.retrieve.rewriting import Rewritten

_BASE = "; the base is not in the pair, name it with SUWEN_BASE"

Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Filter: field=value, field!=a|b, field>=2020, 'field is missing', with AND, OR, NOT and brackets; "
        "repeat for AND.",
    ),
]


def search(
    index: IndexFolder,
    query: Annotated[list[str], typer.Argument(help="The question, in Chinese or English; with or without quotes.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many hits.")] = 10,
    mode: Annotated[Mode, typer.Option("--mode", help="Meaning, words, or both.")] = "hybrid",
    tier: QueryTier = None,
    instruction: Annotated[
        str | None, typer.Option("--instruction", help="What is asked for, where the pair's prompt takes one.")
    ] = None,
    where: Filters = None,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Hits to leave out, for the next page.")] = 0,
    sort: Annotated[
        str | None, typer.Option("--sort", help="Put the best hits in the order of a field; -field: largest first.")
    ] = None,
    facet: Annotated[
        list[str] | None, typer.Option("--facet", help="Count a field's values among the best hits; may be repeated.")
    ] = None,
    per_document: Annotated[bool, typer.Option("--per-document", help="One hit of each document.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say where each hit comes from.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show passages that say the same one by one.")] = False,
    synonyms: Annotated[
        bool, typer.Option("--synonyms/--as-typed", help="Search for other names too, and set the spelling right.")
    ] = True,
    dense_weight: Annotated[
        float | None, typer.Option("--dense-weight", min=0, help="Weight of meaning in hybrid.")
    ] = None,
    lexical_weight: Annotated[float | None, typer.Option("--lexical-weight", min=0, help="Weight of words.")] = None,
    hyde: Annotated[
        bool, typer.Option("--hyde", help="Search with what the model of [hyde] in suwen.toml writes for the query.")
    ] = False,
    hyde_n: Annotated[int | None, typer.Option("--hyde-n", min=1, max=16, help="Documents it writes.")] = None,
    hyde_budget: Annotated[
        int | None, typer.Option("--hyde-budget", min=1, help="Milliseconds it may take; then the query alone.")
    ] = None,
    precise: Annotated[
        bool, typer.Option("--precise", help="Have the first 20 hits read again by the reranker in SUWEN_RERANKER.")
    ] = False,
    precise_budget: Annotated[
        int, typer.Option("--precise-budget", min=1, help="Milliseconds that may take; the rest stays as it was.")
    ] = 400,
    pair: PairFolder = None,
    json: Json = False,
) -> None:
    """Search an index. Exit code 3 when nothing relevant was found.

    Example: `suwen search my-index 肾结石怎么判断酸性还是碱性 -k 5 --where department=泌尿外科`
    """
    if k + offset > DEEPEST:
        raise SuwenError(f"-k {k} and --offset {offset} are more than {DEEPEST} together: ask for fewer, or filter")
    # Before numpy is loaded: one query gains nothing from more threads, and starting them costs it CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Nearly all that one search makes stays until it ends: looked through less often for what does not.
    gc.set_threshold(20_000)
    options: dict[str, Any] = {"mode": mode, "tier": tier, "instruction": instruction, "where": where or None}
    options |= {"offset": offset, "sort": sort, "facets": facet or (), "per_document": per_document}
    options |= {"explain": explain, "fold": not every, "synonyms": synonyms}
    options |= {"precise": precise, "budget_ms": precise_budget, "weights": _weights(dense_weight, lexical_weight)}
    results = _search(index, " ".join(query), k, pair, options, (hyde_n, hyde_budget) if hyde else None)
    if json:
        print_json(results.as_dict())
    else:
        _show(results, offset, bool(where))
    if not results.relevant:
        raise typer.Exit(NEGATIVE)


def _search(
    index: Any,
    query: str,
    k: int,
    pair: Path | None,
    options: dict[str, Any],
    hyde: tuple[int | None, int | None] | None,
) -> Results:
    from suwen.retrieve.retriever import Index

    beside = None if hyde is None else _written(query, *hyde)
    with Index.open(index, pair=pair) as opened:
        return opened.search(query, k, highlights=True, beside=beside, **options)


def _weights(dense: float | None, lexical: float | None) -> dict[str, float] | None:
    if dense is None and lexical is None:
        return None
    if dense == lexical == 0:
        raise SuwenError("--dense-weight 0 and --lexical-weight 0 leave nothing to rank by: give one a weight above 0")
    from suwen.retrieve.fuse import WEIGHTS

    asked = {"dense": dense, "lexical": lexical}
    return {**WEIGHTS, **{leg: weight for leg, weight in asked.items() if weight is not None}}


def _written(query: str, n: int | None, budget_ms: int | None) -> Rewritten:
    from suwen.retrieve.rewriting import Rewriter

    with closing(Rewriter.load()) as rewriter:
        return rewriter.write_now(query, n, budget_ms)


def info(
    path: Annotated[
        Path | None, typer.Argument(help="An index folder, or a pair's folder; the default pair when left out.")
    ] = None,
    json: Json = False,
) -> None:
    """Explain an index or a pair: what it holds, which space it is in, who encoded it.

    Example: `suwen info my-index`
    """
    from suwen.encoders.pair import Pair
    from suwen.encoders.space import manifest_path
    from suwen.index.opening import index_exists

    if path is not None and index_exists(path):
        about = _about_index(path)
    elif path is None or manifest_path(path).is_file():
        about = _about_pair(Pair.load(path))
    else:
        raise SuwenError(f"{path} is neither an index nor a pair (no suwen.json): check the path")
    listed = {key: value if isinstance(value, list) else [value] for key, value in about.items()}
    lines = [f"{'' if number else key:<18}{line}" for key, part in listed.items() for number, line in enumerate(part)]
    show(about, *lines, json=json)


def recall(
    index: IndexFolder,
    queries: Annotated[int, typer.Option("--queries", min=1, help="How many passages serve as queries.")] = 200,
    k: Annotated[int, typer.Option("-k", min=1, help="Recall at this depth.")] = 10,
    json: Json = False,
) -> None:
    """Measure the index's recall against exact search, on its own vectors.

    Passages spread over the index are asked for as if they were queries; the share of the exact top k that the index
    finds is its recall.

    Example: `suwen recall my-index --queries 500`
    """
    from suwen.index.opening import open_engine
    from suwen.index.recall import measure_recall

    with closing(open_engine(index)) as engine, measuring("searching exactly") as progress:
        measured = measure_recall(engine, queries, k, progress)
    said = f"recall@{k} {measured.recall:.4f} against exact search, over {measured.queries} queries"
    show(measured._asdict(), said, json=json)


def _show(results: Results, offset: int, filtered: bool) -> None:
    from rich.text import Text

    if not results:
        # By meaning every passage is somehow near: where none is found, none was admitted.
        none = filtered and not offset and results.mode != "lexical"
        err.print(f"nothing relevant was found{': no passage meets the filter' if none else ''}", markup=False)
    elif not results.relevant:
        why = ", ".join(f"{name} {value}" for name, value in results.evidence.items())
        err.print(f"nothing relevant was found; the nearest passages follow ({why})", markup=False)
    for number, hit in enumerate(results, start=offset + 1):
        page = f", page {hit.metadata['page']}" if "page" in hit.metadata else ""
        title = f"{hit.title}{page}  " if hit.title else ""
        out.print(
            Text.assemble(
                (f"{number:>3}. {title}", "bold"), f"{hit.id}  confidence {confidence_told(hit.confidence)}{_more(hit)}"
            )
        )
        out.print(_marked(hit))
        if hit.explanation:
            out.print(_because(hit), markup=False, style="dim")
    for field, facet in results.facets.items():
        out.print(_counted(field, facet), markup=False)
    spent = results.timings
    tier = f", tier {results.tier}" if results.tier else ""
    took = f"encode {spent['encode']:.1f} ms, search {spent['search']:.1f} ms"
    err.print(f"{plural(len(results), 'hit')}, {results.mode}{tier}; {took}", markup=False)
    if results.also_searched:
        err.print(f"also searched for {', '.join(results.also_searched)}", markup=False)
    for note in results.notes:
        err.print(note, markup=False)


def confidence_told(confidence: float) -> str:
    """A confidence with two digits, cut: 0.395 is no answer, and 0.40 would be one.

    >>> confidence_told(0.395), confidence_told(0.4), confidence_told(0.57)
    ('0.39', '0.40', '0.57')
    """
    return f"{floor(100 * confidence + 1e-9) / 100:.2f}"


def _counted(field: str, facet: Facet) -> str:
    """For example ``year: 2024 (12), 2023 (3), 8 more; none (1)``."""
    named = [f"{one.value} ({one.count})" for one in facet.values] + ([f"{facet.more} more"] if facet.more else [])
    return f"{field}: {', '.join(named)}" + (f"; none ({facet.missing})" if facet.missing else "")


def _more(hit: Hit) -> str:
    return f"  and {len(hit.same)} more that say the same" if hit.same else ""


def _marked(hit: Hit) -> Text:
    """The passage's text with its matching sentences' terms in bold."""
    from rich.text import Text

    text = Text(hit.text if len(hit.text) <= 300 else hit.text[:300] + "…")
    for highlight in hit.highlights:
        if not highlight.terms:
            text.stylize("underline", highlight.start, min(highlight.end, 300))
        for start, end in highlight.terms:
            text.stylize("bold cyan", start, end)
    text.pad_left(5)
    return text


_MOVED = {
    "like_first": "moved up, being like the first hits",
    "words": "moved up for its words, which few other passages have",
    "name": "moved up, holding the whole name that was asked for",
    "answer": "moved up, above bare names",
    "less_like": "moved down, others being more like the first hits",
    "bare_name": "moved down, a bare name below answers",
}


def _because(hit: Hit) -> str:
    why = hit.explanation
    assert why is not None
    legs = [
        f"{name} rank {leg.rank} score {leg.score:.4f}"
        for name, leg in (("dense", why.dense), ("lexical", why.lexical))
        if leg
    ]
    legs += [_MOVED[reason] for reason in why.moved]
    return f"     {'; '.join(legs)}; encoded by {why.encoder}; space {why.space}; tier {why.tier}"


def _about_index(path: Path) -> dict[str, Any]:
    from suwen.index.opening import open_engine

    with closing(open_engine(path)) as engine:
        stats, settings = engine.stats(), engine.settings()
    return {
        "index": engine.address,
        "documents": stats.documents,
        "passages": stats.passages,
        "questions": stats.questions,
        "deleted": stats.deleted,
        "space": stats.space,
        "pair": f"{settings.get('pair_name', '?')} ({settings.get('pair', '?')})",
        "dimension": stats.dimension,
        "encoded by": [f"{name}: {plural(count, 'passage')}" for name, count in stats.encoders.items()],
        "passage size": f"{settings.get('size', '?')} tokens, {settings.get('overlap', '?')} overlap",
        "fields": ", ".join(stats.fields) or "none",
        "truth": f"{stats.bytes_truth / 2**20:.1f} MiB",
        "derived files": f"{stats.bytes_derived / 2**20:.1f} MiB",
        "format": stats.format,
    }


def _about_pair(pair: Pair) -> dict[str, Any]:
    from suwen.encoders.who_encodes import described

    space, manifest = pair.space, pair.manifest
    return {
        "pair": pair.name,
        "folder": str(pair.path),
        "form": manifest.form,
        "space": space.id,
        "dimension": f"{space.dimension} (of {space.full_dimension})",
        "similarity": f"{space.similarity}, {'normalised' if space.normalise else 'not normalised'}",
        "pooling": f"{space.pooling}, end token {space.end_token or 'none'}, at most {space.max_length} tokens",
        "query prompt": repr(space.prompts.query),
        "document prompt": repr(space.prompts.document),
        "base": space.base.hub_id or space.base.sha256[:12],
        "documents": f"encoded by {described(pair)}" + (_BASE if manifest.document.kind == "adapter" else ""),
        "tiers": [_about_tier(pair, name) for name in pair.tiers],
        "licence": manifest.licence or "not stated",
        "notes": manifest.notes or "none",
    }


def _about_tier(pair: Pair, name: str) -> str:
    """For example ``l6 (0.5 static) (default): onnx int8, 16.3 MiB``."""
    tier = pair.manifest.tiers[name]
    blend = ", ".join(f"{share:g} {other}" for other, share in tier.blend.items())
    size = sum((pair.path / tier.path / file).stat().st_size for file in tier.files)
    takes = "takes an instruction" if tier.prompts.instruction else ""
    default = "default" if name == pair.manifest.default_tier else ""
    marks = [f"({mark})" for mark in (blend, default, takes) if mark]
    return f"{' '.join([name, *marks])}: {tier.kind} {tier.precision}, {size / 2**20:.1f} MiB"


def synonyms(
    index: IndexFolder,
    file: Annotated[
        Path | None, typer.Argument(help="The index's own list from now on; without it, the list is shown.")
    ] = None,
    json: Json = False,
) -> None:
    """Give an index names of its own: one group a line, separated by commas. Searches read it at once.

    It is searched for beside the list of the package. Where a name means several things, add what else a query must
    hold for it to mean this one: `AF[stroke warfarin]`.

    Example: `suwen synonyms my-index names.txt`
    """
    from suwen.corpora.files import encoding_of, read_text
    from suwen.index.opening import open_engine
    from suwen.retrieve.wording import FILE, own_list
    from suwen.text.synonyms import Synonyms

    with closing(open_engine(index)) as engine:
        if file is not None:
            emptied = file.is_file() and not file.stat().st_size
            text = "" if emptied else read_text(file, encoding_of(file))
            Synonyms.parse(text, str(file))
            engine.put_blob(FILE, text.encode())
        kept, known = own_list(engine)
    groups = len(known)
    show({"groups": groups, "synonyms": kept.splitlines()}, f"{plural(groups, 'group')}\n{kept}".rstrip(), json=json)


VERBS = (search, info, recall, synonyms)

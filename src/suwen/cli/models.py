"""Verbs about models: ``import``, ``export`` and ``assemble``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from suwen.choices import Pooling
from suwen.cli.options import Dtype, Json
from suwen.cli.output import say, show

if TYPE_CHECKING:
    from suwen.encoders.space import Manifest

# What `import` may be told.
ImportSource = Annotated[
    str, typer.Argument(help="A folder or hub id: a model, an adapter, or two towers in a folder.")
]
ImportOut = Annotated[Path, typer.Argument(metavar="OUT", help="The pair to write.")]
Layout = Annotated[str | None, typer.Option("--like", help="The layout: care, medcpt, bmretriever; else by its name.")]
QueryTower = Annotated[str | None, typer.Option("--query", help="The query tower, where SOURCE is the document tower.")]
AdapterBase = Annotated[str | None, typer.Option("--base", help="An adapter's base, where it is not as named.")]
TokenizerFrom = Annotated[str | None, typer.Option("--tokenizer", help="The tokenizer, where SOURCE has none.")]
QueryTokenizerFrom = Annotated[str | None, typer.Option("--query-tokenizer", help="That of the query tower, likewise.")]
PoolingKind = Annotated[Pooling | None, typer.Option("--pooling", help="How tokens become a vector.")]
QueryPoolingKind = Annotated[Pooling | None, typer.Option("--query-pooling", help="Of the query tower.")]
QueryPrompt = Annotated[
    str | None, typer.Option("--query-prompt", help="Before a query; {instruction} is an instruction's place.")
]
DocumentPrompt = Annotated[str | None, typer.Option("--document-prompt", help="Before a document.")]
DefaultInstruction = Annotated[str | None, typer.Option("--instruction", help="Of queries that bring none.")]
Compared = Annotated[Literal["cosine", "dot"] | None, typer.Option("--similarity", help="How vectors are compared.")]
MaxLength = Annotated[int | None, typer.Option("--max-length", help="Tokens of a text, end token included.")]
QueryMaxLength = Annotated[int | None, typer.Option("--query-max-length", help="Of the query tower.")]
EndToken = Annotated[
    str | None, typer.Option("--end-token", help="After every text: eos is the tokenizer's own, '' is none.")
]
CutTo = Annotated[int | None, typer.Option("--dimension", help="Cut vectors to this width.")]
PairName = Annotated[str | None, typer.Option("--name", help="The pair's name.")]
Licence = Annotated[str, typer.Option("--licence", help="The licence of the weights.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run code of the model.")]


def import_(
    source: ImportSource,
    to: ImportOut,
    like: Layout = None,
    query: QueryTower = None,
    base: AdapterBase = None,
    tokenizer: TokenizerFrom = None,
    query_tokenizer: QueryTokenizerFrom = None,
    pooling: PoolingKind = None,
    query_pooling: QueryPoolingKind = None,
    query_prompt: QueryPrompt = None,
    document_prompt: DocumentPrompt = None,
    instruction: DefaultInstruction = None,
    similarity: Compared = None,
    max_length: MaxLength = None,
    query_max_length: QueryMaxLength = None,
    end_token: EndToken = None,
    dimension: CutTo = None,
    name: PairName = None,
    licence: Licence = "",
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Bring released weights into a pair that index, search, serve and bench take (needs suwen[train]).

    Prompts, pooling, lengths, end token and similarity are read from the files; what they do not say is asked for.

    Example: `suwen import BMRetriever/BMRetriever-410M my-pair`
    """
    from suwen.encoders.importing import import_model
    from suwen.encoders.released import Contract

    told = Contract(
        pooling=pooling,
        query_pooling=query_pooling,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        instruction=instruction,
        similarity=similarity,
        max_length=max_length,
        query_max_length=query_max_length,
        end_token=end_token,
        dimension=dimension,
    )
    made = import_model(
        source,
        to,
        told=told,
        like=like,
        query=query,
        base=base,
        tokenizer=tokenizer,
        query_tokenizer=query_tokenizer,
        name=name,
        licence=licence,
        trust_remote_code=trust_remote_code,
    )
    _show_imported(made, to, json)


def _show_imported(made: Manifest, to: Path, json: bool) -> None:
    space = made.space
    show(
        {"out": str(to), "notes": made.notes, "space": space.model_dump(mode="json")},
        f"{to}: full pair '{made.name}' of space {space.id}, {made.notes}",
        f"  {space.pooling} pooling, {space.similarity}, at most {space.max_length} tokens, end token "
        f"{space.end_token or 'none'}; `suwen info {to}` shows all of it",
        json=json,
    )


def export(
    source: Annotated[Path, typer.Argument(help="A full pair (Router folder) or a sentence-transformers model.")],
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The light pair to write; with --into, to add to.")],
    tier: Annotated[str | None, typer.Option("--tier", help="The tier's name; l6 with 6 layers when left out.")] = None,
    precision: Annotated[
        Literal["int8", "fp32", "both"], typer.Option("--precision", help="Weights of the tier.")
    ] = "int8",
    static: Annotated[bool, typer.Option("--static", help="Add a static tier (token lookup), the fastest.")] = False,
    texts: Annotated[
        Path | None, typer.Option("--texts", help="Real texts (any source `index` reads) to measure the int8 loss on.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=32, help="How many of --texts are used.")] = 10_000,
    name: PairName = None,
    dimension: CutTo = None,
    max_length: Annotated[int | None, typer.Option("--max-length", help="Tokens a query may have.")] = None,
    into: Annotated[bool, typer.Option("--into", help="Add the tier to the pair at OUT, of the same space.")] = False,
    hub_id: Annotated[str | None, typer.Option("--hub-id", help="Where the document encoder's base is found.")] = None,
    licence: Licence = "",
    trust_remote_code: TrustRemoteCode = False,
    json: Json = False,
) -> None:
    """Turn a model into a light pair that serves without torch (needs suwen[train]).

    The ONNX graph must agree with torch (cosine at least 0.999) or nothing is written; the int8 loss is reported.

    Example: `suwen export models/my-pair light-pair --static --texts articles.jsonl`
    """
    from suwen.corpora.readers import read_documents
    from suwen.training.ship.exporting import export as run

    real = [document.text for document in islice(read_documents(texts), most)] if texts else None
    if real is None:
        say("no --texts given: losses are measured on 32 built-in sentences only")
    report = run(
        source,
        to,
        tier=tier,
        texts=real,
        precision=precision,
        name=name,
        static=static,
        into=into,
        dimension=dimension,
        max_length=max_length,
        hub_id=hub_id,
        licence=licence,
        trust_remote_code=trust_remote_code,
    )
    tiers = {key: dict(report.manifest.tiers[key].parity) for key in report.sizes}
    space = report.manifest.space.id
    show(
        {"out": str(report.path), "space": space, "tiers": tiers, "bytes": report.sizes},
        f"{report.path}: pair '{report.manifest.name}' of space {space}",
        *(
            f"  tier {key}: {report.sizes[key] / 2**20:.1f} MiB; "
            + ", ".join(f"{what} {value:.5f}" for what, value in parity.items())
            for key, parity in tiers.items()
        ),
        json=json,
    )


def assemble(
    light: Annotated[Path, typer.Argument(help="A light pair whose document encoder is an adapter.")],
    base: Annotated[
        str, typer.Option("--base", envvar="SUWEN_BASE", help="The adapter's base: GGUF file, folder or hub id.")
    ],
    to: Annotated[Path, typer.Option("--out", help="The full pair to write.")],
    query: Annotated[
        Path | None, typer.Option("--query", help="A query encoder (sentence-transformers folder) for the query side.")
    ] = None,
    dtype: Dtype = "auto",
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, …; a GPU where there is one.")] = None,
    json: Json = False,
) -> None:
    """Make the full pair of a light one: its adapter merged into the base you have (needs suwen[train]).

    The result is checked against the pair's probe before it is written. It loads in sentence-transformers, encodes
    documents at full quality, and can be trained on.

    Example: `suwen assemble light-pair --base qwen2.5-0.5b.gguf --out full-pair`
    """
    from suwen.training.ship.assembling import assemble as run

    made = run(light, base, to, query=query, device=device, dtype=dtype)
    space = made.manifest.space.id
    show(
        {"out": str(made.path), "space": space, "probe": made.cosine, "queries": made.queries},
        f"{made.path}: full pair '{made.manifest.name}' of space {space}",
        f"  least cosine on the probe: {made.cosine:.5f}; queries by the {made.queries}",
        json=json,
    )


VERBS = (import_, export, assemble)

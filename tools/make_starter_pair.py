"""Make a starter pair: one static tier, trained on a CPU in minutes. The pair of the package comes from a recipe.

The pair is a token table: a text's vector is the weighted mean of its tokens' rows. A Chinese dictionary word is mostly
one row. The rows begin as random directions weighted by idf, which already match text as a lexical index does, and are
trained on pairs by in-batch contrast, both ways. Beginning with latent semantic analysis of the texts was no better:
nDCG@10 on consultation QA / query-title / cMedQA / NFCorpus was 25.6 / 73.8 / 11.4 / 28.7, random 25.8 / 74.9 / 12.7 /
28.7 (first 700 development queries).

Needs the ``train`` extra. Example::

    python tools/make_starter_pair.py --data DATA --out starter
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch.nn import functional

from suwen.encoders.pair_files import sha256_of, sha256_of_files
from suwen.encoders.space import Manifest, Space, Tier, TierDocument, save_manifest
from suwen.text.fold import fold
from suwen.text.segment import words

DATA_HELP = """folder of gzipped JSON lines, NAME.jsonl.gz, from public sources: zh/huatuo-qa-a
(SupritYoung/Zhongjing); zh/toyhom-qa (Toyhom/Chinese-medical-dialogue-data); zh/cmedqq-train and -dev, zh/cmedir-dev,
zh/cmedqa-dev (alibaba-research/ChineseBLUE); zh/kuake-qqr-train, zh/chip-cdn-train and -dev, zh/textbook-sentences
(CBLUE); zh/imcs-symptom-train and -dev (IMCS); zh/covid-pairs-train, zh/disease-aliases, zh/disease-articles;
zh-en/icd10-names (GNU Health); zh-en/hpo-labels (HPO); en/nfcorpus/* (NFCorpus); en/medquad-qa (abachaa/MedQuAD);
en/pubmedqa (pubmedqa); en/consult-qa (icliniq, questionDoctor, eHealthForum); en/medical-question-pairs (curai);
en/openstax-nursing, en/openstax-anatomy (OpenStax). Held-out rows (development files, and one row in ten by hash) are
left out of training."""
SPLIT = ("zh/huatuo-qa-a", "zh/toyhom-qa", "en/medquad-qa", "en/pubmedqa", "en/consult-qa", "en/medical-question-pairs")
PER_SOURCE = 9_000
LENGTH = 512
TRAIN_LENGTH = 128
BATCH = 2_048
TAU = 0.05
RATE = 3e-3
CUT = 400  # characters that count words: enough, and the word cutter is the slowest part
log = logging.getLogger("starter")
Pairs = dict[str, list[tuple[str, str]]]


def rows_of(data: Path, name: str) -> list[dict[str, Any]]:
    """Read one file of the data folder."""
    with gzip.open(data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def is_held_out(text: str) -> bool:
    """Whether a row with this first text belongs to the development measure (one row in ten, by hash)."""
    return int(hashlib.sha1(text.encode()).hexdigest(), 16) % 10 == 0


def first_and_second(row: dict[str, Any]) -> tuple[str, str]:
    """The two texts of a row, whatever its file calls them."""
    first = next(key for key in ("query", "a", "mention") if key in row)
    return row[first], row[{"query": "document", "a": "b", "mention": "standard"}[first]]


def held_out_texts(data: Path) -> set[str]:
    """Every text of the development measure that no training row may contain.

    The shared targets (standard terms, NFCorpus documents) are not in it: both sides of a split need them.
    """
    rows = rows_of(data, "zh/cmedqa-dev") + rows_of(data, "zh/cmedqq-dev")
    for name in SPLIT:
        rows += [row for row in rows_of(data, name) if is_held_out(first_and_second(row)[0])]
    texts = {side for row in rows for side in first_and_second(row)}
    for row in rows_of(data, "zh/cmedir-dev"):
        texts |= {row["query"], *(document["text"] for document in row["documents"])}
    for name in ("zh/chip-cdn-dev", "zh/imcs-symptom-dev"):
        texts |= {row["mention"] for row in rows_of(data, name)}
    return texts | {row["text"] for row in rows_of(data, "en/nfcorpus/queries-dev")}


def halves(text: str) -> Iterator[tuple[str, str]]:
    """The two halves of a text, cut at the sentence end nearest its middle: a pair that needs no label."""
    ends = [match.end() for match in re.finditer(r"[。；！？，]|[.;?!] ", text[:-8]) if match.end() >= 8]
    if ends:
        cut = min(ends, key=lambda end: abs(end - len(text) / 2))
        yield text[:cut], text[cut:]


def read_pairs(data: Path) -> Pairs:
    """All pairs of the training side, by source."""
    held = held_out_texts(data)
    pairs: Pairs = {}

    def take(name: str, make: Callable[[dict[str, Any]], Iterable[tuple[str, str]]]) -> None:
        rows = (row for row in rows_of(data, name) if not any(isinstance(v, str) and v in held for v in row.values()))
        pairs[name] = [(a, b) for row in rows for a, b in make(row) if a and b and a not in held and b not in held]

    for name in ("zh/huatuo-qa-a", "en/medquad-qa", "en/consult-qa", "zh/chip-cdn-train", "zh/imcs-symptom-train"):
        take(name, lambda row: [first_and_second(row)])
    for name in ("zh/cmedqq-train", "zh/kuake-qqr-train", "zh/covid-pairs-train", "en/medical-question-pairs"):
        take(name, lambda row: [first_and_second(row)] if row["label"] else [])
    for name in ("zh-en/icd10-names", "zh-en/hpo-labels"):
        take(name, lambda row: [(row["en"], row["zh"])])
    take("zh/toyhom-qa", lambda row: [(row["query"], row["document"]), (row["question"], row["document"])])
    take("zh/disease-aliases", lambda row: [(row["name"], alias) for alias in row["aliases"]])
    take("zh/disease-articles", articles)
    take("zh/textbook-sentences", lambda row: halves(row["text"]))
    take("en/pubmedqa", lambda row: [(row["query"], row["document"]), (row["query"], row["conclusion"])])
    for name in ("en/openstax-nursing", "en/openstax-anatomy"):
        take(name, lambda row: [pair for text in row["paragraphs"] for pair in [(row["title"], text), *halves(text)]])
    pairs |= nfcorpus(data, held)
    return pairs


def articles(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A disease's name with each section of its article, and each section's halves."""
    for text in (row.get(key) for key in ("intro", "cause", "prevent", "symptom", "treat_detail", "nursing")):
        if not isinstance(text, str):  # a section may be missing, or a list of terms
            continue
        yield row["name"], text[:300]
        yield from halves(text[:300])


def nfcorpus(data: Path, held: set[str]) -> Pairs:
    """Training queries with their documents, and those documents' titles with their abstracts."""
    texts = {row["id"]: row["text"] for row in rows_of(data, "en/nfcorpus/corpus")}
    queries = {row["id"]: row["text"] for row in rows_of(data, "en/nfcorpus/queries-train") if row["text"] not in held}
    judged = [row for row in rows_of(data, "en/nfcorpus/qrels-train") if row["query"] in queries]
    titled = (texts[name].partition(" abstract ") for name in sorted({row["document"] for row in judged}))
    return {
        "en/nfcorpus": [(queries[row["query"]], texts[row["document"]]) for row in judged],
        "en/nfcorpus-titles": [(title, abstract) for title, _, abstract in titled if title and abstract],
    }


def read_rows(files: Sequence[Path]) -> Pairs:
    """Training rows ``{query, pos, neg}`` as pairs; a file is a source. The caller keeps held-out rows out of them."""
    pairs: Pairs = {}
    for file in files:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        pairs[str(file)] = [(row["query"], text) for row in rows for text in row["pos"]]
    return pairs


def make_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """A unigram tokenizer whose pieces are dictionary words by frequency, single characters, and Latin word parts.

    It cuts only at marks and where the script changes; the best path through uncut Chinese finds the words again.
    """
    counts = Counter(word for text in texts for word in words(text[:CUT]))
    characters = Counter(character for text in texts for character in fold(text[:CUT]) if character.isalnum())
    singles = [character for character, count in characters.most_common(vocabulary // 4) if count > 2]
    chinese = [word for word, _ in counts.most_common() if re.fullmatch(r"[\u4e00-\u9fff]{2,5}", word)]
    latin = [word for word, _ in counts.most_common() if re.fullmatch(r"[a-z]{2,}", word)]
    room = vocabulary - len(singles) - 1
    whole = chinese[: int(room * 0.55)] + latin[: int(room * 0.33)]
    total = counts.total()
    scores = {piece: float(np.log((counts[piece] + 0.5) / total)) for piece in whole + singles}
    for part, score in word_parts(latin[int(room * 0.33) :], room - len(whole)):
        scores.setdefault(part, score - 4.0)  # a part must never be cheaper than the whole word
    tokenizer = Tokenizer(models.Unigram([("[UNK]", -30.0), *scores.items()], unk_id=0))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    )
    runs = Regex(r"\p{Han}+|(?:(?!\p{Han})\p{L})+|\p{N}+")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(runs, "removed", invert=True)
    return tokenizer


def word_parts(rare: Sequence[str], size: int) -> list[tuple[str, float]]:
    """Parts of the Latin words too rare for a row of their own."""
    tokenizer = Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(vocab_size=size, max_piece_length=8, show_progress=False)
    tokenizer.train_from_iterator(rare, trainer)
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"] if len(piece) > 1]


def train(texts: Sequence[torch.Tensor], pairs: Sequence[torch.Tensor], idf: torch.Tensor, args: Any) -> torch.Tensor:
    """The table, weights folded in, after some epochs of symmetric InfoNCE over batches of one source each."""
    rows = torch.nn.Parameter(functional.normalize(torch.randn(len(idf), args.dimension)) * 0.3)
    weights = torch.nn.Parameter((idf / idf.mean()).log())
    optimiser = torch.optim.Adam([rows, weights], lr=RATE, betas=(0.9, 0.99))
    batches = [batch for _ in range(args.epochs) for batch in one_epoch(pairs, BATCH)]
    pace = [min(1, (step + 1) / 20) * (1 - step / len(batches)) for step in range(len(batches) + 1)]
    decay = torch.optim.lr_scheduler.LambdaLR(optimiser, pace.__getitem__)
    for step, batch in enumerate(batches):
        table = rows * weights.exp()[:, None]
        left, right = (vectors(table, [texts[i] for i in side]) for side in batch.T.tolist())
        loss = contrast(left, right, batch)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        decay.step()
        if step % 10 == 0:
            log.info("step %d of %d, loss %.3f", step, len(batches), loss.item())
    return (rows * weights.exp()[:, None]).detach()


def one_epoch(pairs: Sequence[torch.Tensor], size: int) -> list[torch.Tensor]:
    """Batches of one source each, shuffled; a large source gives a sample, so that it cannot drown the others."""
    drawn = [source[torch.randperm(len(source))[:PER_SOURCE]] for source in pairs]
    batches = [batch for source in drawn for batch in torch.split(source, size) if len(batch) >= min(256, len(source))]
    random.shuffle(batches)
    return batches


def vectors(table: torch.Tensor, texts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Unit vectors of tokenised texts."""
    starts = torch.tensor([0, *(len(ids) for ids in texts[:-1])], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return functional.normalize(functional.embedding_bag(torch.cat(list(texts)), table, starts, mode="mean"))


def contrast(left: torch.Tensor, right: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
    """InfoNCE both ways; another pair that shares a text with this one is no negative."""
    shared = (batch[:, None, :] == batch[None, :, :]).any(-1).fill_diagonal_(False)
    scores = (left @ right.T / TAU).masked_fill(shared, -1e4)
    target = torch.arange(len(batch))
    return (functional.cross_entropy(scores, target) + functional.cross_entropy(scores.T, target)) / 2


def fit(pairs: Pairs, args: argparse.Namespace) -> tuple[Tokenizer, torch.Tensor]:
    """Tokenise the pairs and train the table on them."""
    texts = list(dict.fromkeys(text for source in pairs.values() for pair in source for text in pair))
    number = {text: position for position, text in enumerate(texts)}
    tokenizer = make_tokenizer(texts, args.vocabulary)
    encoded = tokenizer.encode_batch_fast([text[: 8 * TRAIN_LENGTH] for text in texts], add_special_tokens=False)
    ids = [torch.tensor(encoding.ids[:TRAIN_LENGTH] or [0], dtype=torch.int32) for encoding in encoded]
    holders = torch.tensor([token for part in ids for token in set(part.tolist())])
    seen = torch.bincount(holders, minlength=tokenizer.get_vocab_size())
    log.info("%d texts, %d pieces, pairs: %s", len(texts), len(seen), {name: len(rows) for name, rows in pairs.items()})
    numbered = [torch.tensor([(number[a], number[b]) for a, b in source]) for source in pairs.values() if source]
    return tokenizer, train(ids, numbered, ((1 + len(texts)) / (1 + seen)).log(), args)


def write(out: Path, tokenizer: Tokenizer, table: torch.Tensor) -> None:
    """Quantise the rows to int8 with one scale each, and write the pair with its manifest."""
    folder = out / "query" / "static"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    scales = table.abs().amax(dim=1).clamp_min(1e-9) / 127
    np.save(folder / "embeddings.npy", (table / scales[:, None]).round().to(torch.int8).numpy())
    np.save(folder / "scales.npy", scales.numpy().astype(np.float32))
    files = {name: sha256_of(folder / name) for name in ("tokenizer.json", "embeddings.npy", "scales.npy")}
    width = table.shape[1]
    base = {"sha256": sha256_of_files(folder, files)}
    space = Space.mint(base=base, pooling="mean", max_length=LENGTH, dimension=width, full_dimension=width)
    tier = Tier(
        kind="static",
        path="query/static",
        files=files,
        max_length=LENGTH,
        precision="int8",
        width=width,
        aligned_to=space.id,
    )
    manifest = Manifest(
        name="suwen-starter-static",
        form="light",
        space=space,
        tiers={"static": tier},
        default_tier="static",
        document=TierDocument(kind="tier", tier="static"),
        notes="Starter pair: a token table, trained on a CPU. Research preview, not medical advice; see README.md.",
        licence="Research preview: the licences of the training sources are listed in README.md.",
    )
    save_manifest(out, manifest)


def main() -> None:
    """Parse the arguments, train and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--rows", type=Path, nargs="+", help="training rows, JSON lines of {query, pos, neg}")
    source.add_argument("--data", type=Path, help=DATA_HELP)
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=18_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    write(args.out, *fit(read_pairs(args.data) if args.data else read_rows(args.rows), args))


if __name__ == "__main__":
    main()

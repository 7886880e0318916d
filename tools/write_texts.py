"""Have a small language model write search words, titles and questions in bulk, from texts that may be trained on.

Two steps, so that the second can run on a GPU that has nothing but torch and transformers. ``prompts`` asks about the
rows and texts that tools/make_training_data.py made (nothing held out is among them); ``write`` samples the replies,
thousands at once. What is written goes back into the data with ``make_training_data.py --written``,
which leaves out what is held out.
Example::

    python tools/write_texts.py prompts training-data prompts.jsonl.gz
    python tools/write_texts.py write prompts.jsonl.gz written.jsonl.gz --model qwen2.5-coder-1.5b.gguf --seconds 200
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suwen.corpora.files import open_text
from suwen.llm.local_model import LocalModel
from suwen.llm.requests import Sampling

log = logging.getLogger("write-texts")
Prompt = dict[str, str]
#: What is asked, by kind. ``title`` and ``topic`` are pairs of search words and titles, the others are questions.
ASKED = {
    "title": "搜索词：{x}\n写出搜索引擎会给出的5个健康网站的网页标题，都能回答这条搜索词，说法各不相同。"
    "每行一个，不要编号。",
    "topic": "围绕“{x}”写出6条网民会输入的健康搜索词，每条后面配一个能回答它的网页标题。"
    "每行一条，格式：搜索词 => 网页标题。不要编号。",
    "question": "医生的回答：{x}\n\n写出6个患者会这样问、而这段话能回答的问题。口语化，长短不一。每行一个，不要编号。",
    "short": "患者的描述：{x}\n\n把它写成5条简短的搜索词，意思不变，用词各不相同。每行一条，不要编号。",
    "ask": "患者的提问：{x}\n\n写出8个别的患者在类似情况下会问的问题，病情、部位、年龄、用药各不相同，口语化，"
    "长短不一。每行一个，不要编号。",
    "tell": "话题：{x}\n\n两位患者在网上问医生，都与这个话题有关，但年龄、经过、检查和用药不同。写出他们各自的提问，"
    "每段40到120字：先说症状和经过，再说想知道什么，口语化。每行一段，不要编号。",
    "search": "Passage: {x}\n\nWrite 8 different short search queries that this passage answers, 2 to 8 words each. "
    "One per line, no numbers.",
    "near": "Search query: {x}\n\nWrite 10 other search queries on neighbouring topics of health, food or medicine, "
    "each about another substance, disease or effect, 2 to 10 words. One per line, no numbers.",
    "about": "Topic: {x}\n\nWrite 10 different things that people type into a search engine about this topic, "
    "some in medical and some in everyday words, 2 to 10 words. One per line, no numbers.",
}
#: How many of each source are asked about, by kind; passages are cut to this many characters.
SOURCES: Mapping[str, Mapping[str, int]] = {
    "title": {
        "zh/kuake-qqr-train": 5000,
        "zh/cmedqq-train": 5000,
        "zh/covid-pairs-train": 2000,
        "toyhom-titles": 4000,
    },
    "topic": {
        "zh/disease-aliases": 4000,
        "zh-en/icd10-names": 3000,
        "zh/imcs-symptom-train": 2000,
        "zh/disease-articles": 2500,
        "zh/kuake-qqr-train": 3000,
    },
    "question": {"huatuo": 3600, "toyhom": 12000, "disease-articles": 6000, "zh/textbook-sentences": 7000},
    "short": {"huatuo": 3600, "toyhom": 12000},
    "ask": {"huatuo": 3600, "toyhom": 12000, "zh/cmedqq-train": 14000},
    "tell": {
        "huatuo": 3600,
        "toyhom": 8000,
        "zh/disease-aliases": 9000,
        "zh-en/icd10-names": 4000,
        "zh/imcs-symptom-train": 3000,
    },
    "search": {"nfcorpus": 7000, "medquad": 6000, "consult": 5000, "pubmedqa": 900, "openstax": 3000},
    "near": {"en/nfcorpus": 2600, "en/medquad-qa": 5000, "en/medical-question-pairs": 4000, "en/consult-qa": 2200},
    "about": {"zh-en/hpo-labels": 9000, "zh-en/icd10-names": 6000, "en/medquad-qa": 4000},
}
ENGLISH = ("search", "near", "about")
LONGEST = {"zh": 180, "en": 450}
#: New tokens of a reply, by kind.
ROOM = {
    "title": 110,
    "topic": 160,
    "question": 150,
    "short": 90,
    "ask": 190,
    "tell": 190,
    "search": 80,
    "near": 110,
    "about": 110,
}
_CHINESE = re.compile(r"[\u4e00-\u9fff]{2}")


def make_prompts(data: Path, seed: int) -> Iterator[Prompt]:
    """One prompt for each text asked about, in a shuffled order, with the row's own texts that replies pair with."""
    draw = random.Random(seed)
    texts: dict[str, list[str]] = defaultdict(list)
    for row in _lines(data / "texts.jsonl.gz"):
        if row["kind"] in ("name", "query", "sentence"):
            texts[row["source"]].append(row["text"])
    prompts: list[Prompt] = []
    for kind, sources in SOURCES.items():
        for source, count in sources.items():
            rows = data / "rows" / f"{source}.jsonl.gz"
            found = (
                _from_rows(kind, source, rows) if rows.is_file() else [_plain(kind, source, x) for x in texts[source]]
            )
            found = [prompt for prompt in found if (kind in ENGLISH) != bool(_CHINESE.search(prompt["x"]))]
            draw.shuffle(found)
            prompts += found[:count]
    draw.shuffle(prompts)
    return iter(prompts)


def _from_rows(kind: str, source: str, path: Path) -> list[Prompt]:
    """What a row is asked about: its query for titles and search words, else its positive, each text once."""
    found: dict[str, Prompt] = {}
    for number, row in enumerate(_lines(path)):
        about, pairs_with = (
            (row["query"], row["pos"][0])
            if kind in ("title", "short", "ask", "tell")
            else (row["pos"][0], row["pos"][0])
        )
        # NFCorpus has few documents and many queries about them: each document is asked about twice.
        key = f"{about}{number % 2}" if source == "nfcorpus" else about
        found.setdefault(key, {"kind": kind, "source": source, "x": _cut(about, kind), "with": pairs_with})
    return list(found.values())


def _plain(kind: str, source: str, text: str) -> Prompt:
    return {"kind": kind, "source": source, "x": _cut(text, kind), "with": text}


def _cut(text: str, kind: str) -> str:
    return text[: LONGEST["en" if kind in ENGLISH else "zh"]]


def write(
    prompts: Sequence[Prompt],
    model: LocalModel,
    *,
    seconds: float,
    batch: int,
    seed: int,
    report: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Each prompt with the lines of its reply, until the time is up; batches of all kinds come mixed."""
    import torch

    torch.manual_seed(seed)
    batches = _batches(prompts, model.tokenizer, batch, seed)
    started, done, said = time.monotonic(), 0, 0
    for number, (kind, ids, members) in enumerate(batches, 1):
        if time.monotonic() - started > seconds:
            break
        replies = model.continued(ids, Sampling(ROOM[kind], temperature=0.8, min_p=0.05))
        for prompt, reply in zip(members, replies, strict=True):
            lines = [line.strip() for line in _whole(reply.text, reply.ended).split("\n")]
            yield {**prompt, "lines": [line for line in lines if line]}
        done, said = done + len(members), said + sum(reply.tokens_out for reply in replies)
        spent = time.monotonic() - started
        report(f"{spent:6.1f}s batch {number}/{len(batches)} {kind} {done} prompts, {said / spent:,.0f} tokens/s")


def _batches(
    prompts: Sequence[Prompt], tokenizer: Any, batch: int, seed: int
) -> list[tuple[str, list[list[int]], list[Prompt]]]:
    """Prompts of one kind and of nearly one length, in shuffled order."""

    def tokens(*texts: str) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return ids

    around = {
        kind: tokens(f"<|im_start|>user\n{before}", f"{after}<|im_end|>\n<|im_start|>assistant\n")
        for kind, (before, after) in ((kind, asked.split("{x}")) for kind, asked in ASKED.items())
    }
    alike: dict[str, list[tuple[list[int], Prompt]]] = defaultdict(list)
    for prompt, about in zip(prompts, tokens(*(prompt["x"] for prompt in prompts)), strict=True):
        head, tail = around[prompt["kind"]]
        alike[prompt["kind"]].append((head + about + tail, prompt))
    found = []
    for kind, group in alike.items():
        group.sort(key=lambda one: len(one[0]))
        for start in range(0, len(group), batch):
            ids, members = zip(*group[start : start + batch], strict=True)
            found.append((kind, list(ids), list(members)))
    random.Random(seed).shuffle(found)
    return found


def _whole(text: str, ended: bool) -> str:
    """A reply; one that rambles on is cut after its last whole line."""
    return text if ended else text.rpartition("\n")[0]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with open_text(path) as lines:
        for line in lines:
            yield json.loads(line)


def _save(path: Path, rows: Iterator[dict[str, Any]] | Iterator[Prompt]) -> int:
    count, part = 0, path.with_name(path.name + ".part")
    with gzip.open(part, "wt", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    part.replace(path)
    return count


def main() -> None:
    """Run one of the two steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["prompts", "write"])
    parser.add_argument("source", type=Path, help="The training data; or the prompts")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, help="A GGUF file of a small Qwen2.5")
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--limit", type=int, default=None, help="The first so many prompts, to try it")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=1, help="Replies to each prompt; larger batches cost little more")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if given.step == "prompts":
        log.info("%s prompts in %s", _save(given.out, make_prompts(given.source, given.seed)), given.out)
        return
    if given.model is None:
        parser.error("write needs --model FILE.gguf")
    model = LocalModel.load(given.model, device=given.device)
    log.info("the model is loaded")
    prompts = list(_lines(given.source))[: given.limit] * given.times
    replies = write(
        prompts,
        model,
        seconds=given.seconds,
        batch=given.batch,
        seed=given.seed,
        report=log.info,
    )
    log.info("%s replies in %s", _save(given.out, replies), given.out)


if __name__ == "__main__":
    main()

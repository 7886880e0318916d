"""A small world of hand-written medical phrases: training rows, texts, a held-out set and a development task.

It is what ``data.root: builtin:tiny`` stands for. The combinations of a condition and an aspect are the facts; one in
ten is held out whole, so that a model that learnt conditions and aspects finds facts it has never seen.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.sample_collection import sample_path
from suwen.corpora.training_rows import TrainingRow, write_training_rows

# fmt: off
_CONDITIONS = (
    "高血压", "糖尿病", "痛风", "哮喘", "肺炎", "胃炎", "胃溃疡", "肝炎",
    "脂肪肝", "胆结石", "肾结石", "肾炎", "贫血", "甲亢", "甲减", "冠心病",
    "心律不齐", "中风", "偏头痛", "癫痫", "失眠", "抑郁症", "焦虑症", "颈椎病",
    "腰椎间盘突出", "关节炎", "骨质疏松", "湿疹", "荨麻疹", "银屑病", "带状疱疹", "青光眼",
    "白内障", "结膜炎", "中耳炎", "鼻炎", "扁桃体炎", "口腔溃疡", "便秘", "痔疮",
)
# fmt: on
_INSTRUCTION = "找出能回答这个健康问题的内容"


class Fact(NamedTuple):
    """How an aspect of a condition is asked, titled and answered; with ``{}`` for the condition, an aspect of any."""

    questions: tuple[str, ...]
    title: str
    answer: str
    held_out: bool = False


_ASPECTS = (
    Fact(
        ("{}是怎么引起的", "为什么会得{}", "{}的病因是什么"),
        "{}的常见病因",
        "{}的发生与遗传、年龄和生活习惯有关，常由多种原因共同造成。",
    ),
    Fact(
        ("{}有什么症状", "得了{}会有什么表现", "怎么知道自己是不是{}"),
        "{}的早期表现",
        "{}起病时表现轻微，随后不适逐渐明显，出现新的症状应当就诊。",
    ),
    Fact(
        ("{}怎么治疗", "{}能治好吗", "{}有什么好的疗法"),
        "{}的治疗方法",
        "{}以规范治疗为主，医生按轻重选择方案，多数人的病情可以控制。",
    ),
    Fact(
        ("{}吃什么药", "{}用药有哪些", "{}的特效药是什么"),
        "{}的用药选择",
        "{}的药物要在医生指导下服用，不可自行加量或停药，注意不良反应。",
    ),
    Fact(
        ("{}饮食要注意什么", "{}不能吃什么", "{}患者吃什么好"),
        "{}患者的饮食",
        "{}患者饮食宜清淡，少吃油腻辛辣，多吃蔬菜水果，规律进餐。",
    ),
    Fact(
        ("{}要做什么检查", "{}去医院查什么", "怎么确诊{}"),
        "{}需要的检查",
        "怀疑{}时先做体格检查和化验，必要时再拍片或做超声以明确诊断。",
    ),
    Fact(
        ("{}怎么预防", "如何避免{}复发", "{}预防措施有哪些"),
        "{}的预防",
        "预防{}要坚持锻炼、戒烟限酒、作息规律，并定期体检。",
    ),
    Fact(
        ("孕妇得了{}怎么办", "怀孕期间{}要紧吗", "{}会影响胎儿吗"),
        "妊娠期的{}",
        "妊娠期出现{}应由产科和专科医生共同处理，尽量选用对胎儿安全的办法。",
    ),
    Fact(
        ("{}挂什么科", "{}看哪个科室", "{}应该找什么医生"),
        "{}该看哪个科",
        "因{}就诊可先到门诊分诊台咨询，由护士按主要不适指引到对应科室。",
    ),
    Fact(
        ("小孩{}怎么护理", "儿童{}家长要注意什么", "宝宝得了{}怎么办"),
        "儿童{}的家庭护理",
        "孩子患{}时家长要注意观察精神和体温，按时复诊，让孩子充分休息。",
    ),
)


def facts(conditions: int | None = None) -> list[Fact]:
    """Every fact of the small world, or those of its first conditions."""
    return [
        Fact(
            tuple(question.format(condition) for question in aspect.questions),
            aspect.title.format(condition),
            aspect.answer.format(condition),
            held_out=(number * 7 + place * 3) % 10 == 0,
        )
        for number, condition in enumerate(_CONDITIONS[:conditions])
        for place, aspect in enumerate(_ASPECTS)
    ]


def write_tiny_data(
    folder: Path, sources: Iterable[str] = (), *, conditions: int | None = None, kinds: Iterable[str] = ()
) -> None:
    """Write the small world in the layout of real training data.

    Args:
        folder: Where to: ``rows/``, ``texts.jsonl.gz``, ``held-out.jsonl.gz``, ``dev/`` and ``dev.toml``.
        sources: Further names under which the rows are written, those of a recipe made for other data.
        conditions: Only the first so many, and as much less of the sample; all where none is given.
        kinds: Further kinds of texts that a recipe made for other data names.
    """
    from suwen.bench.suite_tasks import scaffold_local

    world, sample = facts(conditions), _sample(conditions)
    seen = [fact for fact in world if not fact.held_out]
    kept = [fact for fact in world if fact.held_out]
    unlabelled = list(_unlabelled(seen, sample))
    rows = {"consult": list(_consult(seen)), "titles": list(_titles(seen)), "unsup-titles": unlabelled}
    for name in sources:
        rows.setdefault(name, rows["unsup-titles" if name.startswith("unsup-") else "consult"])
    for name, written in rows.items():
        write_training_rows(folder / "rows" / f"{name}.jsonl.gz", written)
    texts = list(_texts(seen, sample, conditions))
    further = sorted({*kinds} - {text["kind"] for text in texts})
    texts += [{"text": one, "kind": kind, "source": "tiny"} for kind in further for one in _CONDITIONS[:conditions]]
    _write_lines(folder / "texts.jsonl.gz", texts)
    held_out = [text for fact in kept for text in (*fact.questions, fact.title, fact.answer)]
    _write_lines(folder / "held-out.jsonl.gz", ({"text": text} for text in held_out))
    _write_collection(folder / "dev", kept)
    suite = folder / "dev.toml"
    scaffold_local(suite, folder / "dev")
    # A path from the file itself: the folder is renamed once it is whole.
    suite.write_text(
        suite.read_text(encoding="utf-8").replace(str((folder / "dev").resolve()), "dev"), encoding="utf-8"
    )


def _consult(seen: list[Fact]) -> Iterator[TrainingRow]:
    """Questions with their answers; the negative is another aspect of the same condition."""
    for place, fact in enumerate(seen):
        other = seen[place - 1]
        for question in fact.questions:
            yield TrainingRow(question, (fact.answer,), (other.answer,), prompt=_INSTRUCTION)


def _titles(seen: list[Fact]) -> Iterator[TrainingRow]:
    for place, fact in enumerate(seen):
        yield TrainingRow(fact.questions[place % 3], (fact.title,), (seen[place - 1].title,), prompt=_INSTRUCTION)


def _unlabelled(seen: list[Fact], sample: list[dict[str, Any]]) -> Iterator[TrainingRow]:
    yield from (TrainingRow(fact.title, (fact.answer,)) for fact in seen)
    yield from (TrainingRow(document["title"], (document["text"],)) for document in sample)


def _texts(seen: list[Fact], sample: list[dict[str, Any]], conditions: int | None) -> Iterator[dict[str, str]]:
    for fact in seen:
        for question in fact.questions:
            yield {"text": question, "kind": "query", "source": "tiny"}
        yield {"text": fact.title, "kind": "title", "source": "tiny"}
        yield {"text": fact.answer, "kind": "answer", "source": "tiny"}
        yield {"text": fact.answer.partition("，")[0], "kind": "span", "source": "tiny"}
    for condition in _CONDITIONS[:conditions]:
        yield {"text": condition, "kind": "name", "source": "tiny"}
    for document in sample:
        yield {"text": document["title"], "kind": "title", "source": "sample"}
        yield {"text": document["text"], "kind": "sentence", "source": "sample"}


def _sample(conditions: int | None) -> list[dict[str, Any]]:
    """Documents of the bundled sample, in proportion."""
    lines = (sample_path() / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines if line.strip()]
    return documents[: None if conditions is None else len(documents) * conditions // len(_CONDITIONS)]


def _write_collection(folder: Path, seen: list[Fact]) -> None:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = [{"_id": f"d{place}", "title": "", "text": fact.answer} for place, fact in enumerate(seen)]
    queries = [
        {"_id": f"q{place}-{turn}", "text": question}
        for place, fact in enumerate(seen)
        for turn, question in enumerate(fact.questions)
    ]
    _write_lines(folder / "corpus.jsonl", documents)
    _write_lines(folder / "queries.jsonl", queries)
    judged = [f"{query['_id']}\td{query['_id'][1:].partition('-')[0]}\t1" for query in queries]
    (folder / "qrels" / "dev.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n", encoding="utf-8"
    )


def _write_lines(file: Path, records: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Without a time in its head a packed file is the same in every run: its hash is part of a stage's identity.
    file.write_bytes(gzip.compress(text.encode(), mtime=0) if file.suffix == ".gz" else text.encode())

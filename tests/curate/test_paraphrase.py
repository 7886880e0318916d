"""Triplets from books by two models over real HTTP: checks, turns, sides, negatives, leaks, resumption, the dry run."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server import Fault, Server, burst

from books_on_the_spot import picture, scanned_pdf
from suwen.bench.suite_tasks import load_suite
from suwen.corpora.training_rows import read_training_rows
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.near_duplicates import shingles, similarity
from suwen.curate.paraphrase import Paraphrasing, paraphrase_shelf, read_names
from suwen.curate.paraphrase_checks import lost_negation, refusal
from suwen.curate.shelf_sentences import ShelfSentence, once_each, read_shelf
from suwen.curate.triplets import Leaks, Triplet, search_texts, split_sentences, with_negatives
from suwen.llm.asker import Asker, Unfinished
from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig
from suwen.llm.page_reading import picture_reader

PARTS = (
    "mitral valve",
    "aortic arch",
    "sinus node",
    "coronary ostium",
    "vena cava",
    "septal wall",
    "apex",
    "pericardium",
)
MODELS = ("careful", "careless")
PAIRS = Path(__file__).parents[1] / "data" / "paraphrases"
SIGNS = ("murmur", "thrill", "gallop", "click", "rub", "pulse deficit")


def sentence(number: int) -> str:
    part, sign = PARTS[number % 8], SIGNS[number // 8 % 6]
    word = random.Random(number).choices("abcdefghijklmnop", k=12)
    return f"The {part} of patient {number + 20} gave a {sign} that was called {''.join(word)} by the ward."


def turned(said: str) -> str:
    found = re.match(r"The (.+) of patient (\d+) gave a (.+) that was called (\w+) by the ward\.", said)
    if found is None:
        return "Nothing of the kind."
    part, number, sign, word = found.groups()
    return f"On the ward, {word} is the name of the {sign} heard at patient {number}'s {part}."


def play(body: dict[str, Any]) -> str:
    said = re.search("Sentence: (.+)", body["messages"][1]["content"])[1]
    number = int(re.search(r"patient (\d+)", said)[1])
    other = turned(said)
    if body["model"] == "careless" and number % 3 == 0:
        other = other.replace(str(number), str(number * 10))
    elif body["model"] == "careless" and number % 3 == 1:
        other = said
    return json.dumps({"paraphrase": other})


def never(path: Path, page: int, why: str) -> None:
    raise AssertionError(f"{path} {page} {why}")


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    folder = tmp_path / "shelf"
    folder.mkdir()
    for book, numbers in {"one": range(36), "two": range(36, 60)}.items():
        lines = [sentence(number) for number in numbers]
        (folder / f"{book}.md").write_text("# A heading\n\n" + "\n\n".join([*lines, lines[0]]), encoding="utf-8")
    (folder / "copy.txt").write_text(sentence(3) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def two(ask: Any) -> Any:
    def make(url: str, **more: Any) -> list[Asker]:
        return [ask(url, settings={"model": name}, **more) for name in MODELS]

    return make


def rows_of(path: Path) -> list[Any]:
    return list(read_training_rows(path))


def test_sentences_have_a_place_and_stand_once(shelf: Path) -> None:
    counts: Counter[str] = Counter()
    sentences = once_each(read_shelf(shelf, never), counts)
    assert counts == {"sentences": 60, "repeated_in_the_book": 2, "repeated_in_another_book": 1}
    assert sentences[0] == ShelfSentence("copy.txt", 0, 0, sentence(3))
    assert [one.position for one in sentences if one.book == "two.md"] == list(range(24))


def test_scans_may_be_read_by_a_model_and_the_reading_is_told(tmp_path: Path) -> None:
    scanned_pdf(tmp_path / "a.pdf", [picture(["Page"], size=(300, 200))])
    (tmp_path / "b.md").write_text(sentence(1), encoding="utf-8")
    settings = {
        "endpoints": {"e": {"base_url": "", "attempts": 1}},
        "models": {"eye": {"endpoint": "e", "model": "scripted", "vision": True}},
    }
    read: list[str] = []
    with Server(lambda _: "Digoxin is given once a day to adults.") as server:
        settings["endpoints"]["e"]["base_url"] = server.url
        with LLM.open(LLMConfig.model_validate(settings), tmp_path / "replies.db") as llm:
            found = read_shelf(
                tmp_path, never, pictures=picture_reader(llm, "eye"), on_read=lambda path, *at: read.append(path.name)
            )
            sentences = [one.text for one in found]
    assert sentences == ["Digoxin is given once a day to adults.", sentence(1)] and set(read) == {"a.pdf"}


def test_a_bad_file_is_told_and_the_others_are_read(shelf: Path) -> None:
    (shelf / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
    told: list[str] = []
    sentences = list(read_shelf(shelf, lambda path, page, why: told.append(f"{path.name} {page} {why}")))
    assert len(sentences) == 63 and len(told) == 1 and told[0].startswith("broken.pdf 0 ")


def test_two_models_take_turns_and_what_is_refused_goes_to_the_other(two: Any, tmp_path: Path, shelf: Path) -> None:
    out = tmp_path / "triplets"
    with Server(play, models=MODELS) as server:
        report = paraphrase_shelf(shelf, out, two(server.url), Paraphrasing(), never)
        asked = server.total
        again = paraphrase_shelf(shelf, tmp_path / "again", two(server.url), Paraphrasing(), never)
        assert server.total == asked and again == report
    counts = report["counts"]
    refused = counts["refused_numbers"] + counts["refused_copy"]
    assert refused > 13 and asked == 60 + refused, "half of them went to the careless one first, and then on"
    assert counts["train"] + counts["validation"] + counts["test"] == 60 and counts["unanswered"] == 0
    train, test = rows_of(out / "rows" / "paraphrase.jsonl.gz"), rows_of(out / "test.jsonl.gz")
    assert len(train) == counts["train"] and all(row.pos == (turned(row.query),) and len(row.neg) == 1 for row in train)
    held_out = HeldOut.read(out / "held-out.jsonl.gz")
    assert held_out.hits([row.query for row in test]) == [row.query for row in test]
    assert not held_out.hits([text for row in train for text in (row.query, *row.pos, *row.neg)])
    books = report["by_book"]
    assert books["one.md"]["test"] >= 1 and books["two.md"]["test"] >= 1 and books["two.md"]["validation"] >= 2
    assert load_suite(out / "suite.toml").tasks[0].metrics[0] == "accuracy@1"


def test_the_budget_stops_it_and_it_goes_on(two: Any, tmp_path: Path, shelf: Path) -> None:
    with Server(play, burst(Fault(500), 2), models=MODELS) as server:
        with pytest.raises(Unfinished, match="budget"):
            paraphrase_shelf(shelf, tmp_path / "out", two(server.url, calls=20), Paraphrasing(), never)
        assert not (tmp_path / "out").exists()
        report = paraphrase_shelf(shelf, tmp_path / "out", two(server.url, attempts=9), Paraphrasing(count=30), never)
    assert report["counts"]["sentences_asked_about"] == 30 and all(count == 1 for count in server.answered.values())


def test_a_dry_run_asks_and_writes_nothing(two: Any, tmp_path: Path, shelf: Path) -> None:
    with Server(play, models=MODELS) as server:
        askers = two(server.url, dry_run=True)
        report = paraphrase_shelf(shelf, tmp_path / "out", askers, Paraphrasing(each=True), never)
    assert not any("refused" in name for name in report["counts"]), "nobody replied"
    assert server.total == 0 and not (tmp_path / "out").exists()
    assert [sum(step.calls for step in asker.steps.values()) for asker in askers] == [60, 60]


def test_nothing_that_passes_writes_nothing(two: Any, tmp_path: Path, shelf: Path) -> None:
    server = Server(lambda _: json.dumps({"paraphrase": "All is well."}), models=MODELS)
    with server, pytest.raises(CurateError, match="120 refused length"):
        paraphrase_shelf(shelf, tmp_path / "out", two(server.url), Paraphrasing(), never)
    with pytest.raises(CurateError, match="at least one model"):
        paraphrase_shelf(shelf, tmp_path / "out", [], Paraphrasing(), never)


@pytest.mark.parametrize(
    ("said", "other", "why"),
    [
        ("Give 75 mg of aspirin daily.", "Aspirin is given each day at 75 g.", "units"),
        ("Give 2.5 mg of warfarin daily.", "Each day warfarin is given at 25 mg.", "numbers"),
        ("Give 25 mg of atenolol twice daily.", "Atenolol is given at 25 mg once a day.", "numbers"),
        ("The dose is doubled every 2 weeks.", "Every 2 weeks the dose is halved.", "numbers"),
        ("每次口服一片华法林，睡前服用。", "睡前服用华法林，每次口服半片。", "numbers"),
        ("A murmur is not always a sign of disease.", "A murmur always points to some disease.", "negation"),
        ("The left atrium is enlarged in this patient.", "This patient's right atrium has grown larger.", "laterality"),
        ("Metoprolol slows the heart at rest.", "Bisoprolol lowers the rate of a resting heart.", "drugs"),
        ("The heart slows at rest in trained athletes.", "Slow.", "length"),
        ("The heart slows at rest in athletes.", "The heart slows at rest in athletes!", "copy"),
        ("The heart slows at rest in athletes.", "运动员静息时心率会减慢，这是正常现象。", "language"),
        ("每日口服阿司匹林100毫克预防血栓。", "预防血栓可每天吃阿司匹林1000毫克。", "numbers"),
        ("左心室肥厚多见于高血压患者。", "高血压病人常有右心室增厚的表现。", "laterality"),
        ("该药孕妇禁用，哺乳期也应停药。", "这种药孕妇和哺乳期的妇女都适合服用。", "negation"),
        ("美托洛尔可以减慢静息时的心率。", "静息状态下的心率会因比索洛尔而降低。", "drugs"),
        ("Give two tablets of the drug at night.", "At night, 2 tablets of the drug are taken.", None),
        ("心律不齐在老年人当中非常常见。", "老年人中经常可以见到心律不齐。", None),
        ("每次服用两片，一日三次，饭后服用。", "饭后吃药，每天3次，每回2片即可。", None),
    ],
)
def test_what_a_paraphrase_must_keep(said: str, other: str, why: str | None) -> None:
    assert refusal(said, other) == why


@pytest.mark.parametrize(
    ("said", "other", "why"),
    [
        ("该药不适用于孕妇和哺乳期的妇女。", "这种药适用于怀孕和哺乳期的妇女。", "negation"),
        ("对青霉素不过敏者可以服用阿莫西林。", "对青霉素过敏的患者可服用阿莫西林。", "negation"),
        ("这种并发症在儿童中并非常见。", "在儿童中这种并发症常见。", "negation"),
        ("胎龄不足月的新生儿需要监护。", "胎龄足月的新生儿应当接受监护。", "negation"),
        ("不同时期的病变在镜下有非常规律的排列。", "镜下可见各个时期的病变排列得很有规律。", None),
        ("服药后如有不适应立即停药并就诊。", "用药之后感到难受的，要马上停药去看医生。", None),
        ("不稳定型心绞痛患者应当立即住院。", "稳定型心绞痛的病人应马上住院治疗。", "opposites"),
        ("脉搏不规则者应做心电图检查。", "对脉搏规则的人应当进行心电图检查。", "opposites"),
        (
            "Patients with unstable angina are admitted at once.",
            "Those with stable angina are admitted immediately.",
            "opposites",
        ),
        ("青霉素过敏者不可服用阿莫西林。", "对青霉素过敏的患者可以服用阿莫西林。", "negation"),
        ("阿莫西林成人一次0.5g，每日三次口服。", "成人口服阿莫西林，每天3次，每次0.5克。", None),
        ("缺血性卒中患者不应使用阿替普酶。", "缺血性卒中的患者应当使用阿替普酶。", "negation"),
        ("重症肌无力患者不能使用莫西沙星。", "重症肌无力的患者能够使用莫西沙星。", "negation"),
        ("Aspirin reduces the risk of stroke.", "Stroke becomes more likely with aspirin.", "opposites"),
        ("Give it intramuscularly for anaphylaxis.", "For anaphylaxis, it is given intravenously.", "opposites"),
        ("胰岛素应皮下注射。", "胰岛素应当静脉注射。", "opposites"),
        ("Insulin goes under the skin before meals.", "Before meals, insulin goes in subcutaneously.", None),
    ],
)
def test_names_that_hold_a_no_hide_none_and_a_way_of_giving_stays(said: str, other: str, why: str | None) -> None:
    assert refusal(said, other) == why


@pytest.mark.parametrize(
    ("said", "other", "lost"),
    [
        ("ischaemia without infarction does not need surgery", "ischaemia with infarction does not need surgery", True),
        ("ischaemia without infarction does not need surgery", "without infarction ischaemia does need surgery", True),
        ("a drug that is not cleared is given without food", "a drug that is not cleared is given with food", True),
        ("无梗死的缺血不需要手术", "有梗死的缺血不需要手术", True),
        (
            "some do not carry the gene and some do not show it; others carry the gene",
            "some carry the gene and some do not show it; others carry the gene",
            True,
        ),
        (
            "i do not see how that can help if you are not allergic",
            "i do not see how that can help if you are allergic",
            True,
        ),
        (
            "no this is not a fracture of the hip but a fracture heals",
            "no this isn't a fracture of the hip but a fracture heals",
            False,
        ),
        (
            "平时不宜从事具有危险性的各种工作也不宜参加剧烈运动",
            "平时不宜从事具有危险性的各种工作也宜参加剧烈运动",
            True,
        ),
        (
            "无发热、咳嗽、咳痰、胸痛、腹痛、腹泻及呼吸困难",
            "无发热，无咳嗽咳痰，无胸痛腹痛，也无腹泻，无呼吸困难",
            False,
        ),
        ("没有压痛也不发热的患者", "有压痛也不发热的患者", True),
        ("能不能手术要看有没有梗死", "手术与否要看是否有梗死", False),
        ("无发热无咳嗽", "没有发热和咳嗽", False),
        ("thrombus was not seen and it did not move", "no thrombus was seen, nor did it move", False),
        ("no specific treatment exists, and it does not resolve", "it never resolves, and has no treatment", False),
    ],
)
def test_every_negation_of_a_clause_must_stay(said: str, other: str, lost: bool) -> None:
    assert (lost_negation(said, other) or lost_negation(other, said)) is lost


@pytest.mark.parametrize("file", ["pairs", "later"])
def test_a_changed_dose_is_refused_and_other_words_for_it_pass(file: str) -> None:
    lines = (PAIRS / f"{file}.tsv").read_text(encoding="utf-8").splitlines()
    wrong = [
        (line, why)
        for line, (wanted, said, other) in ((line, line.split("\t")) for line in lines)
        if ((why := refusal(said, other)) is None) == (wanted == "refuse") or why in ("copy", "length", "language")
    ]
    assert len(lines) >= 40 and not wrong


def test_names_of_ones_own_must_stay(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("MitraClip, Amplatzer\n倍他乐克\n", encoding="utf-8")
    names = read_names(tmp_path / "names.txt")
    assert refusal("MitraClip was put in by the team.", "The team put in an occluder.", names) == "names"
    assert refusal("MitraClip was put in by the team.", "The team implanted a MitraClip.", names) is None


def test_near_duplicates_share_a_side_and_every_book_is_on_each() -> None:
    sentences = [
        ShelfSentence(book, 1, at, sentence(number * 100 + at)) for number, book in enumerate("ab") for at in range(100)
    ]
    twins = [
        one._replace(book="b", position=100 + at, text=one.text[:-1] + "!") for at, one in enumerate(sentences[:30])
    ]
    sides = split_sentences([*sentences, *twins], (0.8, 0.1, 0.1), seed=3)
    place = {comparable(one.text): side for side, own in sides.items() for one in own}
    assert sum(map(len, sides.values())) == 230
    every = [(side, one) for side, own in sides.items() for one in own]
    assert all(place[comparable(one.text)] == side for side, one in every)
    for book, size in (("a", 100), ("b", 130)):
        shares = [sum(one.book == book for one in sides[side]) / size for side in ("train", "validation", "test")]
        assert abs(shares[0] - 0.8) < 0.12 and min(shares[1:]) > 0.03
    with pytest.raises(CurateError, match="make 1"):
        split_sentences(sentences, (0.8, 0.1))


def test_negatives_are_far_or_as_long_and_of_the_same_side() -> None:
    triplets = [
        Triplet(ShelfSentence("a", 1, at, sentence(at) + " And more." * (at % 3)), turned(sentence(at)), "m")
        for at in range(300)
    ]
    places = {one.sentence.text: one.sentence for one in triplets}
    for one in with_negatives(triplets, "far", 1, seed=1):
        assert len(one.negatives) == 1 and abs(places[one.negatives[0]].position - one.sentence.position) >= 100
    as_long = list(with_negatives(triplets, "length", 3, seed=1))
    for one in as_long:
        assert len(set(one.negatives)) == 3
        assert all(abs(len(text) / len(one.sentence.text) - 1) <= 0.3 for text in one.negatives)
        assert max(similarity(shingles(text), shingles(one.sentence.text)) for text in one.negatives) < 0.7
    with pytest.raises(CurateError, match="need a search"):
        list(with_negatives(triplets, "mined"))


def test_mined_negatives_are_near_and_no_copies() -> None:
    triplets = [Triplet(ShelfSentence("a", 1, at, sentence(at)), turned(sentence(at)), "m") for at in range(300)]
    texts = [one.sentence.text for one in triplets]

    def encode(said: list[str]) -> Any:
        # By part and sign: sentences that share both are nearest, after the sentence itself.
        return np.array([[float(word in text) for word in (*PARTS, *SIGNS)] for text in said])

    mined = list(with_negatives(triplets, "mined", 2, search=search_texts(texts, encode, encode)))
    assert all(len(one.negatives) == 2 and one.sentence.text not in one.negatives for one in mined)
    near = [
        sum(word in one.sentence.text and word in text for word in PARTS + SIGNS)
        for one in mined
        for text in one.negatives
    ]
    assert np.mean(near) >= 0.9, "drawn at random they would share 0.3 words"


def test_a_leak_is_found() -> None:
    apart = [Triplet(ShelfSentence("a", 1, 0, sentence(1)), turned(sentence(1)), "m")]
    leaks = Leaks(apart)

    def train(text: str, positive: str, *negatives: str) -> Triplet:
        return Triplet(ShelfSentence("b", 1, 0, text), positive, "m", negatives)

    assert leaks.found(train(sentence(2), turned(sentence(2)))) is None
    assert leaks.found(train(sentence(2), turned(sentence(1)))) == "holds_a_test_text"
    assert leaks.found(train(sentence(2), turned(sentence(2)), sentence(1))) == "holds_a_test_text"
    assert leaks.found(train(sentence(1).replace("by the", "at the"), "Other words.")) == "nearly_a_test_text"

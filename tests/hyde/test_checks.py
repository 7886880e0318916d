"""What may be used of a reply: each fault in both languages, and good texts that look like one."""

from __future__ import annotations

import pytest

from suwen.hyde.checks import loops, stripped, usable

ASKED = {
    "zh": "请以医学资料的口吻写一段话，直接回答下面的问题。\n\n问题：高血压患者平时要注意什么",
    "en": "Write one paragraph, as a medical text would, that answers the question.\n\nQuestion: what lowers it",
}
GOOD = {
    "zh": "高血压患者应当限制钠盐摄入，每日不超过五克，坚持规律运动，并按医嘱服用氨氯地平等降压药。",
    "en": "Patients lower their blood pressure by eating less salt, walking daily and taking amlodipine as prescribed.",
}


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_good_text_is_kept_as_it_is(language: str) -> None:
    assert usable(GOOD[language], prompt=ASKED[language], language=language, cut=False) == (GOOD[language], None)


@pytest.mark.parametrize(
    ("text", "language", "fault"),
    [
        ("", "zh", "empty"),
        ("是的。", "zh", "empty"),
        ("Yes, it does.", "en", "empty"),
        (GOOD["en"], "zh", "language"),
        (GOOD["zh"], "en", "language"),
        ("1234 5678 9012 3456 7890 1234", "en", "language"),
        (ASKED["zh"], "zh", "echo"),
        (ASKED["en"], "en", "echo"),
        ("少吃盐，多运动，按时吃药。" * 9, "zh", "loop"),
        ("eat less salt and walk more " * 9, "en", "loop"),
    ],
)
def test_faults_are_told_apart(text: str, language: str, fault: str) -> None:
    assert usable(text, prompt=ASKED[language], language=language, cut=False)[1] == fault


def test_a_text_that_was_cut_loses_its_last_sentence() -> None:
    said = "每日食盐不超过五克，坚持规律运动。血压仍高者加用氨氯地平，从五毫克开"
    assert usable(said, prompt=ASKED["zh"], language="zh", cut=True) == ("每日食盐不超过五克，坚持规律运动。", None)
    assert usable("一句没有说完的话，一直说下去，没有句号", prompt=ASKED["zh"], language="zh", cut=True)[1] == "endless"


@pytest.mark.parametrize(
    "said",
    [
        f"<think>先想一想：这是高血压。</think>{GOOD['zh']}",
        f"好的，{GOOD['zh']}",
        f"回答：{GOOD['zh']}",
        f"```\n{GOOD['zh']}\n```",
    ],
)
def test_what_is_said_around_a_text_goes(said: str) -> None:
    assert stripped(said) == GOOD["zh"]


def test_a_list_of_alike_sentences_is_no_loop() -> None:
    drugs = ["氨氯地平", "硝苯地平", "缬沙坦", "厄贝沙坦", "美托洛尔", "比索洛尔", "氢氯噻嗪", "吲达帕胺"]
    assert not loops("".join(f"{drug}的常见不良反应要留意。" for drug in drugs))

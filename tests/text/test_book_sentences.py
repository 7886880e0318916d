"""Citations that are taken out of a book's sentences, and what looks like one and stays."""

from __future__ import annotations

import pytest

from suwen.text.book_sentences import SHORTEST_CHINESE, is_sentence, without_citations


@pytest.mark.parametrize(
    "cited",
    [
        "(Smith et al., 2019; Wu and Li, 2020; Braunwald 2018a)",
        "(van der Berg et al., 2019)",
        "(Smith, Jones, & Wu, 2019, p. 12)",
        "(de la Cruz, 2019: 12–14)",
        "(refs. 3–5)",
        "(3,4)",
        "(3–5, 7)",
        "[12-15, 18]",
    ],
)
def test_a_citation_is_taken_out(cited: str) -> None:
    assert without_citations(f"Mortality fell {cited}.") == "Mortality fell."


def test_a_raised_number_behind_capitals_is_taken_out() -> None:
    assert (
        without_citations("It is the first cause of AF.12,13 It is treated.")
        == "It is the first cause of AF. It is treated."
    )


@pytest.mark.parametrize(
    "cited", ["（王等，2019）", "（王和李，2019；张伟等，2020）", "(王等,2019)", "[1,2]", "（参考文献3–5）"]
)
def test_a_chinese_citation_is_taken_out(cited: str) -> None:
    assert without_citations(f"死亡率下降{cited}。") == "死亡率下降。"


@pytest.mark.parametrize(
    "text",
    [
        "It was common in adults (30-40).",
        "The ratio was 5 (3, 4).",
        "It fell (see Chapter 5).",
        "It fell in one year (2019).",
        "The dose (3, 4) was low.",
        "诊断见国际指南（2019版）。",
        "他在三年后死亡（术后感染，2次手术）。",
    ],
)
def test_what_is_no_citation_stays(text: str) -> None:
    assert without_citations(text) == text


def test_chinese_sentences_may_be_short() -> None:
    assert SHORTEST_CHINESE == 8
    assert is_sentence("粪便培养可确诊。") and not is_sentence("脑外伤。")

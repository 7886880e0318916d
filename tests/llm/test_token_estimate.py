"""Estimating lengths and cutting to fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from suwen.llm.token_estimate import estimate_messages, estimate_tokens, fit


@given(st.text(), st.text())
def test_two_texts_take_no_more_together_than_apart(one: str, two: str) -> None:
    assert max(estimate_tokens(one), estimate_tokens(two)) <= estimate_tokens(one + two)
    assert estimate_tokens(one + two) <= estimate_tokens(one) + estimate_tokens(two)


@given(st.text(alphabet=st.sampled_from("发热。 fever.\n3℃𠀀"), max_size=200), st.integers(0, 120))
def test_what_fits_is_whole_and_what_does_not_is_cut_and_marked(text: str, tokens: int) -> None:
    cut = fit(text, tokens)
    assert estimate_tokens(cut) <= tokens
    if estimate_tokens(text) <= tokens:
        assert cut == text
    elif cut:
        assert cut.endswith("……") and text.startswith(cut.removesuffix("……"))


def test_a_cut_falls_behind_a_sentence_when_one_ends_near() -> None:
    assert fit("发热三天。头痛两天。咳嗽。", 8) == "发热三天。……"
    assert fit("发热三天头痛两天咳嗽。", 8) == "发热三天头痛……"


def test_english_is_cheaper_by_the_character() -> None:
    assert estimate_tokens("a" * 100) < estimate_tokens("热" * 100) == 100
    assert estimate_messages(["热" * 100, ""]) > 100

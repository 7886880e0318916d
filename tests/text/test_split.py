"""Sentences and passages: nothing lost, nothing twice, no passage too long, and always an end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.text import split
from suwen.text.split import SplitError, passages, sentences

TEXT = st.text(
    st.sampled_from("头痛发热。！？；…，、”）.!?,:;\"') \n\t\u3000AbcDr57%")
    | st.characters(exclude_categories=("Cs",)),
    max_size=300,
)


def characters(texts):
    return [len("".join(text.split())) for text in texts]


def cut(text):
    return [text[start:end] for start, end in sentences(text)]


def visible(text):
    return "".join(text.split())


@pytest.mark.parametrize(
    "pieces",
    [
        ["空腹血糖升高。", "建议复查！", "是糖尿病吗？", "不一定；", "需要化验……", "请就医"],
        ["他说：“我头痛。”", "医生问：“多久了？”", "（三天。）", "好。"],
        ["Take it daily.", "Do not stop!", "Why?", "Ask."],
        ["Dr. Wu saw Mrs. Li vs. the others, e.g. at noon, i.e. late.", "She left."],
        ["See Fig. 2 and No. 5 of Smith et al. 2010.", "It holds."],
        ["Shown by Smith et al.", "The trial failed.", "So did Wu et al. Heart Failure 2010."],
        ["The EF was 35%.", "Pt. Smith has pain.", "Dr. Wu, Ph.D. Smith and See Sec. 4 agree."],
        ["血压140/90mmHg.", "心率80次/分.", "Stop."],
        ["检查项目A.血常规B.尿常规。", "1.高血压。"],
        ["Seen from Jan. 1 to Dec. 30, 2009.", "Ended in Dec.", "All did."],
        ["HbA1c fell by 7.5% (p = 0.03).", "Next."],
        ["J. K. Rowling met A. Smith.", "They spoke."],
        ["It is caused by E. coli and S. aureus.", "Treat it."],
        ["He lacks vitamin D.", "Give some."],
        ["Give 5 mg. daily and 2.5 ml. at night.", "Then stop."],
        ["Give 5 mg.", "Then stop."],
        ["1. Take rest.", "2. Drink water."],
        ["The U.S. Army paid.", "No.", "Yes."],
        ["头痛.", "发热.", "Stop."],
        ['"Rest." he said.', "She did."],
        ["visit example.com/a?b=1.2 now.", "Thanks."],
        ["Really?!", "Yes..."],
    ],
)
def test_sentences(pieces):
    joint = "" if any("\u4e00" <= piece[0] <= "\u9fff" and "." not in piece for piece in pieces) else " "
    assert cut(joint.join(pieces)) == pieces


def test_a_half_width_stop_between_chinese_characters_ends_a_sentence():
    assert cut("头痛.发热!咳嗽") == ["头痛.", "发热!", "咳嗽"]


def test_new_lines_end_sentences_and_white_space_is_left_out():
    text = "  主诉：头痛\r\n\r\n  现病史\u2028三天 前 \n"
    assert cut(text) == ["主诉：头痛", "现病史", "三天 前"]
    assert cut(" \n\t") == []


@given(TEXT)
def test_sentences_cover_the_text_in_order(text):
    spans = sentences(text)
    assert visible("".join(text[start:end] for start, end in spans)) == visible(text)
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    assert edges == sorted(edges)
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)


@given(TEXT, st.integers(1, 30), st.data())
def test_passages_cover_the_text_within_their_bounds(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    spans = passages(text, size, overlap, count=characters)
    covered, end = [], 0
    for span in spans:
        assert text[span.start : span.end] == text[span.start : span.end].strip()
        assert characters([text[span.start : span.end]])[0] <= size
        assert characters([text[span.start : end]])[0] <= overlap
        covered.append(text[max(span.start, end) : span.end])
        assert span.end > end
        end = span.end
    assert visible("".join(covered)) == visible(text)
    assert [span.start for span in spans] == sorted({span.start for span in spans})


def test_passages_are_packed_with_whole_sentences_and_overlap():
    text = "一二三四。五六七八。九十甲乙。丙丁戊己。"
    spans = passages(text, 10, 5, count=characters)
    assert [text[a:b] for a, b in spans] == ["一二三四。五六七八。", "五六七八。九十甲乙。", "九十甲乙。丙丁戊己。"]
    assert passages(text, 10, 4, count=characters) == [(0, 10), (10, 20)]
    assert passages(text, 200, 40, count=characters) == [(0, 20)]


def test_a_long_sentence_is_cut_at_its_clauses():
    text = "患者头痛三天，伴发热、咳嗽，无明显诱因。"
    spans = passages(text, 12, 0, count=characters)
    assert [text[a:b] for a, b in spans] == ["患者头痛三天，伴发热、", "咳嗽，无明显诱因。"]


def test_a_hard_cut_prefers_a_space():
    text = "alpha bravo charlie delta echo foxtrot golf hotel"
    for start, end in passages(text, 12, 0, count=lambda texts: [len(text) for text in texts]):
        assert set(text[start:end].split()) <= set(text.split())


def test_a_number_with_a_thousands_comma_is_no_clause():
    text = "剂量1,000,000单位" * 3
    assert all("," not in (text[a], text[b - 1]) for a, b in passages(text, 17, 0, count=characters))


def test_a_character_heavier_than_a_passage_stands_alone():
    assert passages("甲乙", 2, 0, count=lambda texts: [3 * len(text) for text in texts]) == [(0, 1), (1, 2)]


def test_unknown_words_that_count_as_one_token_do_not_make_a_giant_passage():
    spans = passages("A" * 100_000, 200, 40, count=lambda texts: [1] * len(texts))
    assert max(end - start for start, end in spans) <= 200 * 16


def test_ten_megabytes_without_punctuation_are_counted_a_few_times_over_only():
    text, counted, calls = "痛" * (10_000_000 // 3), [], []

    def count(texts):
        calls.append(len(texts))
        counted.append(sum(map(len, texts)))
        return [len(text) for text in texts]

    spans = passages(text, 200, 40, count=count)
    assert sum(end - start for start, end in spans) == len(text)
    assert sum(counted) <= 3 * len(text)
    assert max(calls) <= 1024 and max(counted) <= 1_100_000


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (10, 10), (10, -1)])
def test_impossible_sizes_are_refused(size, overlap):
    with pytest.raises(SplitError, match="overlap at least 0 and smaller than size"):
        passages("头痛。", size, overlap, count=characters)


@given(TEXT | st.text(st.sampled_from("a，,;。.)\n "), max_size=30), st.integers(1, 7))
def test_patterns_are_found_in_windows_as_in_one_go(text, window):
    whole, split._WINDOW = split._WINDOW, window
    try:
        for pattern in (split._STOP, split._CLAUSE):
            found = [(match.span(), match.groups()) for match in split._found(pattern, text, 0, len(text))]
            assert found == [(match.span(), match.groups()) for match in pattern.finditer(text)]
    finally:
        split._WINDOW = whole

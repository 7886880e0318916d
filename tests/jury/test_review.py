"""Samples for experts, their labels, and how far they agree."""

from __future__ import annotations

import csv
import math

import pytest
from court import make_pool, vote
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from suwen.jury.agreement import cohen_kappa
from suwen.jury.review import Reviews, apply_reviews, import_csv, import_store, review_report, settled, wilson
from suwen.jury.sampling import (
    Sampled,
    Stratum,
    allocate,
    difficulty,
    disagreement,
    draw_sample,
    pair_name,
    read_sample,
    write_csv,
    write_sample,
)
from suwen.jury.texts import Texts
from suwen.jury.verdicts import JuryProblem, Verdict

GRADES = {"positive": "SAA", "negative": "DDC", "undecided": "SDB"}


def verdict(query, passage, label):
    votes = tuple(vote(query, passage, f"j{n}", grade) for n, grade in enumerate(GRADES[label]))
    return Verdict(query, passage, label, votes, ({"by": "jury", "label": label},))


@pytest.fixture
def work(tmp_path):
    pairs = {f"q{q}": [f"q{q}p{p}" for p in range(20)] for q in range(10)}
    texts = {id_: f"query {id_[:2]} text" if int(id_[3:]) % 3 else "=1+1 别的" for ids in pairs.values() for id_ in ids}
    return make_pool(tmp_path / "work", pairs, texts)


def verdicts():
    for q in range(10):
        for p in range(20):
            yield verdict(f"q{q}", f"q{q}p{p}", "positive" if p < 4 else "undecided" if p == 4 else "negative")


@pytest.fixture
def sample(work):
    with Texts(work.texts) as texts:
        return draw_sample(verdicts(), work.pool, texts, 40, least=3)


def test_every_stratum_is_in_the_sample_and_the_draw_is_fixed(work, sample):
    strata = {}
    for one in sample:
        strata.setdefault(one.stratum, []).append(one)
    populations = {stratum: found[0].population for stratum, found in strata.items()}
    assert sum(populations.values()) == 200 and {stratum.label for stratum in strata} == set(GRADES)
    assert all(len(found) >= 3 for found in strata.values())
    assert {stratum.disagreement for stratum in strata if stratum.label == "undecided"} == {"far apart"}
    assert {stratum.difficulty for stratum in strata} == {"words shared", "few shared"}
    with Texts(work.texts) as texts:
        assert draw_sample(verdicts(), work.pool, texts, 40, least=3) == sample
        assert draw_sample(verdicts(), work.pool, texts, 40, least=3, seed=1) != sample


@given(
    st.dictionaries(
        st.builds(Stratum, st.sampled_from(list(GRADES)), st.sampled_from("abc"), st.sampled_from("xyz")),
        st.integers(1, 300),
        min_size=1,
    ),
    st.integers(1, 400),
    st.integers(0, 10),
)
def test_allocation_is_proportional_and_gives_each_stratum_its_least(population, size, least):
    counts = allocate(population, size, least)
    total = sum(population.values())
    for stratum, count in population.items():
        assert min(least, count) <= counts[stratum] <= count
        share = size * count / total
        assert counts[stratum] <= max(share + 1, least) and counts[stratum] >= min(int(share), count)
    assert sum(counts.values()) >= min(size, total)


def test_disagreement_and_difficulty():
    assert disagreement(verdict("q", "p", "positive")) == "one apart"
    assert (
        disagreement(Verdict("q", "p", "positive", (vote("q", "p", "a", "S"), vote("q", "p", "b", "S"))))
        == "same grade"
    )
    assert (
        disagreement(Verdict("q", "p", "undecided", (vote("q", "p", "a", "S"), vote("q", "p", "b", None))))
        == "abstained"
    )
    assert difficulty("高血压吃什么药", "高血压吃什么药好") == "words shared"
    assert difficulty("高血压吃什么药", "糖尿病的饮食") == "few shared" == difficulty("！", "x")


def test_the_csv_is_blind_and_runs_no_formula(sample, tmp_path):
    write_csv(tmp_path / "sheet.csv", sample)
    text = (tmp_path / "sheet.csv").read_text(encoding="utf-8-sig")
    assert not any(word in text for word in ("positive", "negative", "undecided", "apart", "shared"))
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == len(sample) and all(row["label"] == "" for row in rows)
    assert not any(row["passage"].startswith("=") for row in rows) and any("=1+1" in row["passage"] for row in rows)
    assert [row["pair"] for row in rows] == sorted(row["pair"] for row in rows)


def test_the_key_comes_back_as_it_was(sample, tmp_path):
    write_sample(tmp_path / "sample.jsonl", sample)
    assert read_sample(tmp_path / "sample.jsonl") == sample
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(JuryProblem, match=r"bad\.jsonl:1"):
        read_sample(tmp_path / "bad.jsonl")
    with pytest.raises(JuryProblem, match="review sample"):
        read_sample(tmp_path / "absent.jsonl")


def filled(path, rows, header="pair,label,note"):
    path.write_text("\n".join([header, *rows]), encoding="utf-8-sig")
    return path


def test_labels_come_from_a_csv_and_again_when_there_are_more(sample, tmp_path):
    a, b, c = (one.pair for one in sample[:3])
    with Reviews(tmp_path / "reviews.db") as reviews:
        sheet = filled(tmp_path / "s.csv", [f"{a},positive,sure", f"{b},0,", f"{c},,"])
        assert import_csv(sheet, reviews, sample, "li") == 2 and import_csv(sheet, reviews, sample, "li") == 0
        sheet = filled(tmp_path / "s.csv", [f"{a},negative,", f"{b},不相关,", f"{c},?,"])
        assert import_csv(sheet, reviews, sample, "li") == 2
        named = filled(tmp_path / "n.csv", [f"{a},positive,wang"], "pair,label,reviewer")
        assert import_csv(named, reviews, sample) == 1
        assert {r.label for r in reviews.by("li").values()} == {"negative", "unsure"}
        assert [r.label for r in reviews if (r.pair, r.reviewer) == (a, "li")] == ["positive", "negative"]
        assert reviews.latest()[a]["wang"].label == "positive"


@pytest.mark.parametrize(
    ("rows", "header", "words"),
    [
        (["{pair},maybe,"], "pair,label,note", r"s\.csv:3: 'maybe' is no label"),
        (["nowhere,positive,"], "pair,label,note", "another one"),
        (["{pair},positive"], "pair,label", "--reviewer"),
        (["{pair}"], "pair", "'label' is missing"),
    ],
)
def test_a_csv_with_an_error_is_told_by_line_and_nothing_of_it_is_taken(sample, tmp_path, rows, header, words):
    first = [f"{sample[0].pair},positive,"] if "note" in header else []
    sheet = filled(tmp_path / "s.csv", [*first, *(row.format(pair=sample[1].pair) for row in rows)], header)
    with Reviews(tmp_path / "reviews.db") as reviews:
        with pytest.raises(JuryProblem, match=words):
            import_csv(sheet, reviews, sample, "li" if "note" in header else None)
        assert list(reviews) == []


@given(st.integers(1, 400).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_wilsons_interval_is_that_of_statsmodels(counts):
    found = wilson(*counts)
    low, high = proportion_confint(*counts, method="wilson")
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_nothing_has_no_rate():
    assert all(map(math.isnan, wilson(0, 0)))


def test_several_experts_settle_by_majority():
    assert settled(["positive", "positive", "negative"]) == "positive"
    assert settled(["positive", "negative", "unsure"]) is None and settled(["unsure"]) is None and settled([]) is None
    assert settled(["unsure", "negative"]) == "negative"


def test_the_agreement_of_experts_with_the_jury(sample, tmp_path):
    with Reviews(tmp_path / "reviews.db") as reviews:
        wrong = 0
        for number, one in enumerate(sample):
            truth = "positive" if one.stratum.label == "undecided" else one.stratum.label
            said = truth
            if number % 8 == 0 and one.stratum.label == "positive":
                said, wrong = "negative", wrong + 1
            reviews.add(one.pair, "li", said)
            reviews.add(one.pair, "wang", "unsure" if number % 2 else said)
        found = review_report(sample, reviews)
    decided = [one for one in sample if one.stratum.label != "undecided"]
    assert found.sampled == found.labelled == len(sample) and found.unsure == 0
    assert (found.overall.agreed, found.overall.of) == (len(decided) - wrong, len(decided)) and wrong
    assert found.overall.share.low < found.overall.share.value < found.overall.share.high
    assert found.undecided == {"positive": len(sample) - len(decided)}
    assert found.reviewers["li"].of == len(decided) > found.reviewers["wang"].of
    assert found.between["li", "wang"][0] == 1.0
    assert sum(rate.of for rate in found.strata.values()) == len(decided)
    sizes = {str(one.stratum): one.population for one in decided}
    weighted = sum(sizes[name] * rate.share.value for name, rate in found.strata.items()) / sum(sizes.values())
    assert found.weighted.value == pytest.approx(weighted)


def test_the_final_label_keeps_its_whole_history(tmp_path):
    with Reviews(tmp_path / "reviews.db") as reviews:
        pair = pair_name("q", "p")
        reviews.add(pair, "li", "positive", "at first")
        reviews.add(pair, "li", "negative", "looked again")
        reviews.add(pair_name("q", "tied"), "li", "unsure")
        changed, tied, untouched = apply_reviews(
            [verdict("q", "p", "undecided"), verdict("q", "tied", "positive"), verdict("q", "x", "positive")], reviews
        )
    assert changed.label == "negative" and tied.label == "positive" and untouched == verdict("q", "x", "positive")
    assert [(event["by"], event["label"]) for event in changed.history] == [
        ("jury", "undecided"),
        ("expert:li", "positive"),
        ("expert:li", "negative"),
        ("experts", "negative"),
    ]
    assert changed.votes == verdict("q", "p", "undecided").votes and changed.history[-1]["before"] == "undecided"


def test_a_sample_of_nothing_is_told(work):
    with Texts(work.texts) as texts:
        with pytest.raises(JuryProblem, match="no verdicts"):
            draw_sample([], work.pool, texts, 10)
        with pytest.raises(JuryProblem, match="at least 1"):
            draw_sample(verdicts(), work.pool, texts, 0)
        with pytest.raises(JuryProblem, match="not in"):
            draw_sample([verdict("elsewhere", "p", "positive")], work.pool, texts, 10)


def test_labels_that_are_none_are_refused(tmp_path):
    with Reviews(tmp_path / "reviews.db") as reviews:
        for reviewer, label in (("li", "good"), (" ", "positive")):
            with pytest.raises(JuryProblem):
                reviews.add("p", reviewer, label)


def test_the_store_of_another_page_is_taken_once_with_its_history(sample, tmp_path):
    with Reviews(tmp_path / "other.db") as other:
        other.add(sample[0].pair, "li", "positive", "one")
        other.add(sample[0].pair, "li", "negative", "two")
        given = list(other)
    with Reviews(tmp_path / "here.db") as here:
        here.add(sample[0].pair, "wang", "unsure")
        assert import_store(tmp_path / "other.db", here, sample) == 2
        assert import_store(tmp_path / "other.db", here, sample) == 0
        assert list(here)[1:] == given
        with pytest.raises(JuryProblem, match="not in the sample"):
            import_store(tmp_path / "other.db", here, sample[1:])
        with pytest.raises(JuryProblem, match=r"no .*absent\.db"):
            import_store(tmp_path / "absent.db", here, sample)


def test_the_share_of_positives_is_corrected_by_the_experts(tmp_path):
    """900 negatives of which a tenth are wrong, 100 positives of which a fifth are: the jury's 10% is 17%."""
    strata = {"positive": (100, 50, 40), "negative": (900, 100, 10)}
    sample = [
        Sampled(f"{label}{n}", "q", f"{label}{n}", "", "", Stratum(label, "same grade", "x"), size)
        for label, (size, drawn, _) in strata.items()
        for n in range(drawn)
    ]
    with Reviews(tmp_path / "reviews.db") as reviews:
        for label, (_, drawn, positive) in strata.items():
            for n in range(drawn):
                reviews.add(f"{label}{n}", "li", "positive" if n < positive else "negative")
        found = review_report(sample, reviews)
    assert found.jury_positives == pytest.approx(0.1)
    assert found.positives.value == pytest.approx(0.1 * 0.8 + 0.9 * 0.1)
    assert 0.1 < found.positives.low < 0.17 < found.positives.high < 0.3
    # Weighted to all verdicts the agreement is 0.1 x 0.8 + 0.9 x 0.9, and kappa is that of such a population.
    assert found.weighted.value == pytest.approx(0.89)
    jury = [1] * 100 + [0] * 900
    experts = [1] * 80 + [0] * 20 + [1] * 90 + [0] * 810
    assert found.weighted_kappa == pytest.approx(cohen_kappa(jury, experts))
    assert found.overall.kappa != pytest.approx(found.weighted_kappa)

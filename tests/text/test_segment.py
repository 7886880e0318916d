"""Words and bigrams for the lexical index."""

import subprocess
import sys
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

import suwen.text.segment
from suwen.text.fold import fold
from suwen.text.segment import bigrams, words

PUNCTUATION_AND_SPACE = {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Zs", "Zl", "Zp", "Cc"}


def test_drug_names_of_the_medical_dictionary_stay_whole():
    found = words("服用二甲双胍和瑞舒伐他汀，沙库巴曲缬沙坦是什么？")
    assert {"二甲双胍", "瑞舒伐他汀", "沙库巴曲缬沙坦"} <= set(found)
    assert "，" not in found and "？" not in found


def test_long_words_also_give_the_words_in_them():
    assert {"糖化血红蛋白", "血红", "蛋白"} <= set(words("糖化血红蛋白"))


def test_width_case_and_script_do_not_matter():
    assert words("ＨｂＡ１ｃ 與 糖尿病檢查") == words("hba1c与糖尿病检查")
    assert bigrams("糖尿病檢查") == bigrams("糖尿病检查")


@pytest.mark.parametrize("cut", [words, bigrams])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("HbA1c 7.5% COVID-19 B12", ["hba1c", "7.5", "covid-19", "b12"]),
        ("IL-6, SARS-CoV-2; 2.5mg/kg", ["il-6", "sars", "cov-2", "2.5mg", "kg"]),
        ("beta-blockers and statins", ["beta", "blocker", "and", "statin"]),
        ("Crohn's disease, Parkinson’s therapies", ["crohn", "disease", "parkinson", "therapy"]),
        ("virus sepsis abscess gas das", ["virus", "sepsis", "abscess", "gas", "das"]),
        ("β受体 ", None),
        ("snake_case ... ——！", ["snake", "case"]),
        ("", []),
    ],
)
def test_latin_words_and_numbers(cut, text, found):
    if found is None:
        assert "β" in cut(text)
    else:
        assert cut(text) == found


def test_a_mixed_word_answers_to_its_latin_part():
    assert {"维生素b12", "b12"} <= set(words("维生素B12缺乏"))
    assert words("B超") == ["b超"]


def test_bigrams_overlap_inside_runs_only():
    assert bigrams("高血压，痛 Ca2+升高") == ["高血", "血压", "痛", "ca2", "升高"]


@given(st.text(st.sampled_from("头痛糖尿病檢 ,。A1-.'s%𠮷の") | st.characters(exclude_categories=("Cs",)), max_size=80))
def test_tokens_come_from_the_text_and_no_han_character_is_lost(text):
    folded = fold(text)
    for cut in (words, bigrams):
        found = cut(text)
        assert all(set(map(category, token)) - PUNCTUATION_AND_SPACE for token in found)
        han = {character for character in folded if "\u4e00" <= character <= "\u9fff"}
        assert han <= set("".join(found))


def test_the_dictionary_has_no_repeats():
    listed = Path(suwen.text.segment.__file__).with_name("medical.txt").read_text(encoding="utf-8").split()
    assert len(listed) == len(set(listed)) > 400


def test_importing_does_not_load_the_segmenter():
    code = "import sys, suwen.text.segment; raise SystemExit('rjieba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_dictionary_is_loaded_once_by_threads_that_come_at_once() -> None:
    code = """
import sys, threading
from suwen.text.segment import words
sys.setswitchinterval(1e-5)
go, found, failed = threading.Barrier(4), [], []
def cut():
    go.wait()
    try:
        found.append(words("阿司匹林肠溶片"))
    except BaseException as problem:
        failed.append(problem)
threads = [threading.Thread(target=cut) for _ in range(4)]
[one.start() for one in threads]; [one.join() for one in threads]
assert not failed and len(found) == 4 and all(one == found[0] for one in found), failed
"""
    subprocess.run([sys.executable, "-c", code], check=True)

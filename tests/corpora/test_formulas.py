"""Formulas as a line of text: nothing that is divided or raised runs together, and none is lost."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from suwen.corpora.formulas import in_a_line
from suwen.corpora.marked_up import html_blocks, read_parts

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import word

HALF = "<mfrac><mn>1</mn><mn>2</mn></mfrac>"
CELLS = "<mrow><mn>5</mn><mo>×</mo><msup><mn>10</mn><mn>9</mn></msup></mrow>"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (HALF, "1/2"),
        (CELLS, "5 × 10^9"),
        ("<mn>5</mn><mo>.</mo><mn>2</mn><mtext> mg</mtext>", "5.2 mg"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mi>c</mi></mfrac>", "(a + b)/c"),
        ("<msub><mi>CO</mi><mn>2</mn></msub><mo>≤</mo><msqrt><mi>x</mi></msqrt>", "CO_2 ≤ √x"),
        ("<semantics><mn>7</mn><annotation encoding='TeX'>7</annotation></semantics>", "7"),
        ("<mtable><mtr><mtd>1</mtd><mtd>2</mtd></mtr><mtr><mtd>3</mtd><mtd>4</mtd></mtr></mtable>", "1, 2; 3, 4"),
        ("<mfrac><mn>3</mn></mfrac>", "3"),
    ],
)
def test_a_formula_is_a_line(written, said):
    assert in_a_line(fromstring(f"<math>{written}</math>")) == said


def run(text):
    return f"<r><rPr><sty val='p'/></rPr><t>{text}</t></r>"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (f"<f><fPr/><num>{run(1)}</num><den>{run(2)}</den></f>{run(' tablet')}", "1/2 tablet"),
        (f"{run('90×')}<sSup><e>{run(10)}</e><sup>{run(9)}</sup></sSup>{run('/L')}", "90×10^9/L"),
        (f"<sSub><e>{run('CO')}</e><sub>{run(2)}</sub></sSub>{run('=')}{run(5)}", "CO_2 = 5"),
        (f"<rad><radPr><degHide val='1'/></radPr><deg/><e>{run('x')}</e></rad>", "√x"),
        (f"<rad><deg>{run(3)}</deg><e>{run('x')}</e></rad>", "x^(1/3)"),
        (f"<d><e>{run('140 - a')}</e></d>{run('×')}{run('m')}", "(140 - a) × m"),
        (f"<d><dPr><begChr val='|'/><endChr val='|'/></dPr><e>{run('x')}</e></d>", "|x|"),
        (
            f"<nary><naryPr><chr val='∑'/></naryPr><sub>{run('i')}</sub><sup>{run('n')}</sup><e>{run('x')}</e></nary>",
            "∑_i^n x",
        ),
        (f"<f><num>{run(1)}</num></f>", "1"),
        ("<nary/>", "∫"),
    ],
)
def test_a_formula_of_word_is_a_line(written, said):
    assert in_a_line(fromstring(f"<oMath>{written}</oMath>")) == said


def test_a_formula_of_a_word_file_stands_in_its_sentence(tmp_path):
    half = f"<f><num>{run(1)}</num><den>{run(2)}</den></f>"
    body = f"<w:p><w:r><w:t>Take </w:t></w:r><oMath>{half}</oMath><w:r><w:t> tablet.</w:t></w:r></w:p>"
    table = f"<w:tbl><w:tr><w:tc><w:p><oMathPara><oMath>{half}</oMath></oMathPara></w:p></w:tc></w:tr></w:tbl>"
    (part,) = read_parts(word(tmp_path / "a.docx", body + table), "docx")
    assert part.blocks == [("text", "Take 1/2 tablet."), ("text", "1/2")]


def test_a_formula_stands_in_its_sentence():
    page = f"<p>Give <math><mrow>{HALF}</mrow></math> mg. Cells: <math>{CELLS}</math>/l.</p><p>Rest.</p>"
    assert html_blocks(page)[1] == [("text", "Give 1/2 mg. Cells: 5 × 10^9/l.\n\nRest.")]


def test_a_formula_in_cnxml_too(tmp_path):
    (tmp_path / "a.cnxml").write_text(
        '<document xmlns:m="urn:m"><title>Heart</title><content><para>It pumps '
        f"<m:math>{CELLS.replace('<', '<m:').replace('<m:/', '</m:')}</m:math> cells.</para></content></document>",
        "utf-8",
    )
    (part,) = read_parts(tmp_path / "a.cnxml", "cnxml")
    assert part.blocks == [("text", "It pumps 5 × 10^9 cells.")]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<p>Half: <math><mn>1<p>Rest.</p>", "Half: 1\n\nRest."),
        ("Half: <math><mn>1</mn> mg", "Half: 1 mg"),
        ("A </math> B </mn> C", "A B C"),
        (f"x{'<math><mrow>' * 3000}1{'</mrow>' * 3000}</math> y", "x y"),
    ],
)
def test_a_broken_formula_takes_nothing_with_it(page, said):
    assert html_blocks(page)[1] == [("text", said)]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("血小板 90×10<sup>9</sup>/L，<b>10</b><sup> -3 </sup>以下", "血小板 90×10^9/L，10^-3 以下"),
        (
            "mortality.<sup>12</sup> 110<sup>9</sup> 0.10<sup>2</sup> m<sup>2</sup> 10<sup>th</sup>",
            "mortality.12 110^9 0.10^2 m2 10th",
        ),
        ("in 10<sup><a>3</a></sup> trials, 10</sup>5", "in 10 [3] trials, 105"),
    ],
)
def test_a_power_of_ten_is_no_other_number(page, said):
    assert html_blocks(page)[1] == [("text", said)]


def test_a_power_of_ten_in_cnxml_too(tmp_path):
    (tmp_path / "a.cnxml").write_text(
        "<document><content><para>Some 10<sup>9</sup> cells a kg<sup>2</sup> in 10<sup><link>3</link></sup> of "
        "30<sup>1</sup>.</para></content></document>",
        "utf-8",
    )
    (part,) = read_parts(tmp_path / "a.cnxml", "cnxml")
    assert part.blocks == [("text", "Some 10^9 cells a kg2 in 10 [3] of 30^1.")]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("10<sup><i>9</i></sup>/L", "10^9/L"),
        ("10<sup><span>-3</span></sup> mol", "10^-3 mol"),
        ("1<sup>1</sup>⁄<sub>2</sub> tablets", "1 1⁄2 tablets"),
        ("2<sup>1</sup>/<sub>2</sub> tablets", "2 1/2 tablets"),
        ("10<sup>1</sup>/<sub>2</sub> tablets", "10 1/2 tablets"),
        ("<sup>1</sup>/<sub>2</sub> tablet", "1/2 tablet"),
        ("10<sup>9</sup>/L and 10<sup>9</sup>/<b>L</b>", "10^9/L and 10^9/L"),
        ("30<sup>1</sup> mg, 5<sup>2,3</sup> mg, 1996<sup>–2</sup>", "30^1 mg, 5^2,3 mg, 1996^–2"),
        ("<sup>1</sup>30 mg and <sup>131</sup>I, 10<sup>1<i>2</i></sup>/L", "1 30 mg and 131I, 10^12/L"),
        ('30<a href="#n1"><sup>1</sup></a> mg in 10<sup><a href="#n2">2</a></sup>', "30 [1] mg in 10 [2]"),
        ('<a href="#x">Cells 10<sup>9</sup>/L</a>', "Cells 10^9/L"),
        ("SO<sub>4</sub><sup>2-</sup>, CO<sub>2</sub>, Ca<sup>2+</sup>", "SO4^2-, CO2, Ca2+"),
        ('10<span style="vertical-align: super; font-size: 60%">9</span>/L', "10^9/L"),
    ],
)
def test_what_is_set_higher_runs_into_no_number(written, said):
    assert html_blocks(f"<p>{written}</p>")[1] == [("text", said)]

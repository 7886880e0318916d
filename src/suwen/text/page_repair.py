"""Repairs of text that was printed: hyphens at line ends, ligatures, spaces, and what readers of pictures confuse."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from suwen.text.clean import clean

_HAN = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f"
_WIDE = re.compile(rf"[{_HAN}“”‘’—…]")
#: Words that keep their hyphen where a line breaks at it; other hyphens were put in by the printer.
_KEEPS = re.compile(
    r"(?:^|[\s(/])(?:non|anti|beta|alpha|gamma|long|short|high|low|well|self|mid|half|double|single|dual|two|three|four"
    r"|one|once|twice|first|second|third|meta|x|t|b|follow|co|pre|post|re|all|cross|end|age|dose|drug|time|life|evidence|case|blood"
    r"|left|right|upper|lower|multi|full|part|ill|calcium|heart|risk|broad|rate|thiazide|ace|stent|catheter|balloon|[a-z]*\d+)$",
    re.IGNORECASE,
)
_HYPHENS = "-\u2010\u00ad\u2011\ufffe\x02"
_LIGATURES = {ord(sign): unicodedata.normalize("NFKC", sign) for sign in "ﬀﬁﬂﬃﬄﬅﬆ"}
#: The bullets that Word takes from its fonts of symbols.
_BULLETS = {0xF0B7: "•", 0xF0A7: "▪", 0xF0D8: "➢", 0xF0FC: "✓"}
_UNIT = r"(?:mg|g|kg|µg|μg|mcg|ml|mL|L|mmol|mmHg|%|bpm|mm|cm|IU|mEq|U|min|h|次|毫克|克|毫升|天|周|岁|年)"
#: A letter where a digit belongs: inside a number, or before a unit.
_LETTER_DIGIT = re.compile(rf"(?<![A-Za-z])(?=[\dOolI|.]*\d)(?=[\d.]*[OolI|])[\dOolI|.]+(?=\s?{_UNIT}(?![A-Za-z]))")
_DIGITS = str.maketrans("OolI|", "00111")
_UNITS = (
    (re.compile(r"(?<=\d) ?rng\b"), " mg"),
    (re.compile(r"\b(mmo)[1I](?=/)"), r"\1l"),
    (re.compile(r"\bmm[Hh][gq9]\b"), "mmHg"),
    (re.compile(r"(?<=\d) ?[u](?=g\b)"), " µ"),
)
_HALF_MARKS = str.maketrans({",": "，", ";": "；", ":": "：", "?": "？", "!": "！", "(": "（", ")": "）"})
_FULL_MARKS = str.maketrans(
    {"，": ", ", "；": "; ", "：": ": ", "？": "? ", "！": "! ", "（": " (", "）": ") ", "。": ". "}
)
_HAN_MARK = re.compile(
    r"(?<=[\u4e00-\u9fff])[,;:?!](?=[\u4e00-\u9fff\s]|$)|(?<=[\u4e00-\u9fff])[()](?=[\u4e00-\u9fff])"
    r"|(?<=[A-Za-z%)）\]\d])[,;?!](?=[\u4e00-\u9fff])|(?<=\])[!?](?=\s*$)|(?<=[\u4e00-\u9fff])[!?](?=\d)"
    r"|(?<=\])[!?](?=\d+[\u4e00-\u9fff])"
)
#: In a text of which a third are Chinese characters marks are wide, whatever Latin word stands before them.
_IN_HAN = (
    (re.compile(r"(?<=[\u4e00-\u9fff])\(([^()]{1,40})\)"), r"（\1）"),
    (re.compile(r"(?<=[A-Za-z%)）\]\u4e00-\u9fff])\.(?=[\u4e00-\u9fff]|\s*$)"), "。"),
)
_LATIN_MARK = re.compile(r"(?<=[A-Za-z0-9)%])[，；：？！（）。]\s?(?=[A-Za-z0-9(\s]|$)")
_TIGHT = re.compile(r"(?<=[a-z)%])([,;])(?=[A-Za-z])|(?<=[a-z]{2}[.])(?=[A-Z][a-z])")


def join_lines(lines: Sequence[str]) -> str:
    """The lines of one paragraph as one: without the printer's hyphens, and without spaces between Chinese characters.

    >>> join_lines(["The myocar-", "dium and beta-", "blockers", "心肌", "梗死"])
    'The myocardium and beta-blockers 心肌梗死'
    """
    text = ""
    for line in map(str.strip, lines):
        if text and line and text[-1] in _HYPHENS and text[-2:-1].isalpha() and line[0].islower():
            keeps = _KEEPS.search(text[:-1])
            text = f"{text[:-1]}-{line}" if keeps else text[:-1] + line
        elif text and line:
            tight = (_WIDE.match(text[-1]) and _WIDE.match(line[0])) or (text[-1] in "/-–" and text[-2:-1] != " ")
            text += line if tight else f" {line}"
        else:
            text += line
    return text


def repair(text: str) -> str:
    """Text of a text layer as a reader means it: no ligatures, no signs that only a printer needs.

    >>> repair("ﬁbrillation and ﬂow")
    'fibrillation and flow'
    """
    return clean(text.translate(_LIGATURES | _BULLETS))


def repair_scan(text: str) -> str:
    """Text read off a picture: letters in numbers, marks of the wrong width and lost spaces put right.

    >>> repair_scan("每日5O mg,必要时加量。 Give l0 mg，then 2.5 rng daily.Stop it")
    '每日50 mg，必要时加量。 Give 10 mg, then 2.5 mg daily. Stop it'
    >>> repair_scan("记录血压(mmHg),静息时超过140 mmHg者应复查.")
    '记录血压（mmHg），静息时超过140 mmHg者应复查。'
    """
    text = _LETTER_DIGIT.sub(lambda found: found[0].translate(_DIGITS), repair(text))
    for wrong, right in _UNITS:
        text = wrong.sub(right, text)
    if re.search("[\u4e00-\u9fff]", text):
        text = _HAN_MARK.sub(lambda found: found[0].translate(_HALF_MARKS), text)
    if 3 * len(re.findall("[\u4e00-\u9fff]", text)) >= len(text):
        for wrong, right in _IN_HAN:
            text = wrong.sub(right, text)
        return clean(text)
    text = _LATIN_MARK.sub(lambda found: found[0].strip().translate(_FULL_MARKS), text)
    return clean(_TIGHT.sub(lambda found: f"{found[1] or ''} ", text))

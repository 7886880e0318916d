"""Rules for English names and addresses, on the text in its own case: capitals are half of what tells a name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from suwen.text.mask_view import FILL, Place, View, apart, compiled, places

_WORD = r"(?:(?:O'|D'|Mc|Mac|Fitz)?[A-Z][a-z]{1,20}(?:-[A-Z][a-z]{1,20}){0,2})"
_PARTICLE = (
    r"(?:[Vv]an(?: de[rn]?)?|[Vv]on|[Dd]e(?: la| los)?|[Dd]el|[Dd]i|[Dd]a|[Dd]os|[Ll]a|[Ll]e|[Bb]in|[Ee]l|[Aa]l)"
)
_LAST = rf"(?:(?:{_PARTICLE} )?{_WORD})"
_FIRST = rf"(?:{_WORD}|[A-Z]\.(?: ?[A-Z]\.)?)"
_FULL = rf"(?:{_FIRST} (?:[A-Z]\.? |{_WORD} )?{_LAST})"
_CAPS = r"(?:[A-Z]{2,20}(?:['-][A-Z]{2,20})?)"
_EDGE = r"(?![A-Za-z]|-[A-Za-z]|'[a-rt-z])"
_DEGREE = r"(?:MD|M\.D\.|DO|D\.O\.|RN|R\.N\.|PhD|Ph\.D\.|NP|PA-C|PA|MBBS|DDS|DNP|LPN|FACS|FRCP|MPH)(?![A-Za-z])"

_TITLED = compiled(
    r"(?<![A-Za-z.-])(?:Mr|Mrs|Ms|Mx|Dr|Drs|Prof|Professor|Messrs)\b\.?\s{1,2}"
    rf"({_FULL}|{_LAST}){_EDGE}"
)
_SIGNS = r"(?:[Ss]igned|[Dd]ictated|[Rr]eferred|[Rr]eviewed|[Pp]erformed|[Ee]ntered|[Vv]erified|[Tt]ranscribed) [Bb]y"
_FIELD = compiled(
    r"(?<![A-Za-z])(?:(?:[Pp]atient|[Pp]t|PATIENT|[Ff]ull|[Ll]egal)(?:'s)? ?(?:[Nn]ame|NAME)|Name|NAME|Pt|PT|Patient|"
    r"PATIENT|(?:[Aa]ttending|[Rr]eferring|[Tt]reating|[Pp]rimary [Cc]are|[Oo]rdering)? ?(?:[Pp]hysician|[Dd]octor|"
    r"[Pp]rovider)|Attending|[Ss]urgeon|[Aa]na?esthesiologist|[Rr]adiologist|[Pp]athologist|[Nn]urse|[Cc]linician|"
    rf"[Ss]igned|[Ss]ignature|[Nn]ext of [Kk]in|(?:[Ee]mergency )?[Cc]ontact|[Gg]uardian|{_SIGNS})\s?:\s{{0,6}}"
    rf"({_LAST}, {_FIRST}(?: [A-Z]\b\.?)?|{_FULL}|"
    rf"{_CAPS}, {_CAPS}(?: [A-Z]\b\.?)?|{_CAPS} (?:[A-Z]\.? )?{_CAPS}){_EDGE}"
)
_BY = compiled(rf"(?<![A-Za-z]){_SIGNS}\s{{1,2}}({_FULL}){_EDGE}")
_CALLED = compiled(rf"(?<![A-Za-z])(?:(?:[Mm]y|[Hh]is|[Hh]er) name is|I am called)\s({_FULL}|{_LAST}){_EDGE}")
_SELF = compiled(rf"(?<![A-Za-z])(?:I am|I'm|[Tt]his is)\s({_FULL})(?=[,.])")
_KIN = compiled(
    r"(?<![A-Za-z])(?:daughter|son|wife|husband|mother|father|brother|sister|spouse|partner)(?:,| named| is called)?\s"
    rf"({_FULL}){_EDGE}"
)
_SURNAMED = compiled(
    rf"(?<![A-Za-z])(?:Patient|Nurse|Doctor)\s({_WORD})(?= (?:was|is|has|had|reports|reported|states|stated)\b)"
)
_ROLE = compiled(rf"(?<![A-Za-z])(?:[Pp]atient|[Pp]t\.?|[Nn]urse|[Dd]octor|[Cc]ontact|Miss|Sister)\s({_FULL}){_EDGE}")
_WITH_DEGREE = compiled(rf"(?<![A-Za-z.-])({_FULL}),?\s{{1,2}}{_DEGREE}")
_BESIDE = compiled(rf"(?<![A-Za-z.-])({_FULL})(?= \((?:born|DOB|b\.)?:?\s?{FILL})")
# A capital is no name where the words are those of a heading, an institution or an illness.
_NO_NAME = frozenset(Path(__file__).with_name("not_names_en.txt").read_text(encoding="utf-8").split())
_ILLNESS = compiled(
    r"'?s?'? (?:disease|syndrome|disorder|palsy|sign|test|anemia|phenomenon|lymphoma|thyroiditis|contracture)"
)

_STREET = compiled(
    r"(?<![\w.,/$-])(\d{1,5}[A-Z]? (?:[NSEW]{1,2}\.? )?"
    r"(?:(?:[A-Z][A-Za-z']{1,20}\.?|\d{1,3}(?:st|nd|rd|th)|de|la|of) ){1,5}"
    r"(?:Street|St|Avenue|Ave|Boulevard|Blvd|Road|Rd|Drive|Dr|Lane|Ln|Court|Ct|Way|Place|Pl|Terrace|Highway|Hwy|Parkway|"
    r"Pkwy|Circle|Square)(?:\b\.(?=[,\s.])|\b)"
    r"(?:,? (?:Apt|Apartment|Suite|Ste|Unit|Room|Rm|#)\.? ?[A-Z0-9-]{1,6}\b)?"
    r"(?:,? (?:[A-Z][a-z.]{1,20} ?){1,3}, ?[A-Z]{2}\b(?: \d{5}(?:-\d{4})?\b)?)?)"
)


def name(view: View) -> Iterator[Place]:
    """Names after a title, in a field, in a signature, before a degree."""

    def of_a_person(match: re.Match[str]) -> bool:
        words = match[1].replace(",", "").split()
        return _NO_NAME.isdisjoint(words) and not _ILLNESS.match(view.plain, match.end(1))

    patterns = (_TITLED, _FIELD, _BY, _CALLED, _SELF, _KIN, _ROLE, _SURNAMED, _WITH_DEGREE, _BESIDE)
    yield from apart(place for pattern in patterns for place in places(pattern, view.plain, of_a_person))


def address(view: View) -> Iterator[Place]:
    """American addresses: number and street, with flat, city, state and postal code where they follow."""
    return places(_STREET, view.plain)

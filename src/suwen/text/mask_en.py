"""Rules for names in Latin letters, in English and in Chinese text: runs of capitals, and what stands around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from suwen.text.mask_view import FILL, HAN, Found, View, compiled

_LATIN = [chr(code) for code in (*range(0x41, 0x250), *range(0x1E00, 0x1F00)) if chr(code).isalpha()]
UPPER = "".join(letter for letter in _LATIN if letter.isupper())
LETTER = "".join(_LATIN)
_WORD = rf"[{UPPER}](?:[{LETTER}]|'(?=[{UPPER}][{LETTER}])|-(?=[{UPPER}])){{1,24}}"
_PARTICLE = (
    r"(?:[Vv]an (?:de[rn]? )?|[Vv]on (?:de[rm] )?|[Dd]e (?:la |los |las )?|[Dd]el |[Dd]i |[Dd]a |[Dd]os |"
    r"bin |el |al |y )"
)
_ABBREVIATED = r"(?:Mr|Mrs|Ms|Mx|Dr|Drs|Prof|Pt|Rev|Sgt|Messrs|Fr|MR|MRS|MS|DR)\."
_TOKEN = rf"(?:{_ABBREVIATED}|{_WORD}|[{UPPER}](?:\.(?: ?[{UPPER}]\.){{0,2}}|(?= [{UPPER}])))"
_RUN = re.compile(rf"{_TOKEN}(?: {_PARTICLE}?{_TOKEN}){{0,6}}")
_INVERTED = re.compile(rf"(?<![{LETTER}.'-])((?:{_PARTICLE})?{_WORD}), ({_WORD}(?: [{UPPER}]\b\.?)?)(?![{LETTER}'-])")
_DEGREE = compiled(
    r",? {0,2}(?:MD|M\.D\.|DO|D\.O\.|RN|R\.N\.|PhD|Ph\.D\.|NP|FNP|PA-C|PA|MBBS|MBChB|DDS|DNP|LPN|CNA|RD|PT|OT|"
    r"LCSW|PsyD"
    r"|PharmD|FACS|FACP|FRCP|MRCP|MPH|MSN|BSN|CRNA|CNM|DPM|OD|DVM|Esq)(?![A-Za-z])"
)
_TITLES = frozenset(
    [
        "Mr",
        "Mrs",
        "Ms",
        "Mx",
        "Miss",
        "Dr",
        "Drs",
        "Doctor",
        "Prof",
        "Professor",
        "Messrs",
        "Madam",
        "Sir",
        "Nurse",
        "Sister",
        "Patient",
        "Pt",
        "Baby",
        "Aunt",
        "Uncle",
        "Grandma",
        "Grandpa",
        "Mother",
        "Father",
        "Mom",
        "Dad",
        "Son",
        "Daughter",
        "Wife",
        "Husband",
        "Brother",
        "Spouse",
        "Captain",
        "Sgt",
        "Rev",
        "Fr",
        "Señor",
        "Señora",
        "Herr",
        "Frau",
        "Monsieur",
        "Madame",
        "Subject",
        "Dear",
        "Hi",
        "Hello",
        "Hey",
        "Thanks",
        "Regards",
        "PATIENT",
        "PT",
        "NAME",
        "MR",
        "MRS",
        "MS",
        "DR",
    ]
)
_SURE_TITLES = frozenset(
    [
        "Mr",
        "Mrs",
        "Ms",
        "Mx",
        "Dr",
        "Drs",
        "Prof",
        "Professor",
        "Messrs",
        "MR",
        "MRS",
        "MS",
        "DR",
        "Herr",
        "Frau",
        "Madame",
        "Monsieur",
    ]
)
_KIN = (
    r"mother|father|mom|mum|dad|son|daughter|wife|husband|spouse|partner|brother|sister|aunt|uncle|cousin|niece|"
    r"nephew|"
    r"grand(?:mother|father|son|daughter|ma|pa)|friend|neighbou?r|roommate|colleague|fianc[eé]e?|boyfriend|"
    r"girlfriend|"
    r"caregiver|guardian|twin|baby|child|boy|girl|boss|coworker|classmate"
)
_ROLE = (
    r"patient|pt\.?|nurse|doctor|physician|surgeon|provider|attending|resident|fellow|consultant|midwife|therapist|"
    r"pharmacist|anaesthetist|anesthesiologist|radiologist|pathologist|interpreter|witness|dietitian|specialist|"
    r"subject"
)
# What stands right before a person, however the name looks: words, or the field of a form.
_SURE = compiled(
    rf"(?<![a-z])(?:names? is|name's|(?:{_KIN})(?:,| named| is called|'s name is)?(?: \()?|contact \(|in care "
    rf"of|attn|c/o)\s{{0,2}}$"
)
_BY = compiled(
    r"(?<![a-z])(?:(?:dictated|referred|reviewed|performed|entered|verified|transcribed|seen|treated|admitted|"
    r"prepared|authored|signed|"
    r"assisted|accompanied|witnessed|interpreted|ordered|collected|reported|submitted) (?:and \w+ )?by)\s{0,2}$"
)
_SURE_FIELD = compiled(
    rf"(?<![a-z])(?:name|{_ROLE}|{_KIN}|contact|next of kin|cc|re|signed|signature|attn|surgeon|assistant|author|"
    r"primary care|referring|interviewer|investigator|coordinator|clinician|technician|staff|recipient|customer|"
    r"client|"
    r"employee|beneficiary|insured|subscriber|policyholder|informant|speaker|sender|caller|donor)"
    r"(?: (?:name|physician|doctor|provider|by|contact|person|signature))?\s?:\s{0,6}\"?$"
)
# Before a person who has at least a first name or a surname that is one.
_WEAK = compiled(
    rf"(?<![a-z])(?:i am|i'm|this is|i saw|see|(?:discussed|spoke|met|meet|reviewed|consult(?:ed)?|talked|speak|"
    rf"visit) (?:with|to)|"
    r"notified|contacted|asked|consulted|paged|informed|told|referring|thanks|regards|sincerely|wishes|cheers|"
    r"truly|faithfully|"
    rf"respectfully|dear|hi|hello|hey|labell?ed|name|wrote|says|named|called|by|certif(?:y|ies) that|{_ROLE}|"
    rf"from|to|by|of)"
    r"[,:;]?\s{1,2}[\"(]?$"
)
_PERSON_AFTER = compiled(
    r"\s?(?:,? ?(?:is|was) an? (?:\d|very|pleasant|[a-z]+ \d)|,? ?(?:a|an) \d{1,3}[- ]?(?:y|year)|,? "
    r"?\(?\d{1,3}[ -]?(?:y/?o|yo|year|[MF]\b)|"
    r" (?:here|wrote|called|reports?|reported|states?|stated|denies|denied|presents|presented|complains|was "
    r"seen|returns|says|said|came|"
    rf"underwent|tolerated|consents|consented|agrees|has been (?:cleared|under))\b|,? \(?(?:DOB|born|b\.)|,? "
    rf"?\(?{FILL}|['’]s (?:mother|father|wife|husband|son|daughter|family))"
)
_ZH_BEFORE = re.compile(
    "(?:患者|病人|患儿|产妇|姓名|名字|联系人|家属|朋友|同学|同事|专家|学者|教授|医生|医师|博士|先生|女士|护士|"
    "受试者|国籍|我是|我叫|叫|儿子|女儿|"
    "丈夫|妻子|老公|老婆|爸爸|妈妈|男友|女友|外教|老师)[:\\s]{0,4}$"
)
_ZH_AFTER = re.compile(r"\s?(?:先生|女士|小姐|医生|大夫|教授|博士|老师|,\s?(?:男|女|\d{1,3}岁))")
# A name of a thing: an illness, a sign, an institution, a place.
_THING_AFTER = compiled(
    r"(?:'?s?'? |-)(?:disease|syndrome|disorder|palsy|sign|signs|test|an(?:a)?emia|phenomenon|lymphoma|"
    r"thyroiditis|contracture|"
    r"nodules?|procedure|operation|score|scale|criteria|classification|fracture|tumou?r|sarcoma|cyst|ulcer|cell|"
    r"cells|"
    r"body|bodies|catheter|tube|reflex|reaction|stain|law|effect|method|technique|maneuver|manoeuvre|position|"
    r"index|ring|"
    r"rings|virus|fever|chorea|ataxia|dystrophy|atrophy|esophagus|gland|duct|node|line|lines|spot|spots|triad|"
    r"sequence|sequences|spotted|degeneration|wort|hospital|clinic|university|school|institute|foundation|association|model|equation|formula|regimen|"
    r"diet|insoles|"
    r"carcinoma|cancer|poisoning|osteotomy|repair|flap|forceps|clamp|splint|encephalopathy|nephritis|arthropathy|"
    r"cardiomyopathy|dementia|malformation|anomaly|deformity|paralysis|neuroma|melanoma|gene|protein|mutation|"
    r"trial|study|type|surgery|factor|bundle|capsule|canal|loop|duct|island|county|river|street|valley|church|"
    r"project|prize|award)s?\b"
)
_ZH_THING_AFTER = re.compile(
    r"\s?(?:病|综合征|综合症|征|症|氏|法|试验|评分|细胞|手术|术|指数|量表|分级|分期|分类|体|环|结节|现象|反应|"
    r"线|骨折|瘤|囊|管|培养|染色|医院|大学|公司|标准|公式|曲线|模型|蛋白|基因)"
)
_NAME_FILE = Path(__file__).with_name("names_en.txt")
_NO_NAME = frozenset(Path(__file__).with_name("not_names_en.txt").read_text(encoding="utf-8").split())
_DIACRITIC = re.compile(f"[{''.join(letter for letter in _LATIN if not letter.isascii())}]")
_LOOK = 40
_CAPITALS = re.compile("[A-Z][A-Za-z\xc0-\u024f.']")
_JOINED = frozenset(LETTER + ".-'&")


class _Census(NamedTuple):
    first: frozenset[str]
    last: frozenset[str]


@cache
def census() -> _Census:
    """First names and surnames."""
    first, last = (line for line in _NAME_FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return _Census(frozenset(first.split()), frozenset(last.split()))


def names(view: View) -> Iterator[Found]:
    """Names after a title, in a field, in a signature, before a degree, and full names that are plainly names."""
    text = view.plain
    if not _CAPITALS.search(text):
        return
    taken = -1
    for match in _INVERTED.finditer(text) if ", " in text else ():
        if _is_inverted(text, match):
            taken = match.end()
            yield Found(*match.span(), "name")
    for run in _RUN.finditer(text):
        if run.start() < taken or (run.start() and text[run.start() - 1] in _JOINED):
            continue
        place = _in_run(text, run)
        if place is not None:
            yield place


def is_common(word: str) -> bool:
    """Whether a word with a capital is one of headings and institutions rather than a name."""
    return word in _NO_NAME or word.capitalize() in _NO_NAME or word.rstrip(".") in _TITLES


def of_a_thing(text: str, end: int) -> bool:
    """Whether what ends here is the name of a thing: of an illness, a sign, a hospital."""
    return bool(_THING_AFTER.match(text, end) or _ZH_THING_AFTER.match(text, end))


def is_full_name(value: str) -> bool:
    """Whether a whole value is the name of a person, to the eye: capitals, and a part that is known as a name.

    >>> is_full_name("Emily Carter"), is_full_name("Type 2 Diabetes"), is_full_name("Lisinopril")
    (True, False, False)
    """
    parts = value.replace(",", "").split()
    capital = all(part[0].isupper() and part.replace("-", "").replace("'", "").rstrip(".").isalpha() for part in parts)
    return 1 <= len(parts) <= 4 and capital and not any(map(is_common, parts)) and _known(parts) > 0


def _is_inverted(text: str, match: re.Match[str]) -> bool:
    last, first = match[1], match[2].split()[0]
    if last in _NO_NAME or first in _NO_NAME or last.capitalize() in _NO_NAME or first.capitalize() in _NO_NAME:
        return False
    if _DEGREE.match(text, match.end()):
        return last.isupper() == first.isupper() and not _DEGREE.match(text, match.end(1))
    before = text[max(0, match.start() - _LOOK) : match.start()].lower()
    return bool(_SURE_FIELD.search(before)) and not _DEGREE.match(text, match.end(1))


def _in_run(text: str, run: re.Match[str]) -> Found | None:
    """The name in a run of capitals, less the titles and sentence words before it."""
    words = [word.span() for word in re.finditer(r"[^\s]+", run[0])]
    spelled = [run[0][start:end] for start, end in words]
    titled, first, plain = 0, 0, False
    for number, word in enumerate(spelled):
        bare = word.rstrip(".")
        shouted = bare.isupper() and not spelled[min(number + 1, len(spelled) - 1)].isupper()
        if bare in _TITLES and not shouted:  # MR Angiography
            titled, first = (2 if bare in _SURE_TITLES else 0 if plain else max(titled, 1)), number + 1
        elif word in _NO_NAME:
            titled, first, plain = 0, number + 1, True
            if number and spelled[number - 1] not in _NO_NAME | _TITLES:
                return None  # John Hopkins Hospital
        else:
            continue
    if first == len(words):
        return None
    start = run.start() + words[first][0]
    last = next(
        (place for place in range(first + 1, len(words)) if _acronym(spelled[place]) and not _acronym(spelled[first])),
        len(words),
    )
    parts = [word for word in spelled[first:last] if word[0] in UPPER]
    end = _trimmed(text, run.start() + words[last - 1][1])
    if parts and "." in parts[-1][1:]:  # U.S.
        return None
    if len(parts) > 4 or not parts or (len(parts) == 1 and len(parts[0]) < 3 and not titled):
        return None
    return Found(start, end, "name") if _is_person(text, start, end, parts, titled) else None


def _acronym(word: str) -> bool:
    return len(word) > 1 and word[1] != "." and word.isupper()


def _trimmed(text: str, end: int) -> int:
    return end - 1 if text[end - 1] == "." and text[end - 2 : end - 1].islower() else end


def _is_person(text: str, start: int, end: int, parts: list[str], titled: int) -> bool:
    if of_a_thing(text, end):
        return False
    capitals = all(len(part) > 1 and part.isupper() for part in parts)
    before = text[max(0, start - _LOOK) : start]
    if FILL in before:
        before = before.rpartition(FILL)[2]
    known = _known(parts)
    low = before.lower()
    sure = titled == 2 or _SURE.search(low) is not None or _SURE_FIELD.search(low) is not None
    if sure:
        return len(parts) > 1 or (len(parts[0]) > 2 and (known > 0 or (not capitals and ":" not in low[-8:])))
    if len(parts) > 1 and not capitals and _BY.search(low):
        return True
    if len(parts) > 1 and _DEGREE.match(text, end):
        return not capitals or known > 1
    if _ZH_BEFORE.search(before) or _ZH_AFTER.match(text, end):
        return not capitals and (len(parts) > 1 or known > 0)
    if capitals:
        return False
    lead = titled == 1 or _WEAK.search(before.lower()) is not None
    if len(parts) > 1:
        return known > 1 or (lead and known > 0 and not _JUST_OF.search(low)) or bool(_PERSON_AFTER.match(text, end))
    return known > 0 and (titled == 1 or _lone(before, text, end))


def _known(parts: list[str]) -> int:
    """How much of it is a name known: the first name, the surname, letters no English word has."""
    first, last = parts[0].capitalize(), parts[-1].capitalize()
    pieces = last.replace("'", "-").split("-")
    surname = any(piece.capitalize() in census().last for piece in pieces) or _DIACRITIC.search(last) is not None
    initial = len(parts[0].rstrip(".")) == 1
    if len(parts) == 1:
        return int(first in census().first or surname)
    if initial:
        return 2 * int(surname and last not in census().first)
    return int(first in census().first or _DIACRITIC.search(first) is not None) + int(surname)


_JUST_OF = compiled(r"(?<![a-z])(?:of|from|to|by)\s{1,2}$")
_LONE = compiled(
    r"(?:(?:i am|i'm|this is|(?<![a-z])(?:thanks|regards|sincerely|wishes|cheers|love),?|(?<![a-z])i saw|spoke "
    r"(?:with|to)|seen by|"
    r"(?:mr|mrs|ms)\.? and (?:mr|mrs|ms)\.?)\s{1,2})$"
)


def _lone(before: str, text: str, end: int) -> bool:
    """One word is a person after a greeting or a farewell, and where somebody says who they are."""
    return _LONE.search(before.lower()) is not None and not _HAN_AFTER.match(text, end)


_HAN_AFTER = re.compile(f"[{HAN}]")

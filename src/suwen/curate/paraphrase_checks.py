"""What a paraphrase must keep of a medical sentence, or it is refused: a changed dose must not become a positive.

The checks are rules over letters, in English and Chinese, and rather refuse a good paraphrase than pass a wrong one.
Whether the meaning is the same beside that, they cannot tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import combinations
from typing import NamedTuple

from suwen.curate.leakage import comparable, weight
from suwen.curate.near_duplicates import shingles, similarity
from suwen.text.fold import fold
from suwen.text.quantities import measures, numbers, order, rates
from suwen.text.segment import drug_words, language_of
from suwen.text.synonyms import shipped_drugs

#: From which similarity of letters a paraphrase is a copy, and how much shorter or longer than its sentence it may be.
COPY, SHORTEST, LONGEST = 0.9, 0.5, 2.0
_HAN = re.compile("[一-龟]")
_NEGATED_EN = re.compile(
    r"\b(?:no|not|none|never|neither|nor|without|cannot|lacks?|lacking|absent|absence|fails?|failed|unable|free of"
    r"|unlikely|avoid(?:s|ed|ing)?|contraindicated|contraindications?|prevents?|except|negative)\b|n['’]t\b"
)
#: Those that negate what follows alone: "at rest without exertion". Others may negate what is before: "is not given".
_AHEAD = re.compile(
    r"no|none|neither|nor|without|lacks?|lacking|absence|free of|except|avoid(?:s|ed|ing)?|prevents?"
    r"|[无没未缺]|避免|除外"
)
_AUXILIARY = re.compile(
    r"\b(?:is|are|was|were|be|been|do|does|did|has|have|had|can|could|may|might|must|shall|should|will|would) ?$"
)
_NEGATED_ZH = re.compile("[不没無无未非否勿莫禁忌缺]|避免|除外|阴性")
#: Words with a negating character that negate nothing.
_NO_NEGATION = re.compile(
    "不同(?!步|时(?![期间段候刻代点]))|不断(?![裂奶])|不仅|不但|不过(?![敏量度])|不管(?!用)|不论|不良|不适(?![合用宜])|不舒服"
    "|不全|不齐|不稳|不足(?!月)|不少(?!见)|不久(?![坐站])|不低于|不超过|不少于|(?<!并)非常(?!规(?![律则范]))|无论|无菌|除非"
    "|未来|莫名|不规则|不典型|不随意|不张|不孕|不整|肌无力|无创|缺(?=[血氧铁损陷钾钙锌碘])"
)
#: What asks, and may be left out: 是不是, 可以不可以, 是否.
_ASKED = re.compile(r"([一-龟]{1,2})[不没]\1|[是能可会有]否|有无")
_HIDDEN = str.maketrans(dict.fromkeys("不没无未非否勿莫禁忌缺", "·"))
_CLAUSE = re.compile(
    r"[,;:.!?，；：。！？](?!\d)|但|而|却|\b(?:but|whereas|while|although)\b"
    r"|\band (?=(?:do|does|did|is|are|was|were|has|have|no|not)\b)"
)
#: Where what a negation ahead negates ends: "no thrombus in the left atrium".
_PLACE = re.compile(r"\b(?:in|at|on|during|with|by|for|when|if|who|that|which|because)\b|[在时]")
#: As far as what a Chinese negation negates goes, where it is no list.
_LONG_ZH = re.compile("^[一-龟][^、]{13}|、[^、]{14}")
_VERB = re.compile(
    r"\b(?:is|are|was|were|do|does|did|has|have|had|can|could|may|might|must|shall|should|will|would)(?:\b|n['’]t\b)"
)
_WORD = re.compile(r"[a-z]{4,}|[一-龟]{2,}")
_NEXT = re.compile(r"\W*([a-z]+)")
_COMMON = re.compile(
    "with|from|that|this|these|those|they|them|then|than|there|their|have|been|being|were|will|would|should|could|must|when"
    "|which|while|where|also|such|some|many|most|more|very|into|onto|upon|both|each|other|patients?|患者|病人"
)
_SIDES = {
    "left": re.compile(r"\bleft\b|左(?!右)"),
    "right": re.compile(r"\bright\b|(?<!左)右"),
    "both": re.compile(r"\bbilateral(?:ly)?\b|\bboth sides\b|双侧|两侧|双肺|双肾"),
    "same": re.compile(r"\b(?:ipsi|homo)lateral(?:ly)?\b|\bsame side\b|同侧|患侧"),
    "opposite": re.compile(r"\bcontralateral(?:ly)?\b|\bopposite side\b|对侧|健侧"),
}
#: Pairs of opposites: a text that has lost the one and won the other says the opposite.
_OPPOSITES = tuple(
    (re.compile(one), re.compile(other))
    for one, other in (
        (
            r"\b(?:increas|rais|ris(?:e|es|ing)\b|rose\b|elevat|higher\b|augment|widen"
            r"|more (?:likely|common|frequent|often))|升高|增[加高大多强]|上升|升压|变快",
            r"\b(?:decreas|reduc|lower(?:s|ed|ing)?\b|fall(?:s|en|ing)?\b|fell\b|drop|declin|diminish|narrow"
            r"|less (?:likely|common|frequent|often))"
            r"|降低|减[少低小弱]|下降|降压|减慢|变慢",
        ),
        (
            r"\bbefore\b|\bpre-?op|\bprior to\b|术前|之前|以前|餐前|饭前|前应",
            r"\bafter|\bpost-?op|\blater\b|术后|之后|以后|餐后|饭后",
        ),
        (
            r"\babove\b|\bover\b|\bmore than\b|\bgreater than\b|\bat least\b|\bexceed|[>≥]"
            r"|高于|大于|超过|多于|不低于|以上",
            r"\bbelow\b|\bunder\b|\bless than\b|\bfewer than\b|\bat most\b|[<≤]|(?<!不)低于|小于|少于|不足|以下",
        ),
        (r"\bhyper(?=[a-z])|高(?=[钾钠钙磷镁糖脂血])", r"\bhypo(?=[a-z])|低(?=[钾钠钙磷镁糖脂血])"),
        (r"\btachy|过速", r"\bbrady|过缓"),
        (r"\bsystol|收缩", r"\bdiastol|舒张"),
        (r"\barter(?:y|ies|ial)|动脉", r"\bve(?:in|ins|nous)\b|静脉"),
        (r"\bacute|急性", r"\bchronic|慢性"),
        (r"\bstable|(?<!不)稳定", r"\bunstable|不稳"),
        (r"\bregular|(?<!不)规则", r"\birregular|不规则"),
        (r"\btypical|(?<![不非])典型", r"\batypical|[不非]典型"),
        (r"\bproximal|近端|近侧", r"\bdistal|远端|远侧"),
        (r"\banterior|前壁", r"\bposterior|后壁"),
        (r"\bsuperior\b|\bupper\b|上肢|上腔", r"\binferior\b|\blower (?=limb|extrem|leg|lobe)|下肢|下腔"),
        (r"\bmedial|内侧", r"\blateral|外侧"),
        (r"\bpositive|阳性", r"\bnegative|阴性"),
        *combinations(
            (
                r"\boral(?:ly)?\b|\bby mouth\b|口服",
                r"\bintravenous|\bi\.?v\b|静脉[注滴推]|静滴|静注",
                r"\bintramuscular|\bi\.?m\b|肌内?注射?",
                r"\bsubcutaneous|\bs\.?c\b|\bunder the skin\b|皮下",
            ),
            2,
        ),
        (r"\bmales?\b|\bmen\b|男", r"\bfemales?\b|\bwom[ae]n\b|女"),
        (
            r"\b(?:start|begin|began|begun|initiat|resum)|开始|启用|恢复服用",
            r"\b(?:stop|discontinu|withh[eo]ld|withdraw)|停[用药服止]",
        ),
    )
)
#: Of which the order must stay where a text has both: stop it before surgery, go on after.
_IN_ORDER = _OPPOSITES[1]
_DRUG_EN = re.compile(
    r"\b[a-z]{2,}(?:olol|pril|prilat|sartan|statin|dipine|mycin|micin|cillin|azole|oxacin|parin|xaban|gatran|grel|plase"
    r"|thiazide|semide|prazole|gliptin|gliflozin|glutide|formin|sone|solone|pam|caine|triptan|vir|mab|tinib|azepine"
    r"|fibrate|tidine|setron|phylline|terol|tropium|barbital|cycline|sulfa|dronate|lactone)\b"
    r"|\b(?:warfarin|heparin|aspirin|digoxin|amiodarone|nitroglycerin|insulin|morphine|dopamine|dobutamine|adenosine"
    r"|atropine|epinephrine|norepinephrine|lidocaine|verapamil|diltiazem|hydralazine|ivabradine|sacubitril|milrinone"
    r"|nitroprusside|ibuprofen|acetaminophen|paracetamol|clonidine|colchicine|ezetimibe|flecainide|quinidine)\b",
    re.I,
)
_DRUG_ZH = re.compile(
    "[^\\W\\d_a-zA-Z用服予给与和及或的了为以对、加联合]{1,4}(?:洛尔|普利|沙坦|他汀|地平|霉素|西林|沙星|硝唑|康唑|拉唑|噻嗪|塞米"
    "|列净|列汀|格雷|沙班|加群|肝素|双胍|米松|尼松|西泮|卡因|替丁|贝特|茶碱|特罗|环素)|"
    "华法林|阿司匹林|地高辛|胺碘酮|硝酸甘油|胰岛素|吗啡|多巴胺|腺苷|阿托品|肾上腺素|维拉帕米|地尔硫卓|布洛芬|螺内酯|"
    "异山梨酯|尿激酶|链激酶|普罗帕酮|利多卡因|头孢[^\\W\\d_a-zA-Z]{2}"
)


def refusal(sentence: str, paraphrase: str, names: Iterable[str] = ()) -> str | None:
    """Why a paraphrase is refused, in a word of the report; None where it passes.

    Args:
        sentence: What was to be said in other words.
        paraphrase: The other words.
        names: Names beside the known drugs that must stay, folded.

    >>> refusal("Give aspirin 75 mg daily.", "Aspirin is taken every day at 750 mg.")
    'numbers'
    >>> refusal("Give aspirin 75 mg daily.", "A daily dose of 75 mg of aspirin is given.")
    """
    own, other = fold(sentence), fold(paraphrase)
    compared, said = comparable(sentence), comparable(paraphrase)
    if not said:
        return "empty"
    if language_of(compared) != language_of(said):
        return "language"
    if similarity(shingles(sentence), shingles(paraphrase)) >= COPY:
        return "copy"
    if not SHORTEST <= weight(said) / weight(compared) <= LONGEST:
        return "length"
    for reason, of in KEPT.items():
        if of(own) != of(other):
            return reason
    if moved_negation(own, other) or lost_negation(own, other) or lost_negation(other, own):
        return "negation"
    if turned_round(own, other):
        return "opposites"
    if any((name in own) != (name in other) for name in names):
        return "names"
    return None


def negated(folded: str) -> bool:
    """Whether a text negates something.

    >>> negated("it is not common"), negated("心律不齐非常多见"), negated("未见异常")
    (True, False, True)
    """
    return bool(_negations(_plain(folded)))


def moved_negation(own: str, other: str) -> bool:
    """Whether a word that both texts have is negated in one alone; where it is not clear, it is not.

    >>> moved_negation("do not give it and do not stop aspirin", "it should not be given; stop aspirin")
    True
    >>> moved_negation("no evidence of thrombus", "the heart was without evidence of any thrombus")
    False
    """
    (denied, said), (other_denied, other_said) = _denied_and_said(own), _denied_and_said(other)
    return bool((denied - said) & (other_said - other_denied) or (said - denied) & (other_denied - other_said))


def lost_negation(own: str, other: str) -> bool:
    """Whether a negation of one text is missing in the other, by the words that stand behind each.

    A negation of the other text that stands for one of the first cannot stand for a second one in its clause.

    >>> lost_negation("pain without infarction does not need surgery", "pain with infarction does not need surgery")
    True
    >>> lost_negation("no infarction and no fever were seen", "neither infarction nor fever was seen")
    False
    """
    own, other = _plain(own), _plain(other)
    counts, other_counts = Counter(_words(own)), Counter(_words(other))
    said = list(_standing(_ASKED.sub(" ", own)))
    # Of a word that stands several times as many must be negated.
    denied = Counter(word for one in said for word in one.first if counts[word] == other_counts[word])
    begun = {one.next for one in said}
    covered: Counter[str] = Counter()
    for one in _standing(other):
        is_one_of_them = not one.first.isdisjoint(denied) or (one.next and one.next in begun)
        covered.update(one.behind if is_one_of_them else one.clause)
    return any(covered[word] < min(count, counts[word]) for word, count in denied.items())


def turned_round(own: str, other: str) -> bool:
    """Whether one of two opposites became the other, or what was before is after.

    >>> turned_round("raise the dose when the pressure falls", "when the pressure falls the dose is reduced")
    True
    """
    for one, opposite in _OPPOSITES:
        won = len(one.findall(other)) - len(one.findall(own))
        lost = len(opposite.findall(other)) - len(opposite.findall(own))
        if won * lost < 0:
            return True
    return len(_sequence(own)) == len(_sequence(other)) > 1 and _sequence(own) != _sequence(other)


def _sequence(folded: str) -> list[bool]:
    before, after = _IN_ORDER
    places = [(found.start(), False) for found in before.finditer(folded)]
    return [late for _, late in sorted([*places, *((found.start(), True) for found in after.finditer(folded))])]


def _plain(folded: str) -> str:
    """A text without what only looks as if it negated: in words such as 不同 and names of drugs such as 阿莫西林."""
    names = _drug_names()[1].sub(lambda name: name[0].translate(_HIDDEN), folded)
    return _NO_NEGATION.sub(" ", names)


def _negations(folded: str) -> list[re.Match[str]]:
    return [*_NEGATED_EN.finditer(folded), *_NEGATED_ZH.finditer(folded)]


class _Standing(NamedTuple):
    """The words behind a negation up to a verb or a place, the first of these, and all words of its clause.

    ``next`` is the English word that it stands before, however short.
    """

    next: str
    first: set[str]
    behind: set[str]
    clause: set[str]


def _standing(folded: str) -> Iterator[_Standing]:
    for clause in _clauses(folded):
        for match in _negations(clause):
            ahead = clause[match.end() :]
            ends = [found.start() for found in (_PLACE.search(ahead, 4), _VERB.search(ahead)) if found]
            ends += [found.end() for found in [_LONG_ZH.search(ahead)] if found]
            behind = _words(ahead[: min(ends, default=len(ahead))])
            # Two pairs of characters are one word of three.
            first = behind[: 1 if behind and behind[0].isascii() else 2]
            after = _NEXT.match(ahead)
            yield _Standing(after[1] if after else "", set(first), set(behind), set(_words(clause)))


def _denied_and_said(folded: str) -> tuple[set[str], set[str]]:
    """The words that a text negates, and those of clauses in which nothing is negated; some words are neither."""
    denied: set[str] = set()
    said: set[str] = set()
    for clause in _clauses(_plain(folded)):
        found = _negations(clause)
        for match in found:
            denied.update(_words(_scope(clause, match)))
        if not found:
            said.update(_words(clause))
    return denied, said


def _clauses(folded: str) -> list[str]:
    """What stands between marks and conjunctions; items of a list stay with what they are listed behind."""
    clauses, start, listed = list[str](), 0, False
    for match in [*_CLAUSE.finditer(folded), None]:
        piece = folded[start : match.start() if match else len(folded)]
        if listed and len(piece.split()) < 3 and len(_HAN.findall(piece)) < 3 and not _negations(piece):
            clauses[-1] += f",{piece}"
        else:
            clauses.append(piece)
        if match:
            start, listed = match.end(), match[0] == ","
    return clauses


def _scope(clause: str, match: re.Match[str]) -> str:
    """What a negation negates: what follows it up to where it is, or the whole clause."""
    if _AHEAD.fullmatch(match[0]) or (match[0] == "not" and not _AUXILIARY.search(clause[: match.start()])):
        ahead = clause[match.end() :]
        place = _PLACE.search(ahead, 4)
        return ahead[: place.start()] if place else ahead
    return clause


def _words(text: str) -> list[str]:
    """Words by their beginnings, as "given" and "gives" are one; of Chinese, pairs of characters."""
    words: list[str] = []
    for match in _WORD.finditer(text):
        cut = [match[0]] if match[0].isascii() else [match[0][at : at + 2] for at in range(len(match[0]) - 1)]
        words += [word[:5].removesuffix("s") for word in cut if not _COMMON.fullmatch(word)]
    return words


def sides(folded: str) -> set[str]:
    """Left, right, both: those a text speaks of; 左右 in the sense of "about" is none.

    >>> sorted(sides("the left ventricle, bilaterally")), sides("约5天左右")
    (['both', 'left'], set())
    """
    return {side for side, said in _SIDES.items() if said.search(folded)}


def drugs(folded: str) -> set[str]:
    """The drugs of a text, each by its usual name: those that the package knows, others by their endings.

    >>> sorted(drugs("metoprolol with warfarin")), sorted(drugs("可服用倍他乐克和华法林"))
    (['华法林', '美托洛尔'], ['华法林', '美托洛尔'])
    """
    known, rest = _known_drugs(), folded
    found: set[str] = set()
    for pattern in _drug_names():
        found |= {known.get(name, known.get(name.removesuffix("s"), name)) for name in pattern.findall(rest)}
        rest = pattern.sub(" ", rest)
    return found | {match[0] for pattern in (_DRUG_EN, _DRUG_ZH) for match in pattern.finditer(rest)}


@cache
def _known_drugs() -> dict[str, str]:
    """The usual name of every drug of the package, by its folded names; a few letters may mean something else."""
    names = {word: word for word in drug_words()}
    for group in shipped_drugs().groups:
        names |= {fold(name): fold(group[0]) for name in group if len(name) > 3 or not name.isascii()}
    return names


@cache
def _drug_names() -> tuple[re.Pattern[str], ...]:
    """All names at once, the longest first: those that begin as Latin words do, and the others."""
    names = sorted(_known_drugs(), key=len, reverse=True)
    latin = "|".join(re.escape(name) for name in names if name.isascii())
    others = "|".join(re.escape(name) for name in names if not name.isascii())
    return re.compile(rf"\b(?:{latin})s?\b"), re.compile(others)


#: What must be the same, by its name in the report, in the order it is looked at.
KEPT: dict[str, Callable[[str], object]] = {
    "numbers": numbers,
    "units": measures,
    "rates": rates,
    "order": order,
    "negation": negated,
    "drugs": drugs,
    "laterality": sides,
}

"""Bare names and answers on one page: an entry of a code list never stands above an answer to more than a name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from in_memory import folder_in_memory
from suwen.corpora.readers import read_documents
from suwen.corpora.records import Document
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import default_pair_path
from suwen.index.engine import StoredPassage
from suwen.retrieve.folding import is_name, says_less
from suwen.retrieve.retriever import Index

KINDS = ("", "急性", "慢性", "过敏性", "职业性", "儿童", "老年", "妊娠合并", "药物性", "继发性", "混合性", "难治性")
NAMES = [f"{kind}{name}" for name in ("哮喘", "惊厥", "贫血", "心房颤动", "高血压肾脏病") for kind in KINDS]
NAMES += [f"{name}, {kind}" for name in ("Asthma", "Gout", "Atrial fibrillation and atrial flutter") for kind in "ABCD"]
NAMES += [
    "发热性惊厥",
    "Atrial fibrillation and atrial flutter, unspecified",
    "缺铁性贫血",
    "Gout",
    "Asthma, unspecified",
]


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with folder_in_memory() as folder, Index.create(folder / "i", pair=default_pair_path()) as opened:
        listed = [Document(f"name-{number}", name) for number, name in enumerate(NAMES)]
        opened.add([*read_documents(sample_path()), *listed], encoder=opened.pair.encoder("static"))
        yield opened


def passage(index: Index, text: str) -> StoredPassage:
    with index.engine.snapshot() as snapshot:
        return snapshot.fetch(snapshot.lexical(text, 1).rows.tolist())[0]


@pytest.mark.parametrize(
    "query",
    [
        *("哮喘发作喷几下", "孩子发烧抽筋", "贫血吃铁剂黑便", "哮喘怎么办", "gout attack colchicine dose"),
        *("is aspirin enough for atrial fibrillation", "asthma attack what to do"),
    ],
)
def test_a_name_stands_below_an_answer_where_the_query_is_more_than_a_name(index: Index, query: str) -> None:
    found = index.search(query, 5, tier="static")
    assert not found[0].document_id.startswith("name-"), found[0].text
    assert [hit.id for hit in found] == [
        hit.id for page in range(5) for hit in index.search(query, 1, offset=page, tier="static")
    ]


@pytest.mark.parametrize("query", ["发热性惊厥", "高血压肾病", "Atrial fibrillation and atrial flutter, unspecified"])
def test_a_name_stands_where_it_was_found_where_a_name_is_asked_for(index: Index, query: str) -> None:
    assert index.search(query, 5, tier="static")[0].document_id.startswith("name-")


def test_names_have_no_sentence_in_them(index: Index) -> None:
    assert is_name(passage(index, "Atrial fibrillation and atrial flutter, unspecified"))
    assert is_name(passage(index, "发热性惊厥"))
    assert not is_name(passage(index, "colchicine flare dose"))
    assert says_less("哮喘发作喷几下")(passage(index, "职业性哮喘"))
    assert not says_less("职业哮喘")(passage(index, "职业性哮喘"))
    assert not says_less("哮喘发作喷几下")(passage(index, "colchicine flare dose")), "an answer, whatever it says"

"""Taking documents in: only what changed is encoded, what is gone is dropped, and nothing is lost on the way."""

from __future__ import annotations

import importlib
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_pair import Counting

from suwen.corpora.record_fields import to_document
from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors
from suwen.index import snapshot, vectors
from suwen.retrieve import ingest as module
from suwen.retrieve.ingest import IngestError, IngestReport, OneStep, TooManyPassages
from suwen.retrieve.retriever import Index


class Library:
    """An index, and an encoder that counts what it is given."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def mirror(self, documents: object, prune: bool = True, **options: object) -> tuple[IngestReport, list[str]]:
        counting = Counting(self.index.pair.encoder())
        report = self.index.add(documents, mirror=True, prune=prune, encoder=counting, **options)  # type: ignore[arg-type]
        assert report.encoded == len(counting.texts)
        return report, counting.texts

    def ids(self) -> list[str]:
        return list(self.index.ids())


@pytest.fixture
def library(empty: Index) -> Library:
    return Library(empty)


def three() -> list[Document]:
    return [Document(f"d{n}", f"文档{n}的第一句。" + "血压饮食。" * 30, f"题{n}", {"n": n}) for n in range(3)]


def test_a_second_run_encodes_nothing(library: Library) -> None:
    first, texts = library.mirror(three())
    assert (first.read, first.added, first.changed, first.unchanged, first.removed) == (3, 3, 0, 0, 0)
    assert first.passages == len(texts) == library.index.engine.stats().passages
    assert first.encoder == "static"
    second, texts = library.mirror(three())
    assert (second.read, second.added, second.changed, second.unchanged, second.encoded) == (3, 0, 0, 3, 0)
    assert texts == []


def test_only_changed_passages_are_encoded(library: Library) -> None:
    documents = three()
    library.mirror(documents, size=32, overlap=0)
    before = library.index.engine.stats().passages
    documents[1] = documents[1]._replace(text=documents[1].text + "新加的最后一句。")
    report, texts = library.mirror(documents, size=32, overlap=0)
    assert (report.changed, report.unchanged) == (1, 2)
    assert len(texts) == 1 and texts[0].endswith("新加的最后一句。")
    assert report.passages > 1
    assert library.index.engine.stats().passages in (before, before + 1)
    assert library.index.search("新加的最后一句", 1)[0].document_id == "d1"
    assert library.index.engine.verify() == []


def test_metadata_alone_needs_no_encoding(library: Library) -> None:
    documents = three()
    library.mirror(documents)
    documents[0] = documents[0]._replace(metadata={"n": 77})
    report, texts = library.mirror(documents)
    assert (report.changed, texts) == (1, [])
    assert {hit.document_id for hit in library.index.search("血压", 9, where={"n": 77})} == {"d0"}


def test_a_new_title_is_encoded(library: Library) -> None:
    documents = three()
    library.mirror(documents)
    documents[0] = documents[0]._replace(title="流感")
    report, texts = library.mirror(documents)
    assert report.changed == 1
    assert texts and all(text.startswith("流感\n") for text in texts)
    assert library.index.search("流感", 1)[0].document_id == "d0"


def test_what_is_gone_is_dropped_and_what_was_added_stays(library: Library) -> None:
    library.mirror(three())
    library.index.add([Document("mine", "手工添加的文档。")])
    report, _ = library.mirror(three()[:1])
    assert report.removed == 2
    assert library.ids() == ["d0", "mine"]
    assert {hit.document_id for hit in library.index.search("血压饮食文档", 50)} == {"d0", "mine"}


def test_more_gone_than_one_call_deletes(library: Library) -> None:
    library.mirror(Document(f"d{n}", f"编号{n}。") for n in range(2100))
    report, _ = library.mirror([Document("d7", "编号7。")])
    assert (report.removed, report.unchanged, library.ids()) == (2099, 1, ["d7"])


def test_other_passage_sizes_are_another_cut(library: Library) -> None:
    library.mirror(three(), size=64, overlap=8)
    few = library.index.engine.stats().passages
    report, _ = library.mirror(three(), size=16, overlap=0)
    assert (report.reencoded, report.changed) == (3, 0)
    assert library.index.engine.stats().passages > few
    again, texts = library.mirror(three())
    assert (again.unchanged, texts) == (3, []), "the sizes of the last run are remembered"


@pytest.mark.parametrize(("size", "overlap"), [(0, None), (7, 0), (-5, 0), (20, 20), (20, -1)])
def test_sizes_that_cannot_be(library: Library, size: int, overlap: int | None) -> None:
    with pytest.raises(IngestError, match="size is at least 8"):
        library.mirror(three(), size=size, overlap=overlap)


# -- duplicates -----------------------------------------------------------------------------------------------------


def twice() -> list[Document]:
    return [Document("a", "第一版。"), Document("b", "别的文档。"), Document("a", "第二版。"), Document("c", "最后。")]


def test_a_duplicate_is_an_error_and_what_came_before_it_is_stored(library: Library) -> None:
    with pytest.raises(IngestError, match=r"'a' comes twice.*--duplicates first\|last.*stored"):
        library.mirror(twice())
    assert library.ids() == ["a", "b"]


def test_records_without_ids_that_are_alike_are_named_by_their_text(library: Library) -> None:
    rows = [to_document({"内容": text}, "rows:1") for text in ("头痛。", "发热。", "头痛。")]
    with pytest.raises(IngestError, match=r"have the same text \(头痛。\): give them ids, or .*--duplicates"):
        library.mirror(rows)


@pytest.mark.parametrize(("keep", "text"), [("first", "第一版。"), ("last", "第二版。")])
def test_the_first_or_the_last_is_kept(library: Library, keep: str, text: str) -> None:
    report, _ = library.mirror(twice(), duplicates=keep)
    assert library.ids() == ["a", "b", "c"]
    (hit,) = (hit for hit in library.index.search("第一版第二版", 9, mode="dense") if hit.document_id == "a")
    assert hit.text == text
    assert report.removed == 0


# -- sources that fail ----------------------------------------------------------------------------------------------


def test_an_empty_source_drops_nothing(library: Library) -> None:
    library.mirror(three())
    with pytest.raises(IngestError, match="no documents: nothing was changed"):
        library.mirror([])
    assert len(library.ids()) == 3


def test_a_source_that_fails_midway_drops_nothing(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    library.mirror(three())
    monkeypatch.setattr(module, "_BATCH_PASSAGES", 1)

    def failing() -> Iterator[Document]:
        yield Document("new", "新文档。")
        raise OSError("the disk was pulled out")

    with pytest.raises(OSError, match="pulled out"):
        library.mirror(failing())
    assert library.ids() == ["d0", "d1", "d2", "new"]
    assert library.index.engine.verify() == []


def test_batches_begin_small_and_grow_where_encoding_is_quick(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first batch nobody knows how long an encoder takes: 4,096 passages of a transformer were minutes lost."""
    monkeypatch.setattr(module, "_BATCH_PASSAGES", 30)
    monkeypatch.setattr(module, "_ENCODE_AT_ONCE", 10)
    monkeypatch.setattr(module, "_BATCH_SECONDS", 600.0)
    engine, stored = library.index.engine, []
    plain = engine.add
    monkeypatch.setattr(engine, "add", lambda *given: (stored.append(len(given[0])), plain(*given))[1])
    library.mirror([Document(f"d{n:02}", f"编号{n}的文档。") for n in range(100)])
    assert stored == [10, 20, 30, 30, 10]


def test_an_interrupted_run_goes_on_where_it_was(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_PASSAGES", 10)
    documents = [Document(f"d{n:02}", f"编号{n}的文档。") for n in range(60)]

    def interrupted() -> Iterator[Document]:
        yield from documents[:35]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        library.mirror(interrupted())
    stored = len(library.ids())
    assert stored == 30
    report, texts = library.mirror(documents)
    assert (report.unchanged, report.added, len(texts)) == (30, 30, 30)
    assert len(library.ids()) == 60


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
def test_a_document_without_text_is_named(library: Library, text: str) -> None:
    with pytest.raises(IngestError, match="'hollow' has no text"):
        library.mirror([Document("hollow", text)])


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([{"id": "a", "text": "文。"}], r"a dict is no document: .*Document\(id, text"),
        (["文。"], "a str is no document"),
        (Document("a", "文。"), r"give a list: add\(\[document\]\)"),
        ([Document("a", "文。", metadata={"ward": {"floor": 3}})], "field 'ward' of document 'a' is a dict"),
        ([Document("a", "文。", metadata={"tags": ["x", ["y"]]})], "field 'tags' of document 'a' has a list in it"),
    ],
)
def test_what_is_no_document_is_told_so(library: Library, documents: Any, said: str) -> None:
    with pytest.raises(IngestError, match=said):
        library.index.add(documents)
    assert library.ids() == []


def test_one_id_is_one_id(library: Library) -> None:
    library.index.add([Document(id_, f"第{id_}条。") for id_ in ("1", "2", "12")])
    assert library.index.delete("12") == 1
    assert library.ids() == ["1", "2"]


def test_half_a_character_is_named(library: Library) -> None:
    with pytest.raises(IngestError, match="'half'"):
        library.mirror([Document("half", "坏字符\ud83d在这里")])
    assert library.ids() == []


def test_a_reader_cannot_take_documents_in(library: Library, pair: Pair) -> None:
    from suwen.index.engine import IndexProblem

    with Index.open(library.index.engine.folder, pair=pair) as reader, pytest.raises(IndexProblem, match="write=True"):
        reader.add(three())


def test_passages_of_many_documents_are_encoded_together(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Sizes(Counting):
        def encode_documents(self, texts: Sequence[str]) -> Vectors:
            sizes.append(len(texts))
            return super().encode_documents(texts)

    monkeypatch.setattr(module, "_ENCODE_AT_ONCE", 5)
    notes = [Document(f"n{n}", f"第{n}条短文") for n in range(12)]
    library.index.add(notes, encoder=Sizes(library.index.pair.encoder()))
    assert sizes == [5, 5, 2]
    assert [library.index.search(f"第{n}条短文", 1)[0].document_id for n in range(12)] == [note.id for note in notes]


def test_progress_is_told(library: Library) -> None:
    told: list[tuple[int, int]] = []
    library.mirror(three(), progress=lambda documents, passages: told.append((documents, passages)))
    assert told[-1] == (3, library.index.engine.stats().passages)
    assert told == sorted(told)


def test_memory_does_not_grow_with_the_collection(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve thousand documents; held together, they alone would be more than 6 MB."""
    monkeypatch.setattr(module, "_BATCH_PASSAGES", 500)
    # Loaded with the first scan, which a small collection may do without.
    importlib.import_module("faiss")
    # The searches of a small index score all of its vectors at once, by design.
    monkeypatch.setattr(snapshot, "EXACT_LIMIT", 0)
    monkeypatch.setattr(vectors, "RESCORED_BYTES", 0)
    monkeypatch.setattr(vectors, "SCORED_BYTES", 0)

    def peak(count: int) -> int:
        documents = (Document(f"d{n}", f"number {n} page", metadata={"n": n}) for n in range(count))
        with Index.create(tmp_path / str(count), pair=pair) as index:
            tracemalloc.start()
            try:
                index.add(documents, mirror=True)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    # As many as go to the vector files at once, and four times as many.
    small, large = peak(3_000), peak(12_000)
    assert large < small + 1_000_000, (small, large)


# -- one step ---------------------------------------------------------------------------------------------------------


def test_a_step_is_stored_whole_however_many_passages_it_has(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of thousands of passages used to be stored in parts, and an error on the way left the first ones."""
    monkeypatch.setattr(module, "_BATCH_PASSAGES", 2)
    monkeypatch.setattr(module, "_BATCH_SECONDS", 0.0)
    engine, calls = library.index.engine, []
    plain = engine.add
    monkeypatch.setattr(engine, "add", lambda *given: (calls.append(len(given[0])), plain(*given))[1])
    documents = [Document(f"n{n}", f"第{n}条记录。") for n in range(50)]
    with pytest.raises(IngestError, match="has no text"):
        library.index.add([*documents, Document("empty", " ")], step=OneStep(1000))
    assert (calls, library.ids()) == ([], [])
    with pytest.raises(IngestError, match="comes twice"):
        library.index.add([*documents, documents[0]], step=OneStep(1000))
    assert (calls, library.ids()) == ([], [])
    assert library.index.add(documents, step=OneStep(1000)).added == 50
    assert calls == [50]


def test_a_step_of_too_many_passages_encodes_nothing(library: Library) -> None:
    counting = Counting(library.index.pair.encoder())
    documents = [Document(f"n{n}", f"第{n}条记录。") for n in range(11)]
    with pytest.raises(TooManyPassages, match="more than 10 passages"):
        library.index.add(documents, encoder=counting, step=OneStep(10))
    assert (counting.texts, library.ids()) == ([], [])
    assert library.index.add(documents[:10], encoder=counting, step=OneStep(10)).added == 10


def test_a_step_remembers_what_it_did_in_the_same_transaction(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = library.index

    def remember(report: IngestReport) -> dict[str, str | int]:
        return {"done": f"{report.read} read, {report.added} added, {report.passages} passages"}

    index.add([Document("a", "甲。"), Document("b", "乙。")], step=OneStep(10, remember))
    assert index.engine.settings()["done"] == "2 read, 2 added, 2 passages"
    index.add([Document("a", "甲。")], step=OneStep(10, remember))
    assert index.engine.settings()["done"] == "1 read, 0 added, 0 passages"
    monkeypatch.setattr(type(index.engine), "_seal", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        index.add([Document("c", "丙。")], step=OneStep(10, remember))
    assert index.engine.settings()["done"] == "1 read, 0 added, 0 passages"
    assert library.ids() == ["a", "b"]


def test_an_index_that_one_tier_encoded_keeps_it(tiered: Pair, tmp_path: Path) -> None:
    with Index.create(tmp_path / "index", pair=tiered) as index:
        index.add(three(), encoder=tiered.encoder("rough"))
        assert index.add([Document("new", "新的一条。")]).encoder == "rough"
        assert index.choose_encoder().name == "rough"


def test_what_the_pair_chose_is_not_kept_as_asked(library: Library) -> None:
    """Or the document encoder would never take over from the tier that stood in for it."""
    library.mirror(three())
    assert module.kept_tier(library.index.engine, library.index.pair) is None


def test_too_many_gone_are_left_and_said(library: Library) -> None:
    library.mirror(three())
    for options in ({}, {"prune": False}):
        # As on the command line, nothing is removed unasked.
        with pytest.raises(module.TooManyGone, match=r"documents: 1\).* with --prune, or say prune=True"):
            library.index.add(three()[1:], mirror=True, **options)
        assert library.ids() == ["d0", "d1", "d2"]
    assert library.mirror(three()[1:])[0].removed == 1

"""read_documents on every kind of source a user may have."""

import gzip
import json
import tracemalloc
from itertools import islice

import pyarrow
import pytest
from pyarrow import parquet

from suwen.corpora.files import CorpusError
from suwen.corpora.readers import read_documents
from suwen.corpora.records import Document

NUMBERS = range(1, 13)


def document(number, **metadata):
    return Document(f"d{number}", f"第{number}条，头痛。", f"题{number}", metadata)


def write_lines(path, records):
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
    return path


def raw(number, id_field="id"):
    return {id_field: f"d{number}", "title": f"题{number}", "text": f"第{number}条，头痛。\u200b"}


def check(found, **metadata):
    found = list(found)
    assert len(found) == 12
    assert (found[0], found[8], found[-1]) == tuple(document(number, **metadata) for number in (1, 9, 12))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.ndjson"])
def test_json_lines(tmp_path, name):
    check(read_documents(write_lines(tmp_path / name, map(raw, NUMBERS))))


def test_json_array_and_a_path_as_a_string(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([raw(number) for number in NUMBERS]), encoding="utf-8")
    check(read_documents(str(path)))


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_csv_and_tsv(tmp_path, suffix, delimiter):
    lines = [["id", "title", "text", "科"], *([*raw(number).values(), "内"] for number in NUMBERS)]
    (tmp_path / f"a.{suffix}").write_text("\ufeff" + "\n".join(map(delimiter.join, lines)), encoding="utf-8")
    check(read_documents(tmp_path / f"a.{suffix}"), 科="内")


def test_parquet(tmp_path):
    parquet.write_table(pyarrow.Table.from_pylist([raw(number) for number in NUMBERS]), tmp_path / "a.parquet")
    check(read_documents(tmp_path / "a.parquet"))


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_beir_folder_gives_its_corpus_only(tmp_path, name):
    write_lines(tmp_path / name, ({**raw(number, "_id"), "metadata": {"n": 1}} for number in NUMBERS))
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q", "text": "问"}])
    check(read_documents(tmp_path), n=1)
    check(read_documents(tmp_path, format="collection"), n=1)


def test_c_mteb_shards(tmp_path):
    (tmp_path / "data").mkdir()
    for shard, numbers in enumerate((NUMBERS[:6], NUMBERS[6:])):
        table = pyarrow.Table.from_pylist([raw(number) for number in numbers])
        parquet.write_table(table, tmp_path / "data" / f"corpus-0000{shard}-of-00002-ab.parquet")
    check(read_documents(tmp_path))


def test_a_folder_of_tables_is_read_in_order(tmp_path):
    write_lines(tmp_path / "b.jsonl", map(raw, NUMBERS[6:]))
    write_lines(tmp_path / "a.jsonl.gz", map(raw, NUMBERS[:6]))
    (tmp_path / "README.md").write_text("about", encoding="utf-8")
    (tmp_path / "settings.json").write_text("{}", encoding="utf-8")
    check(read_documents(tmp_path))
    check(read_documents(tmp_path, format="jsonl"))


def test_a_folder_of_texts_and_a_single_text(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.md").write_text("# 高血压\n\n血压高。", encoding="utf-8")
    (tmp_path / "a.txt").write_text("头痛。", encoding="utf-8")
    (tmp_path / "photo.png").write_bytes(b"\0")
    expected = [
        Document("a.txt", "头痛。", "a", {"path": "a.txt"}),
        Document("b/x.md", "# 高血压\n\n血压高。", "高血压", {"path": "b/x.md"}),
    ]
    assert list(read_documents(tmp_path)) == expected
    assert list(read_documents(tmp_path / "a.txt")) == expected[:1]


def test_tables_and_texts_together_need_a_word(tmp_path):
    write_lines(tmp_path / "a.jsonl", map(raw, NUMBERS))
    (tmp_path / "b.txt").write_text("头痛。", encoding="utf-8")
    with pytest.raises(CorpusError, match="--format jsonl or --format text"):
        read_documents(tmp_path)
    check(read_documents(tmp_path, format="jsonl"))
    assert [found.id for found in read_documents(tmp_path, format="text")] == ["b.txt"]


def test_format_and_fields_can_be_named(tmp_path):
    path = write_lines(tmp_path / "dump", [{"key": 1, "abstract": "甲", "head": "乙"}])
    fields = {"id_field": "key", "text_field": "abstract", "title_field": "head"}
    assert list(read_documents(path, format="jsonl", **fields)) == [Document("1", "甲", "乙", {})]


def test_gb18030_when_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("id,text\n1,患者头痛\n".encode("gb18030"))
    with pytest.raises(CorpusError, match=r"a\.csv:2: .*GB18030"):
        list(read_documents(path, encoding="utf-8"))
    assert [found.text for found in read_documents(path, encoding="gb18030")] == ["患者头痛"]


def test_each_file_has_its_own_encoding(tmp_path):
    texts = {"a.txt": "utf-8", "b.txt": "gb18030", "c.txt": "utf-16", "d.txt": "utf-8-sig", "e.txt": "utf-32"}
    for name, encoding in texts.items():
        (tmp_path / name).write_bytes("患者头痛三天，伴有发热。".encode(encoding))
    assert [found.text for found in read_documents(tmp_path)] == ["患者头痛三天，伴有发热。"] * 5


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("高血壓患者應定期測量血壓並按時服藥，避免過度勞累", "big5"),
        ("腎結石", "big5"),
        ("頭痛が三日間続いています", "shift_jis"),
        ("頭痛が三日間続いています", "euc_jp"),
        ("un café très noir", "latin-1"),
    ],
)
def test_other_encodings_are_refused_and_never_read_as_chinese(tmp_path, text, encoding):
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    with pytest.raises(CorpusError, match="--encoding"):
        list(read_documents(tmp_path))
    assert [found.text for found in read_documents(tmp_path, encoding=encoding)] == [text]


def test_damaged_utf_8_is_not_taken_for_another_encoding(tmp_path):
    """GB18030 would read it without complaint, as other characters."""
    for text in ("患者头痛三天，伴有发热。", "绝对卧床休息，忌食辛辣，按时服药并定期复查血压"):
        for place in range(0, len(text.encode()), 5):
            whole = text.encode()
            (tmp_path / "a.txt").write_bytes(whole[:place] + b"\xff" + whole[place:])
            with pytest.raises(CorpusError, match="not utf-8 text"):
                list(read_documents(tmp_path))


def test_excels_own_first_line_says_what_parts_the_columns(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("\ufeffsep=;\r\nid;text\r\n1;低盐,少油\r\n2;\r\n", encoding="utf-8")
    told = []
    (document,) = read_documents(table, on_skip=told.append)
    assert document[:2] == ("1", "低盐,少油")
    assert len(told) == 1 and told[0].startswith(f"{table}:4: ")


@pytest.mark.parametrize(("name", "sign"), [*(("a.csv", sign) for sign in ";\t,|"), ("a.tsv", "\t")])
def test_columns_are_parted_by_what_the_header_shows(tmp_path, name, sign):
    rows = (("编号", "标题", "内容", "科室"), ("7", "头痛", "头痛三天, 发热; 无皮疹", "神经内科"))
    (tmp_path / name).write_text("".join(sign.join(f'"{cell}"' for cell in row) + "\n" for row in rows), "utf-8")
    (found,) = read_documents(tmp_path / name)
    assert found == Document("7", "头痛三天, 发热; 无皮疹", "头痛", {"科室": "神经内科"})


def test_the_files_of_a_folder_that_are_no_documents_are_told(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("a.txt", "b.rtf", "deep/c.doc", "deep/d.md", ".hidden"):
        (tmp_path / name).write_text("头痛。", "utf-8")
    told = []
    assert [found.id for found in read_documents(tmp_path, on_left_out=told.extend)] == ["a.txt", "deep/d.md"]
    assert [path.name for path in told] == ["b.rtf", "c.doc"]
    told.clear()
    list(read_documents(tmp_path / "a.txt", on_left_out=told.extend))
    assert told == []


def test_the_other_files_of_a_collection_are_not_left_out(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "头痛"}\n', "utf-8")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "头痛"}\n', "utf-8")
    told = []
    assert len(list(read_documents(tmp_path, on_left_out=told.extend))) == 1
    assert told == []


def test_bad_records_stop_the_reading_or_are_skipped_with_their_reasons(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": 1, "text": "甲"}\n{"id": 2}\n{bad}\n{"id": 4, "text": ""}\n{"id": 5, "text": "戊"}\n{"id', "utf-8"
    )
    reading = read_documents(path)
    assert next(reading).id == "1"
    with pytest.raises(CorpusError, match=r"a\.jsonl:2: .*fields here are: id; set --text-field"):
        next(reading)
    reasons = []
    assert [found.id for found in read_documents(path, on_skip=reasons.append)] == ["1", "5"]
    assert [reason.split(":")[1] for reason in reasons] == ["2", "3", "4", "6"]
    assert "cut off" in reasons[-1]
    assert [found.id for found in read_documents(path, on_skip=[].append)] == ["1", "5"]


def test_a_bad_file_among_texts_can_be_skipped(tmp_path):
    (tmp_path / "a.txt").write_bytes("患者頭痛三日不癒".encode("big5"))
    (tmp_path / "b.txt").write_text("头痛。", encoding="utf-8")
    reasons = []
    assert [found.id for found in read_documents(tmp_path, on_skip=reasons.append)] == ["b.txt"]
    assert len(reasons) == 1 and "give --encoding" in reasons[0]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"\n \n", "holds no records"),
        ("a.csv", b"id,text\n", "holds no records"),
        ("a.json", b"[]", "holds no records"),
        ("a.txt", b"\n", "no text"),
        ("a.jsonl", b"%PDF-1.4", "PDF"),
        ("a.jsonl", gzip.compress(b"{}", mtime=0), "gzip"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "x"}\n' * 99, mtime=0)[:-9], "cut off"),
    ],
)
def test_bad_files(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=said) as caught:
        list(read_documents(tmp_path / name))
    assert name in str(caught.value)


def test_a_damaged_file_is_not_skipped_in_silence(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 99, mtime=0)[:-9])
    with pytest.raises(CorpusError, match="cut off"):
        list(read_documents(tmp_path / "a.jsonl.gz", on_skip=[].append))


def test_sources_that_cannot_be_are_refused_at_once(tmp_path):
    with pytest.raises(CorpusError, match="no such file or folder"):
        read_documents(tmp_path / "none")
    with pytest.raises(CorpusError, match="no files this can read"):
        read_documents(tmp_path)
    with pytest.raises(CorpusError, match="no csv files here"):
        read_documents(tmp_path, format="csv")
    with pytest.raises(CorpusError, match="no collection here"):
        read_documents(tmp_path, format="collection")
    with pytest.raises(CorpusError, match="no format 'xml'; use one of collection, jsonl"):
        read_documents(tmp_path, format="xml")
    (tmp_path / "a.xyz").write_text("x", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"\.xyz files are not read; save its text as \.txt.*--format jsonl"):
        read_documents(tmp_path / "a.xyz")
    (tmp_path / "plain").write_text("x", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"plain: its name does not say what it is; .*--format"):
        read_documents(tmp_path / "plain")


def test_memory_stays_small_over_many_documents(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        for number in range(100_000):
            file.write(f'{{"id": {number}, "text": "头痛发热三天，{number}", "year": 2020}}\n')
    reading = read_documents(path)
    tracemalloc.start()
    try:
        assert sum(1 for _ in islice(reading, 10_000)) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert sum(1 for _ in reading) == 90_000

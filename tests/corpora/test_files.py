"""What is wrong with a file is said with its name, the line and the way out."""

import gzip

import pytest

from suwen.corpora.files import CorpusError, open_text, read_text


def test_a_byte_order_mark_is_dropped_and_line_ends_are_kept(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf\xe7\x97\x9b\r\nb")
    assert read_text(path) == "痛\r\nb"


def test_a_gz_name_is_unpacked(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("头痛".encode(), mtime=0))
    assert read_text(path) == "头痛"


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "GBK"])
def test_other_encodings_are_read_when_named(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes("第一行\n第二行头痛".encode(encoding))
    assert read_text(path, encoding) == "第一行\n第二行头痛"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_gb18030_is_recognised_with_its_line(tmp_path, pack):
    path = tmp_path / ("a.txt.gz" if pack is gzip.compress else "a.txt")
    path.write_bytes(pack(b"plain\nascii\n" + "患者头痛三天\n".encode("gb18030")))
    with pytest.raises(CorpusError) as caught:
        read_text(path)
    message = str(caught.value)
    assert f"{path}:3" in message and "GB18030" in message
    assert "iconv -f GB18030 -t UTF-8" in message and "--encoding gb18030" in message


def test_latin_1_is_not_taken_for_chinese(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("un café très noir\n".encode("latin-1"))
    with pytest.raises(CorpusError, match=r"a.txt:1: not utf-8 text .*give --encoding") as caught:
        read_text(path)
    assert "GB18030" not in str(caught.value)


def test_utf_16_is_recognised_by_its_mark(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("头痛".encode("utf-16"))
    with pytest.raises(CorpusError, match="looks like UTF-16"):
        read_text(path)


def test_half_a_character_at_the_end_means_cut_off(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("第一行\n头痛".encode()[:-1])
    with pytest.raises(CorpusError, match=r"a.txt:2: .*the file looks cut off"):
        read_text(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"%PDF-1.7 x", "PDF"),
        (b"PK\x03\x04rest", "zip"),
        (b"PAR1rest", "parquet"),
        (gzip.compress(b"text", mtime=0), r"ends in \.gz"),
        (b"abc\0def", "NUL"),
    ],
)
def test_what_is_not_text_is_named(tmp_path, content, said):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=rf"a\.txt: .*{said}"):
        read_text(path)


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("gb18030", "looks like GB18030.*--encoding gb18030"), ("big5", "looks like BIG5.*--encoding big5")],
)
def test_the_encoding_that_is_proposed_is_the_right_one(tmp_path, encoding, said):
    path = tmp_path / "a.txt"
    text = {"big5": "高血壓患者應定期測量血壓，並按時服藥。", "gb18030": "高血压患者应定期测量血压，并按时服药。"}
    path.write_bytes(text[encoding].encode(encoding))
    with pytest.raises(CorpusError, match=said):
        read_text(path)


def test_no_encoding_is_proposed_for_what_is_neither(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("薬を飲んでください。血圧を測ります。".encode("shift-jis"))
    with pytest.raises(CorpusError, match="find out its encoding"):
        read_text(path)


def test_a_half_written_gz_names_the_line(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    packed = gzip.compress(b"".join(b"%064d\n" % (number * 7919**9) for number in range(5000)))
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(CorpusError, match=r"a\.jsonl\.gz:\d\d+: the file looks cut off"):
        read_text(path)


def test_a_gz_that_is_none_is_named(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"{}")
    with pytest.raises(CorpusError, match=r"named \.gz but not gzip"):
        read_text(path)


def test_missing_files_folders_and_unknown_encodings(tmp_path):
    with pytest.raises(CorpusError, match=r"none\.txt: there is no such file or folder; check the path"):
        read_text(tmp_path / "none.txt")
    (tmp_path / "names.txt").write_text("x", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"nmaes\.txt: there is no such file .* did you mean .*/names\.txt\?"):
        read_text(tmp_path / "nmaes.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "gone.txt")
    with pytest.raises(CorpusError, match=r"link\.txt: the link leads to .*gone\.txt, and there is nothing"):
        read_text(tmp_path / "link.txt")
    with pytest.raises(CorpusError, match="cannot be read"):
        read_text(tmp_path)
    with pytest.raises(CorpusError, match="no encoding 'klingon'"), open_text(tmp_path / "x", "klingon"):
        pass

"""XML records: whole, outermost, in little memory."""

import gzip
import tracemalloc

import pytest

from suwen.corpora.files import CorpusError
from suwen.corpora.xml_files import xml_elements

DRUGS = "<a:db xmlns:a='urn:x'><a:drug><a:name>A</a:name><a:drugs><a:drug/></a:drugs></a:drug>\n<a:drug/></a:db>"


def test_the_outermost_of_a_name_whatever_their_namespace(tmp_path):
    path = tmp_path / "d.xml.gz"
    path.write_bytes(gzip.compress(DRUGS.encode()))
    found = [(place, node.findtext("{*}name"), len(node)) for place, node in xml_elements(path, "drug")]
    assert found == [(f"{path}: drug 1", "A", 2), (f"{path}: drug 2", None, 0)]
    assert list(xml_elements(path, "nothing")) == []


def test_what_is_not_whole_is_refused_after_what_was(tmp_path):
    path = tmp_path / "d.xml"
    path.write_text(DRUGS[: DRUGS.index("\n") + 5], encoding="utf-8")
    reading = xml_elements(path, "drug")
    assert next(reading)[1].findtext("{*}name") == "A"
    with pytest.raises(CorpusError, match=r"not whole XML .*get it again"):
        next(reading)
    path.write_bytes(b"PK\x03\x04zip")
    with pytest.raises(CorpusError, match="unpack it"):
        next(xml_elements(path, "drug"))


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "d.xml"
    with path.open("w", encoding="utf-8") as file:
        file.write("<db>")
        for number in range(20_000):
            file.write(f"<drug><id>{number}</id><text>{'against pain ' * 20}</text></drug>\n")
        file.write("</db>")
    tracemalloc.start()
    try:
        assert sum(int(node.findtext("id")) for _, node in xml_elements(path, "drug")) == sum(range(20_000))
        assert tracemalloc.get_traced_memory()[1] < 1_500_000 < path.stat().st_size
    finally:
        tracemalloc.stop()

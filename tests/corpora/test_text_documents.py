"""Text files as documents."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from suwen.corpora.files import BadRecord
from suwen.corpora.text_documents import files_under, read_text_document, text_files


def test_files_are_found_in_order_and_hidden_or_unknown_ones_are_not(tmp_path):
    for name in ("b.txt", "a/z.md", "a-b.txt", "a/.hidden.md", ".git/c.txt", "d.xyz", "e.MARKDOWN"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x", encoding="utf-8")
    assert [path.relative_to(tmp_path).as_posix() for path in text_files(tmp_path)] == [
        "a-b.txt",
        "a/z.md",
        "b.txt",
        "e.MARKDOWN",
    ]


def test_a_pipe_is_not_waited_for_and_a_linked_folder_is_not_passed_over(tmp_path):
    folder, elsewhere = tmp_path / "texts", tmp_path / "elsewhere"
    for place in (folder, elsewhere):
        place.mkdir()
    (elsewhere / "a.txt").write_text("x", encoding="utf-8")
    (folder / "linked").symlink_to(elsewhere)
    (folder / "broken.txt").symlink_to("nothing.txt")
    os.mkfifo(folder / "pipe.txt")
    assert [path.name for path in files_under(folder)] == ["broken.txt", "linked", "pipe.txt"]
    assert [path.name for path in text_files(folder)] == ["broken.txt"]


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("病.md", "前言\n\n## 高血压 ##\n# 二", "高血压"),
        ("病.md", "#不是标题", "病"),
        ("病.txt", "# 高血压", "病"),
        ("病.markdown", "# \n正文", "病"),
    ],
)
def test_titles(tmp_path, name, text, title):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_text_document(tmp_path / name, tmp_path).title == title


def test_id_path_and_text(tmp_path):
    path = tmp_path / "内科" / "高血压.txt"
    path.parent.mkdir()
    path.write_text("\ufeff血压高。\r\n", encoding="utf-8")
    document = read_text_document(path, tmp_path)
    assert document == ("内科/高血压.txt", "血压高。", "高血压", {"path": "内科/高血压.txt"})


@pytest.mark.parametrize(("content", "said"), [(b"", "empty"), (b" \n", "no text"), (b"%PDF-1", "PDF")])
def test_bad_files_are_bad_records(tmp_path, content, said):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(BadRecord, match=said):
        read_text_document(path, tmp_path)


#: Reads once as it is, so that nothing need be imported by somebody who may not look into Python's own folder.
_AS_NOBODY = """
import json, os, sys
from pathlib import Path
from suwen.corpora.readers import read_documents

folder, left_out, unread = Path(sys.argv[1]), [], []
list(read_documents(folder / "open"))
if os.geteuid() == 0:  # whom no folder is closed to
    os.seteuid(65534)
read = [one.id for one in read_documents(folder, on_left_out=left_out.extend, on_unread=unread.append)]
print(json.dumps([read, [path.name for path in left_out], unread]))
"""


def test_a_folder_that_may_not_be_looked_into_is_not_empty():
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in ("open", "closed"):
            (folder / name).mkdir()
            (folder / name / "b.md").write_text("多饮水。", encoding="gb18030")
        folder.chmod(0o755)
        (folder / "closed").chmod(0)
        command = [sys.executable, "-c", _AS_NOBODY, str(folder)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (folder / "closed").chmod(0o755)
    assert json.loads(told) == [["open/b.md"], ["closed"], ["closed"]]

"""The pages as they are put together and sent; what a browser makes of them is in tests/real/page/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suwen.jury.records import JuryProblem
from suwen.service import web_pages
from suwen.service.holder import Holder
from suwen.service.serve_settings import ServeSettings
from suwen.service.web_pages import File, web_files


def test_a_mark_changes_with_the_file_alone():
    one, same, other = (File.of("a.js", body) for body in (b"1", b"1", b"2"))
    assert one == same and one.mark != other.mark and re.fullmatch(r'"[0-9a-f]{32}"', one.mark)


def test_every_file_a_page_or_a_module_names_is_there():
    files = web_files()
    for name, file in files.items():
        text = file.body.decode()
        named = {*re.findall(r'(?:src|href)="/web/([\w.]+)"', text), *re.findall(r'from "\./([\w.]+)"', text)}
        assert named <= set(files), name
    assert {main for main, _ in web_pages._PAGES.values()} | {script for _, script in web_pages._PAGES.values()} <= set(
        files
    )


def test_a_page_has_its_frame_its_middle_and_its_script():
    files = web_files()
    for main, script in web_pages._PAGES.values():
        body = web_pages._page(files["frame.html"], files[main], script).body.decode()
        assert body.count("<main ") == 1 and f'src="/web/{script}"' in body and "{{" not in body


def test_a_jury_without_a_sample_is_said_at_the_start(tmp_path: Path):
    holder = Holder(ServeSettings(index=tmp_path / "index", reviews=tmp_path / "work"))
    with pytest.raises(JuryProblem, match="suwen jury review sample"):
        web_pages.routes(holder)

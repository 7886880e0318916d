"""Forms of PDF files: what is filled in stands beside its label, and files without a form cost nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fpdf import FPDF

from suwen.corpora.files import CorpusError
from suwen.corpora.pdf_pages import open_pdf, read_pdf_page
from suwen.corpora.readers import read_documents

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import form_pdf, pdf

REFERRAL = [
    (60, 780, "Referral to cardiology"),
    (60, 740, "Name of the patient:"),
    (60, 710, "Ward:"),
    (320, 710, "Urgency:"),
    (60, 680, "Smoker"),
    (140, 680, "yes"),
    (190, 680, "no"),
    (60, 650, "Reason for the referral:"),
    (60, 520, "Signed by the ward. Keep this sheet with the record of the patient."),
]


def text(value):
    return f"/FT/Tx/V<{(chr(0xFEFF) + value).encode('utf-16-be').hex()}>"


def tick(on):
    state = "/Yes" if on else "/Off"
    return f"/FT/Btn/V{state}/AS{state}/AP<</N<</Yes 5 0 R/Off 5 0 R>>>>"


FILLED = [
    ("170 735 400 755", text("Li Wei 李伟")),
    ("100 705 280 725", "/FT/Ch/Ff 131072/Opt[[(w2)(Ward 2 East)][(w3)(Ward 3 West)]]/V(w3)"),
    ("380 705 500 725", text("within two days")),
    ("122 678 134 690", tick(True)),
    ("172 678 184 690", tick(False)),
    ("60 540 500 640", "/Ff 4096" + text("Chest pain at rest since Monday, 7 on a scale of 10.\rTroponin T 45 ng/L.")),
]


def test_what_is_filled_in_stands_beside_its_label(tmp_path):
    (page,) = read_documents(form_pdf(tmp_path / "a.pdf", REFERRAL, FILLED))
    assert "\nName of the patient: Li Wei 李伟\n" in page.text
    assert "Ward: Ward 3 West Urgency: within two days Smoker ☑ yes ☐ no" in page.text
    reason = page.text[page.text.index("Reason for") : page.text.index("Signed by")]
    said = "Reason for the referral: Chest pain at rest since Monday, 7 on a scale of 10. Troponin T 45 ng/L."
    assert " ".join(reason.split()) == said


def test_an_empty_form_reads_as_the_page_does(tmp_path):
    empty = [(box, "/FT/Tx") for box, about in FILLED if "/FT/Tx" in about]
    (filled,) = read_documents(form_pdf(tmp_path / "a.pdf", REFERRAL, empty))
    (plain,) = read_documents(form_pdf(tmp_path / "b.pdf", REFERRAL, []))
    assert filled.text == plain.text


def test_what_is_not_shown_is_not_read(tmp_path):
    fields = [
        ("170 735 400 755", "/Ff 8192" + text("hunter2")),
        ("100 705 280 725", text("hidden") + "/F 2"),
        ("380 705 500 725", "/FT/Btn/Ff 65536/V(Send)"),
        ("380 605 500 625", "/FT/Sig"),
        ("-90 -50 -10 -30", text("beside the page")),
        ("100 600 100 600", text("in no box")),
    ]
    (page,) = read_documents(form_pdf(tmp_path / "a.pdf", REFERRAL, fields))
    assert not any(said in page.text for said in ("hunter2", "hidden", "Send", "beside", "in no box"))


def test_a_box_whose_corners_come_the_other_way_round(tmp_path):
    (page,) = read_documents(form_pdf(tmp_path / "a.pdf", [(60, 740, "Name:")], [("400 755 110 735", text("Li Wei"))]))
    assert page.text == "Name: Li Wei"


def test_a_box_before_its_label_stands_before_it(tmp_path):
    fields = [("64 738 76 750", tick(True)), ("184 738 196 750", tick(False))]
    (page,) = read_documents(form_pdf(tmp_path / "a.pdf", [(80, 740, "smoking"), (200, 740, "gout")], fields))
    assert page.text == "☑ smoking ☐ gout"


def test_several_choices_are_all_read(tmp_path):
    several = [("170 700 400 755", "/FT/Ch/Ff 2097152/Opt[(aspirin)(heparin)(warfarin)]/V[(aspirin)(warfarin)]")]
    (page,) = read_documents(form_pdf(tmp_path / "a.pdf", [(60, 740, "Drugs taken:")], several))
    assert page.text.split() == ["Drugs", "taken:", "aspirin", "warfarin"]


def test_a_value_that_the_page_shows_itself_is_read_once(tmp_path):
    texts = [(60, 740, "Name:"), (172, 740, "Li Wei")]
    (page,) = read_documents(form_pdf(tmp_path / "a.pdf", texts, [("170 735 400 755", text("Li Wei"))]))
    assert page.text.count("Li Wei") == 1


@pytest.mark.parametrize("rotate", [90, 180, 270])
def test_a_form_on_its_side(tmp_path, rotate):
    turn = {90: "0 1 -1 0", 180: "-1 0 0 -1", 270: "0 -1 1 0"}[rotate]
    start = {90: "100 60", 180: "500 700", 270: "100 700"}[rotate]
    at = {90: "88 170 108 400", 180: "160 692 390 712", 270: "92 360 112 590"}[rotate]
    stream = f"BT /F 11 Tf {turn} {start} Tm (Name of the patient:) Tj ET".encode()
    (page,) = read_documents(form_pdf(tmp_path / "a.pdf", [], [(at, text("Li Wei"))], rotate=rotate, stream=stream))
    assert page.text == "Name of the patient: Li Wei"


def test_a_file_without_a_form_makes_no_form(tmp_path):
    document = open_pdf(pdf(tmp_path / "a.pdf", [[(60, 100, "The dose is raised every second week.")]]))
    assert document.formenv is None and read_pdf_page(document, 1).words


def typed(path, *, hidden=False, form=False):
    """A page with what somebody typed onto it in a viewer, a note that is folded up and a link."""
    made = FPDF(unit="pt", format=(595, 842))
    made.add_page()
    made.set_font("Times", size=11)
    for top, text in [(100, "Name of the patient:"), (130, "Allergies:"), (300, "Signed by the ward.")]:
        made.text(60, top, text)
    made.set_font("Helvetica", size=11)
    flags = ("PRINT", "HIDDEN") if hidden else ("PRINT",)
    made.free_text_annotation("Li Wei", x=170, y=88, w=200, h=16, flags=flags)
    made.free_text_annotation("Penicillin, rash in 2019.\nNo others known.", x=120, y=120, w=300, h=30, flags=flags)
    made.text_annotation(60, 400, "A comment of a reader")
    made.link(60, 88, 100, 16, "https://example.org")
    made.output(str(path))
    return path


def test_what_is_typed_onto_a_page_is_read_where_it_stands(tmp_path):
    (page,) = read_documents(typed(tmp_path / "a.pdf"))
    assert page.text.startswith("Name of the patient: Li Wei")
    said = "Name of the patient: Li Wei Allergies: Penicillin, rash in 2019. No others known. Signed by the ward."
    assert " ".join(page.text.split()) == said


def test_what_is_typed_and_hidden_is_not_read(tmp_path):
    (page,) = read_documents(typed(tmp_path / "a.pdf", hidden=True))
    assert " ".join(page.text.split()) == "Name of the patient: Allergies: Signed by the ward."


def test_a_form_in_xfa_alone_is_told(tmp_path):
    wait = [(60, 740, "Please wait... If this message is not replaced, your viewer may not show this document.")]
    path = form_pdf(tmp_path / "a.pdf", wait, [("0 0 1 1", "")], catalogue="/NeedsRendering true")
    with pytest.raises(CorpusError, match=r"a\.pdf: the PDF is a form in XFA, which is not read; .*print"):
        list(read_documents(path))

"""The sample lies in the package."""

from pathlib import Path

import suwen
from suwen.corpora.sample_collection import sample_path


def test_the_sample_is_part_of_the_package():
    assert sample_path() == Path(suwen.__file__).parent / "sample"

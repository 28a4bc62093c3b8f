"""A small, fixed budget of fuzzing; `make fuzz` takes a longer one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.damages import contents
from fuzz.readers import READERS, outcome


@pytest.mark.parametrize("name", READERS)
def test_the_good_file_is_read(name, tmp_path):
    file = READERS[name].write(tmp_path)
    assert outcome(READERS[name], file, file.read_bytes()) == "read"


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(name):
    with tempfile.TemporaryDirectory() as folder:
        file = READERS[name].write(Path(folder))
        good = file.read_bytes()

        @settings(max_examples=40, suppress_health_check=list(HealthCheck))
        @given(st.data())
        def check(data):
            outcome(READERS[name], file, data.draw(contents(good)))

        check()

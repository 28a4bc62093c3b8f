"""A heat map is warm where it should be, and stands beside the class it is of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sebra.showing.report import report_html
from sebra.showing.thumbnails import SIDE, heated

from .conftest import make_run


def test_the_picture_stays_grey_where_the_map_is_cold():
    heat = np.zeros((6, 6))
    heat[:2, :2] = 1
    out = np.asarray(heated(heat, np.full((48, 48, 3), 128, dtype=np.uint8))).astype(int)
    assert out.shape == (SIDE, SIDE, 3)
    cold, warm = out[-20:, -20:], out[10:30, 10:30]
    assert np.ptp(cold, axis=2).max() <= 2
    assert np.ptp(warm, axis=2).min() > 40


def test_both_ends_of_a_class_have_their_map():
    run = make_run(classes=("boat", "<img src=x>"))
    picture = heated(np.eye(4), np.zeros((8, 8, 3), dtype=np.uint8))
    page = report_html(replace(run, heatmaps={"rank": {"<img src=x>": picture}}))
    assert page.count('class="heatmap"') == 1
    assert "most spurious images of &lt;img src=x&gt; differ" in page

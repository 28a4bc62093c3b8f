"""Figures of pictures are what their names say, picture by picture."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sebra.loading.descriptors import FIGURES, PLACES, columns_of, describe, described
from sebra.loading.inputs import Inputs
from sebra.samples.table import ImageArray


@pytest.fixture
def pictures() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (6, 30, 30, 3), dtype=np.uint8)


def figures(pictures: np.ndarray) -> list[dict[str, float]]:
    found = describe(torch.from_numpy(pictures).permute(0, 3, 1, 2))
    return [dict(zip(FIGURES, row.tolist(), strict=True)) for row in found]


def luma(pixel: np.ndarray) -> float:
    return float(0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]) / 255


def test_figures_are_those_of_plain_loops(pictures: np.ndarray) -> None:
    for picture, found in zip(pictures, figures(pictures), strict=True):
        tones = [luma(picture[i, j]) for i in range(30) for j in range(30)]
        assert found["light: mean"] == pytest.approx(np.mean(tones), abs=1e-5)
        assert found["light: tone at 25%"] == pytest.approx(sorted(tones)[225], abs=1e-5)
        steps = [
            luma(picture[i, j + 2]) - luma(picture[i, j]) for i in range(30) for j in range(28)
        ]
        power = math.sqrt(np.mean(np.square(steps)))
        assert found["sharpness: edges across at 2 px"] == pytest.approx(
            math.log(power + 1e-4), abs=1e-4
        )
        red, green = (float(picture[:, :, c].mean()) / 255 for c in (0, 1))
        assert found["colour: mean, red to green"] == pytest.approx(
            math.log((red + 1e-4) / (green + 1e-4)), abs=1e-4
        )
        corner = [picture[i, j, 2] / 255 for i in range(24, 30) for j in range(6)]
        assert found["bottom left: blue"] == pytest.approx(np.mean(corner), abs=1e-5)
        edge = [picture[i, 0, 0] / 255 for i in range(1, 29)]
        assert found["border: left edge, red"] == pytest.approx(np.mean(edge), abs=1e-5)


@pytest.mark.parametrize(
    ("change", "name", "view"),
    [
        (lambda p: p * np.array([1.0, 1.0, 0.5]), "colour: edges, blue to green", "colour"),
        (lambda p: p * 0.5, "light: tone at 95%", "light"),
        (lambda p: np.kron(p[:, ::2, ::2], np.ones((1, 2, 2, 1))), None, "sharpness"),
    ],
)
def test_a_nuisance_moves_its_view(pictures: np.ndarray, change, name, view) -> None:  # type: ignore[no-untyped-def]
    before = describe(torch.from_numpy(pictures).permute(0, 3, 1, 2))
    changed = change(pictures.astype(float)).astype(np.uint8)
    after = describe(torch.from_numpy(changed).permute(0, 3, 1, 2))
    away = ((after - before).mean(0) / before.std(0).clamp_min(1e-3)).abs()
    assert away[columns_of(view)].max() > 5
    if name is not None:
        assert away[FIGURES.index(name)] > 5


def test_a_mark_in_a_corner_is_seen_there_alone(pictures: np.ndarray) -> None:
    marked = pictures.copy()
    marked[:, -5:-1, -5:-1] = 255
    places = [columns_of(place) for place in PLACES]
    before, after = (describe(torch.from_numpy(p).permute(0, 3, 1, 2)) for p in (pictures, marked))
    moved = [bool((before - after)[:, columns].abs().max() > 0) for columns in places]
    assert [p for p, m in zip(PLACES, moved, strict=True) if m] == ["bottom right"]


def test_every_figure_has_a_name_and_a_view_and_is_finite() -> None:
    flat = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    assert torch.isfinite(describe(flat)).all()
    assert describe(flat).shape == (2, len(FIGURES))
    assert len(set(FIGURES)) == len(FIGURES)


def test_figures_are_kept(pictures: np.ndarray, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    inputs = Inputs(ImageArray(pictures, np.array([4, 1])), torch.device("cpu"))
    found = described(inputs, "key")
    whole = describe(torch.from_numpy(pictures).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(found, whole[[4, 1]], atol=1e-5)
    monkeypatch.setattr("sebra.loading.descriptors.describe", None)
    np.testing.assert_array_equal(described(inputs, "key"), found)

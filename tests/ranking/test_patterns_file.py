"""Patterns of a ranking from elsewhere: read as they are, or refused before they are used."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sebra.errors import UsageError
from sebra.ranking.patterns import PatternModel

ATOMS = torch.tensor([[1.0, 0.5]])
GOOD = PatternModel(
    shift=torch.zeros(4),
    scale=torch.ones(4),
    heads=torch.ones(2, 5, 3),
    thresholds=torch.zeros(2, 3),
    top=torch.full((2, 3), float("nan")),
    against=torch.zeros(2),
    atoms=ATOMS,
)
PARTS = ("shift", "scale", "heads", "thresholds", "top", "against", "atoms")
SHAPES = [(), (0,), (3,), (2, 2), (1, 1, 1)]
BAD = [(n, torch.zeros(s)) for n in PARTS for s in SHAPES if (n, s) != ("atoms", (2, 2))]
BAD += [("atoms", torch.tensor([[column, 0.5]])) for column in (-1.0, 3.0, 1e9, float("nan"))]


def test_what_was_saved_comes_back(tmp_path):
    GOOD.save(tmp_path / "p.safetensors")
    found = PatternModel.load(tmp_path / "p.safetensors")
    x, y = torch.rand(6, 3), torch.arange(6) % 3
    assert (found.follows(x, y) == GOOD.follows(x, y)).all()


@pytest.mark.parametrize(("name", "value"), BAD)
def test_parts_that_do_not_fit_are_refused(tmp_path, name, value):
    replace(GOOD, **{name: value}).save(tmp_path / "p.safetensors")
    with pytest.raises(UsageError, match="damaged, or of another version"):
        PatternModel.load(tmp_path / "p.safetensors")


@pytest.mark.parametrize(("width", "classes"), [(2, 3), (4, 3), (3, 4)])
def test_other_features_or_classes_are_refused(width, classes):
    with pytest.raises(UsageError, match="of other features or classes"):
        GOOD.follows(torch.rand(8, width), torch.arange(8) % classes)

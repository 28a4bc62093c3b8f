"""What the report of an audit shows: every planted bias as one of its own, told by its gallery."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sebra.samples.open import open_samples
from sebra.samples.table import alignment

SIDES = re.compile(r'aria-label="(Follow|Break) pattern (\d+), ([^"]*)">(.*?)</ul>', re.S)
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)
ENOUGH = 0.8


def shares(report: Path, data: str) -> dict[tuple[int, str], float]:
    """Per bias and attribute, of the samples shown, those whose side fits the attribute.

    Aligned where they follow the bias, conflicting where they break it.
    """
    html = report.read_text(encoding="utf-8")
    found = DATA.search(html)
    assert found
    ids = json.loads(found[1])["columns"]["id"]
    samples = open_samples(data)
    names, aligned = alignment(samples)
    row = {str(name): i for i, name in enumerate(samples.ids.tolist())}
    fits: dict[tuple[int, str], list[bool]] = {}
    for side, bias, _, tiles in SIDES.findall(html):
        shown = [row[ids[int(n)]] for n in re.findall(r'data-s="(\d+)"', tiles)]
        assert len(shown) == 12
        for k, name in enumerate(names):
            fits.setdefault((int(bias), name), []).extend(
                (aligned[shown, k] == (side == "Follow")).tolist()
            )
    return {key: float(np.mean(values)) for key, values in fits.items()}


def check(found: dict[tuple[int, str], float], *attributes: str) -> None:
    """Each bias goes with its attribute, and with no other."""
    assert {bias for bias, _ in found} == set(range(1, len(attributes) + 1))
    for number, own in enumerate(attributes, 1):
        for name in attributes:
            share = found[number, name]
            if name == own:
                assert share >= ENOUGH
            else:
                assert share < ENOUGH


def audit(call: Callable[..., Any], data: str, folder: Path, *options: object) -> Path:
    done = call("audit", data, "--method", "peel", "--out", folder, "--json", *options)
    assert done.status == 0, done.stderr
    return folder / "report.html"


def test_the_two_biases_of_the_demo_are_two_galleries(call_cli, tmp_path):
    options = ("--device", "cpu", "--set", "folds=3", "--set", "stages=2")
    report = audit(call_cli, "demo?n=700", tmp_path / "run", *options)
    check(shares(report, "demo?n=700"), "background", "companion")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_they_are_with_every_seed(call_cli, tmp_path, seed):
    data = f"demo?seed={seed}"
    report = audit(call_cli, data, tmp_path / "run", "--device", "cpu", "--seed", seed)
    check(shares(report, data), "background", "companion")


def cars(data_root: Path) -> tuple[str, Path]:
    weights = data_root / "weights" / "resnet18_imagenet_backbone_fp16.safetensors"
    return f"urbancars:{data_root / 'urbancars'}", weights


@pytest.mark.long
@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(3))
def test_the_two_biases_of_urbancars_are_two_galleries(call_cli, tmp_path, data_root, seed):
    data, weights = cars(data_root)
    options = ("--mode", "finetune", "--backbone", "resnet18", "--weights", weights)
    report = audit(call_cli, data, tmp_path / "run", *options, "--seed", seed)
    check(shares(report, data), "background", "object")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_they_are_over_frozen_features_too(call_cli, tmp_path, data_root, seed):
    data, weights = cars(data_root)
    options = ("--mode", "features", "--backbone", "resnet18", "--weights", weights)
    options = (*options, "--device", "cpu", "--seed", seed)
    check(shares(audit(call_cli, data, tmp_path / "run", *options), data), "background", "object")

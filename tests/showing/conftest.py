"""Rankings whose order, biases and pictures are known, and a browser to look at their report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sebra.samples.table import Attribute, Fault, ImageArray, Samples
from sebra.showing.report import ReportInput

SIDE = 24
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\u202egnp.exe\u202d right to left",
    "$\\frac{1}{0}$ & \"quoted\" 'single' {{ 7 * 7 }} {% raw %}",
    "=cmd|' /C calc'!A0",
    "long " + "x" * 495,
    "__proto__",
)


def make_run(
    n: int = 240,
    classes: tuple[str, ...] = ("boat", "plane", "train"),
    attributes: tuple[str, ...] = ("place", "light"),
    ids: Callable[[int], str] = "train/{:05d}.png".format,
    pixels: bool = True,
    **more: Any,
) -> ReportInput:
    """Samples whose first attribute is blue where aligned, ranked by it and then by chance."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % len(classes)
    aligned = rng.random((n, len(attributes))) < 0.8
    rank = np.empty(n, dtype=np.int64)
    for c in range(len(classes)):
        members = np.flatnonzero(labels == c)
        conflicting = ~aligned[members, 0] if attributes else np.zeros(len(members))
        rank[members[np.lexsort((rng.random(len(members)), conflicting))]] = np.arange(len(members))
    size = np.bincount(labels, minlength=len(classes))[labels]
    images = rng.integers(0, 60, (n if pixels else 1, SIDE, SIDE, 3)).astype(np.uint8)
    if attributes and pixels:
        images[aligned[:, 0], :, :, 2] += 150
        images[~aligned[:, 0], :, :, 0] += 150
    names = np.array([ids(i) for i in range(n)], dtype=object)
    table = pd.DataFrame(
        {
            "id": names,
            "label": np.array(classes, dtype=object)[labels],
            "rank": rank,
            "bucket": rank * 6 // size,
            "spuriosity": 1 - rank / np.maximum(size - 1, 1),
        }
    )
    samples = Samples(
        ids=names,
        labels=labels.astype(np.int64),
        classes=classes,
        split=np.zeros(n, dtype=np.int8),
        content=ImageArray(images, np.arange(n, dtype=np.int64) % len(images)),
        attributes={
            name: Attribute(
                name,
                np.where(aligned[:, k], labels, (labels + 1) % len(classes)).astype(np.int64),
                tuple(f"{name} of {c}" for c in classes),
                aligned=tuple(range(len(classes))),
            )
            for k, name in enumerate(attributes)
        },
        source="pictures",
    )
    return ReportInput(title="Audit of pictures", table=table, samples=samples, **more)


def full_run(**more: Any) -> ReportInput:
    """The same with everything a run may know: biases, noise, history, models, faults."""
    run = make_run(**more)
    rng = np.random.default_rng(1)
    n, classes = len(run.table), run.samples.classes
    for k, attribute in enumerate(run.samples.attributes.values(), 1):
        follows = attribute.codes == run.samples.labels
        run.table[f"stage_{k}"] = np.where(follows, 0.7, 0.1) + 0.2 * rng.random(n)
    run.table["noise"] = np.where(np.arange(n) % 40 == 7, 0.9, 0.1)
    run.table["suggested"] = np.roll(np.array(run.table["label"], dtype=object), 1)
    history = pd.DataFrame(
        [
            {"epoch": e, "label": c, "learned": (e + 1) / 6, "loss": 1 / (e + 1), "cue_label": 50.0}
            for e in range(6)
            for c in classes
        ]
    )
    group = {"name": "a group", "class": classes[0], "n_test": 40, "n_train": 400, "small": False}
    models = [
        {
            "name": name,
            "evaluation": {
                "id_accuracy": 95.0,
                "average": 80.0,
                "worst_group": worst,
                "worst_group_name": "a group",
                "gaps": {"place": worst - 95.0},
                "groups": [{**group, "accuracy": worst}],
            },
        }
        for name, worst in (("ERM", 21.5), ("Sebra", 64.25))
    ]
    return ReportInput(
        **{
            **run.__dict__,
            "history": history,
            "metrics": {
                "ranking": {
                    "somers_d": 0.81,
                    "tau_b": 0.6,
                    "published": 0.9,
                    "patterns": [found_pattern(classes)],
                }
            },
            "config": {"command": "rank", "seed": 3, "settings": {"p_critical": 0.7}},
            "faults": [Fault("train/broken.png", "empty file")],
            "command": "sebra audit pictures --seed 3",
            "version": "9.8.7",
            "comparisons": models,
            "notes": ["features mode: there is no GPU"],
        }
    )


def found_pattern(classes: tuple[str, ...]) -> dict[str, Any]:
    """What a run knows of its first pattern."""
    return {
        "with_it": {"samples": 190, "accuracy": 97.2, "low": 94.0, "high": 99.0},
        "against_it": {"samples": 50, "accuracy": 31.5, "low": 20.1, "high": 45.2},
        "words": [
            {"kind": "colour", "area": 0.984, "phrases": dict.fromkeys(classes, "bluer")},
            {"kind": "top", "area": 0.91, "phrases": {classes[0]: "bluer at the top"}},
        ],
    }


@dataclass
class Watched:
    """A page with everything it complained about or asked for."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")
        return self.page


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    """A fresh page; whatever a test did with it, nothing may be amiss at its end."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    found = Watched(context.new_page())
    found.page.set_default_timeout(15000)
    page = found.page
    page.on("console", lambda m: m.type in ("error", "warning") and found.errors.append(m.text))
    page.on("pageerror", lambda error: found.errors.append(str(error)))
    page.on("dialog", lambda dialog: found.errors.append(dialog.message))
    context.on("request", lambda request: found.requests.append(request.url))
    yield found
    context.close()
    assert found.errors == []
    outside = [r for r in found.requests if not r.startswith(("file:", "data:", "blob:"))]
    assert outside == []

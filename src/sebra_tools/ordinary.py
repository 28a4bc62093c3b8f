"""What people check in any labelled data: copies, two labels for one picture, outliers, imbalance.

CleanVision looks for dark, blurred and odd pictures, cleanlab for outliers, where they are
installed (extra `checks`); `copies.py` finds copies.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import reason
from sebra.samples.table import (
    SPLITS,
    FeatureArray,
    ImageFiles,
    Samples,
    Texts,
)
from sebra_tools.copies import Groups, copies, small_copies

Array = npt.NDArray[Any]
SHOWN = 20  # examples of a finding
FAR = 3.0  # spreads between quartiles above the third: far out, after Tukey
UNEQUAL = 10  # times as many samples in one class as in another
NEIGHBOURS = 10
DIRECTIONS = 50  # of texts
MOST_OUTLIERS = 20_000  # samples among which outliers are looked for
MOST_LOOKED_AT = 2_000  # pictures that CleanVision opens
MOST_IN_PASSING = 400  # of them in `audit`
LOOKS = {
    "dark": "too dark",
    "light": "too bright",
    "blurry": "blurred",
    "low_information": "nearly empty",
    "odd_aspect_ratio": "of an odd shape",
    "odd_size": "of an odd size",
}
INSTALL = "pip install 'sebra[checks]'"


@dataclass(frozen=True)
class Finding:
    """Something a person should look at: how many, in one sentence, and the first ids of each."""

    kind: str
    count: int
    text: str
    examples: list[list[str]]


def checks(samples: Samples, most: int = MOST_IN_PASSING) -> list[dict[str, Any]]:
    """All findings, as JSON has them. most: pictures that CleanVision opens."""
    return [asdict(f) for f in findings(*readable(samples), most)]


def readable(samples: Samples) -> tuple[Samples, Array | None]:
    """The samples without those that cannot be read, and `small_copies` of the rest."""
    small, faults = small_copies(samples)
    if small is not None:
        small = small[~np.isin(samples.ids, [fault.id for fault in faults])]
    return samples.without(faults), small


def findings(samples: Samples, small: Array | None, most: int = MOST_LOOKED_AT) -> list[Finding]:
    """small: `small_copies` of the samples."""
    found = [*_copies(samples, small), *_outliers(samples, small), *_imbalance(samples)]
    if isinstance(samples.content, ImageFiles):
        found += _looks(samples, samples.content.paths, most)
    return found


def _copies(samples: Samples, small: Array | None) -> Iterator[Finding]:
    groups = copies(samples, small)
    what = "picture" if small is not None else "text" if samples.kind == "text" else "row"
    kinds: tuple[tuple[str, str, Groups], ...] = (
        (
            "leakage",
            "in more than one split, perhaps resized or saved again: figures on held-out samples "
            "are too good",
            [g for g in groups if len(set(samples.split[g])) > 1],
        ),
        (
            "two labels",
            "under more than one label: at most one of them is right",
            [g for g in groups if len(set(samples.labels[g])) > 1],
        ),
        (
            "copies",
            "more than once within a split",
            [g for g in groups if len(set(samples.split[g])) < len(g)],
        ),
    )
    for kind, text, found in kinds:
        if found:
            shown = [_named(samples, group) for group in found[:SHOWN]]
            yield Finding(kind, len(found), f"{_many(len(found), what)} {text}", shown)


def _many(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _named(samples: Samples, group: Sequence[int]) -> list[str]:
    """The ids of one thing: a training sample first, then one of each other split."""
    order = sorted(group, key=lambda row: int(samples.split[row]))
    first = [
        next(r for r in order if samples.split[r] == s) for s in sorted({*samples.split[order]})
    ]
    rest = [row for row in order if row not in first]
    name = {row: f"{samples.ids[row]} ({_about(samples, row)})" for row in order}
    return [name[row] for row in (*first, *rest)]


def _about(samples: Samples, row: int) -> str:
    return f"{SPLITS[samples.split[row]]}, {samples.classes[samples.labels[row]]}"


def _outliers(samples: Samples, small: Array | None) -> Iterator[Finding]:
    if find_spec("cleanlab") is None:
        yield Finding("outliers", 0, f"not looked for: cleanlab is not installed ({INSTALL})", [])
        return
    rows = samples.rows("train")
    if not NEIGHBOURS < len(rows) <= MOST_OUTLIERS:
        return
    from cleanlab.outlier import OutOfDistribution
    from sklearn.neighbors import NearestNeighbors

    try:
        values = _values(samples, small, rows)
    except ValueError:  # texts that share no word
        return
    values = (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-6)
    nearest = NearestNeighbors(n_neighbors=NEIGHBOURS, metric="euclidean").fit(values)
    asked = OutOfDistribution({"k": NEIGHBOURS, "knn": nearest})
    near = np.asarray(asked.score(features=values), dtype=np.float64)
    far = -np.log(np.maximum(near, 1e-300))
    low, high = np.quantile(far, [0.25, 0.75])
    found = np.flatnonzero(far > high + FAR * max(high - low, 1e-9))
    if len(found):
        order = rows[found[np.argsort(-far[found], kind="stable")]]
        text = f"{_many(len(found), 'sample')} unlike all others (cleanlab)"
        yield Finding("outliers", len(found), text, [_named(samples, [r]) for r in order[:SHOWN]])


def _values(samples: Samples, small: Array | None, rows: Array) -> Array:
    content = samples.content
    if small is not None:
        import torch

        from sebra.loading.descriptors import describe

        pictures = torch.from_numpy(np.ascontiguousarray(small[rows])).permute(0, 3, 1, 2)
        return describe(pictures).numpy()
    if isinstance(content, Texts):
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        counts = TfidfVectorizer(min_df=2).fit_transform([content.first[r] for r in rows])
        kept = min(DIRECTIONS, counts.shape[1] - 1)
        with np.errstate(invalid="ignore"):  # texts that are all alike have no variance
            return np.asarray(TruncatedSVD(kept, random_state=0).fit_transform(counts))
    assert isinstance(content, FeatureArray)
    return np.asarray(content.values[content.rows[rows]], dtype=np.float64)


def _imbalance(samples: Samples) -> Iterator[Finding]:
    counts = np.bincount(samples.labels[samples.rows("train")], minlength=len(samples.classes))
    if counts.min() * UNEQUAL < counts.max():
        least, most = samples.classes[int(counts.argmin())], samples.classes[int(counts.argmax())]
        text = (
            f"classes are unequal in training: {counts.min()} samples of {least}, "
            f"{counts.max()} of {most}"
        )
        yield Finding("imbalance", 1, text, [])


def _looks(samples: Samples, paths: Sequence[Path], most: int) -> Iterator[Finding]:
    """Dark, bright, blurred, empty and odd pictures, by CleanVision."""
    if find_spec("cleanvision") is None:
        text = f"not looked for: CleanVision is not installed ({INSTALL})"
        yield Finding("dark, blurred or odd pictures", 0, text, [])
        return
    from cleanvision import Imagelab

    logging.getLogger("cleanvision").setLevel(logging.ERROR)
    rows = np.arange(len(paths))
    if len(rows) > most:  # evenly, so that every class and split is among them
        rows = rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]
    row_of = {str(paths[row]): row for row in rows.tolist()}
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # its own bar
            warnings.simplefilter("ignore")
            lab = Imagelab(filepaths=list(row_of), verbose=False)
            lab.find_issues({kind: {} for kind in LOOKS}, n_jobs=1, verbose=False)
    except Exception as error:  # of another's library; a run must not end with it
        text = f"not looked for: CleanVision could not read them ({reason(error)})"
        yield Finding("dark, blurred or odd pictures", 0, text, [])
        return
    among = "" if len(rows) == len(paths) else f" of {len(rows)} that were looked at"
    for kind, words in LOOKS.items():
        score = lab.issues.loc[lab.issues[f"is_{kind}_issue"], f"{kind}_score"].sort_values()
        if len(score):
            shown = [_named(samples, [row_of[str(name)]]) for name in score.index[:SHOWN]]
            text = f"{_many(len(score), 'picture')}{among} {words} (CleanVision)"
            yield Finding(words, len(score), text, shown)

"""What can be said of the samples of a run, for words that name its patterns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.loading.descriptors import BORDER, FIGURES, PLACES, columns_of, described
from sebra.loading.inputs import Inputs, content_key
from sebra.ranking.ranking import Ranking
from sebra.samples.table import (
    Attribute,
    FeatureArray,
    ImageArray,
    ImageFiles,
    Samples,
    Texts,
)
from sebra.showing.naming import Family, words_of
from sebra.workflows.prepared import Prepared

Array = npt.NDArray[Any]
FOLLOWS = 0.5
MOST_LEVELS = 50
MOST_PHRASES = 2000
RARE = 0.01  # share of the texts that must hold a phrase
EXIF = {271: "camera maker", 272: "camera", 305: "software"}
# What a figure of a picture means, by what its name holds: the word for more and for less.
MEANINGS = (
    ("red to green", "redder", "greener"),
    ("blue to green", "bluer", "yellower"),
    ("saturat", "more colourful", "greyer"),
    ("contrast", "richer in contrast", "flatter"),
    ("band", "with a regular grid, as of blocks", "without a regular grid"),
    (" px", "sharper", "blurrier"),
    ("edge at", "sharper", "blurrier"),
    ("edges", "more edges, as of text or a mark,", "plainer"),
    ("black", "with black parts", "without black parts"),
    ("white", "with white parts", "without white parts"),
    ("left out", "with gaps in its tones, as after editing,", "without gaps in its tones"),
    ("", "brighter", "darker"),
)


def name_patterns(ranking: Ranking, prepared: Prepared) -> None:
    """Adds `words` to every pattern of the ranking that has stages; see `showing/naming.py`."""
    patterns = ranking.details.get("patterns", ())
    if not patterns or not ranking.stages:
        return
    prepared.readable("train")  # what cannot be read leaves the samples
    part = prepared.samples.take(prepared.samples.rows("train"))
    families = list(_families(part, prepared))
    for pattern, stage in zip(patterns, ranking.stages, strict=False):
        follows = ranking.table[stage].to_numpy() > FOLLOWS
        found = words_of(families, follows, part.labels, part.classes)
        pattern["words"] = [word.to_dict() for word in found]


def _families(part: Samples, prepared: Prepared) -> Iterator[Family]:
    content = part.content
    if isinstance(content, FeatureArray):
        names = content.names or [f"column {i}" for i in range(content.values.shape[1])]
        pairs = [(f"{n} is higher", f"{n} is lower", f"{n} is about {{:.3g}}") for n in names]
        yield Family("column", content.values[content.rows], pairs)
    elif isinstance(content, Texts):
        yield from _phrases(content)
    else:
        yield from _views(prepared)
        if isinstance(content, ImageFiles):
            yield from _file_facts(content, part.labels)
    for name, attribute in part.attributes.items():
        yield _levels(f"metadata {name}", name, attribute)


def _views(prepared: Prepared) -> Iterator[Family]:
    _, pixels = prepared._read("train")
    assert isinstance(pixels, ImageArray)
    figures = described(Inputs(pixels, prepared.device), content_key(pixels))
    for view in dict.fromkeys(name.partition(": ")[0] for name in FIGURES):
        columns = columns_of(view)
        names = [_meaning(view, FIGURES[i].partition(": ")[2]) for i in columns]
        yield Family(view, figures[:, columns], names, together=True)
    words = prepared.imagenet()
    if words is not None:
        named = [(f"looks like “{w}”", f"does not look like “{w}”") for w in words[0]]
        yield Family("object", words[1], named)


def _meaning(view: str, figure: str) -> tuple[str, str]:
    more, less = next(pair for key, *pair in MEANINGS if key in figure)
    where = ""
    if view == BORDER:
        where = f" along the {figure.partition(',')[0]}"
    elif view in PLACES:
        where = f" at the {view}" if view != "centre" else " in the centre"
    return more + where, less + where


def _phrases(texts: Texts) -> Iterator[Family]:
    from sklearn.feature_extraction.text import CountVectorizer

    joined = [" ".join(filter(None, pair)) for pair in zip(
        texts.first, texts.second or [""] * len(texts.first), strict=True)]  # fmt: skip
    count = CountVectorizer(
        binary=True,
        ngram_range=(1, 2),
        min_df=max(2, round(RARE * len(joined))),
        max_features=MOST_PHRASES,
        token_pattern=r"(?u)\b\w+\b",
    )
    try:
        values = count.fit_transform(joined).toarray()
    except ValueError:  # no phrase is frequent enough
        return
    names = [(f"contains “{p}”", f"lacks “{p}”") for p in count.get_feature_names_out()]
    yield Family("phrase", values, names)
    length = np.array([[len(text.split())] for text in joined])
    yield Family("length", length, [("longer", "shorter")])


def _file_facts(content: ImageFiles, labels: Array) -> Iterator[Family]:
    """Size, shape, bytes and camera of the files, where they are from, parts of their names."""
    from PIL import Image

    sizes, cameras = [], []
    for path in content.paths:
        try:
            with Image.open(path) as image:
                exif = image.getexif()
                sizes.append((image.width, image.height, path.stat().st_size))
                cameras.append([f"{n} {exif[tag]}" for tag, n in EXIF.items() if tag in exif])
        except (OSError, ValueError, SyntaxError):  # gone since it was decoded
            sizes.append((1, 1, 1))
            cameras.append([])
    wide, high, size = np.array(sizes, dtype=np.float64).T
    yield Family("shape", (wide / high)[:, None], [("wider", "narrower")])
    yield Family("size", (wide * high)[:, None], [("of more pixels", "of fewer pixels")])
    name = ("stored with more bytes per pixel", "stored with fewer bytes per pixel")
    yield Family("compression", (size / (wide * high))[:, None], [name])
    parts = [_parts(path, camera) for path, camera in zip(content.paths, cameras, strict=True)]
    many = Counter(part for found in parts for part in set(found))
    known = [p for p, n in many.most_common(MOST_LEVELS * 4) if 2 < n < len(parts)]
    if known:
        values = np.array([[p in found for p in known] for found in parts])
        yield Family("file", values, [(p, f"not {p}") for p in known])


def _parts(path: Path, camera: Sequence[str]) -> list[str]:
    """The folders above a file but for its own, words of its name, and its camera."""
    folders = [f"from folder {name}" for name in path.parts[-4:-2]]
    words = [f"named “{w}”" for w in re.findall(r"[^\W\d_]{2,}", path.stem)]
    return [*folders, *words, f"a {path.suffix.lower()} file", *camera]


def _levels(kind: str, name: str, attribute: Attribute) -> Family:
    values = attribute.codes[:, None] == np.arange(len(attribute.levels))
    names = [(f"{name} is {level}", f"{name} is not {level}") for level in attribute.levels]
    return Family(kind, values, names)

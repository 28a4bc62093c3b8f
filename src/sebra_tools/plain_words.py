"""Plain words for a pattern: figures of pictures, facts of their files, phrases of texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sebra.engine.weights import IMAGENET_CLASSES, Weights, is_head
from sebra.loading.descriptors import BORDER, FIGURES, PLACES, columns_of, described
from sebra.loading.inputs import Inputs, content_key
from sebra.samples.table import ImageArray, ImageFiles, Samples, Texts
from sebra.workflows.prepared import Prepared
from sebra_tools.words import Family

Array = npt.NDArray[Any]
MOST_PHRASES = 2000
RARE = 0.01  # share of the texts that must hold a phrase
MOST_PARTS = 200  # of file names and folders, the most frequent
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


def words_of_views(prepared: Prepared, part: Samples, follows: Array) -> Iterator[Family]:
    """Colour, light, sharpness, the border and nine places; ImageNet's words."""
    _, pixels = prepared._read("train")
    if not isinstance(pixels, ImageArray):
        return
    figures = described(Inputs(pixels, prepared.device), content_key(pixels))
    for view in dict.fromkeys(name.partition(": ")[0] for name in FIGURES):
        columns = columns_of(view)
        names = [_meaning(view, FIGURES[i].partition(": ")[2]) for i in columns]
        yield Family(view, figures[:, columns], names, together=True)
    words = imagenet(prepared)
    if words is not None:
        named = [(f"looks like “{w}”", f"does not look like “{w}”") for w in words[0]]
        yield Family("object", words[1], named)


def imagenet(prepared: Prepared) -> tuple[list[str], Array] | None:
    """ImageNet's words and how far the training pictures are like each, n x 1000.

    None where the weights come without their classifier, or are not ImageNet's.
    """
    if prepared.weights is None or prepared.mode != "features":
        return None
    head = classifier_of(prepared.weights)
    if head is None:
        return None
    from timm.data.imagenet_info import ImageNetInfo

    inputs = prepared.split("train")[1]
    values = inputs.batch(torch.arange(len(inputs), device=inputs.device)).float().cpu()
    names = [d.partition(",")[0] for d in ImageNetInfo().label_descriptions()]
    return names, (values @ head[0].T + head[1]).numpy()


def _meaning(view: str, figure: str) -> tuple[str, str]:
    more, less = next(pair for key, *pair in MEANINGS if key in figure)
    where = ""
    if view == BORDER:
        where = f" along the {figure.partition(',')[0]}"
    elif view in PLACES:
        where = f" at the {view}" if view != "centre" else " in the centre"
    return (more + where).rstrip(","), (less + where).rstrip(",")


def words_of_texts(prepared: Prepared, part: Samples, follows: Array) -> Iterator[Family]:
    """Words, pairs of words, and the length of texts."""
    texts = part.content
    if not isinstance(texts, Texts):
        return
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


def words_of_files(prepared: Prepared, part: Samples, follows: Array) -> Iterator[Family]:
    """Size, shape, bytes and camera of the files, where they are from, parts of their names."""
    content = part.content
    if not isinstance(content, ImageFiles):
        return
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
    known = [p for p, n in many.most_common(MOST_PARTS) if 2 < n < len(parts)]
    if known:
        values = np.array([[p in found for p in known] for found in parts])
        yield Family("file", values, [(p, f"not {p}") for p in known])


def _parts(path: Path, camera: Sequence[str]) -> list[str]:
    """The folders above a file but for its own, words of its name, and its camera."""
    folders = [f"from folder {name}" for name in path.parts[-4:-2]]
    words = [f"named “{w}”" for w in re.findall(r"[^\W\d_]{2,}", path.stem)]
    return [*folders, *words, f"a {path.suffix.lower()} file", *camera]


def classifier_of(weights: Weights) -> tuple[Tensor, Tensor] | None:
    """Weight and bias of ImageNet's classifier over the pooled features, where they came."""
    for key, weight in weights.tensors.items():
        bias = weights.tensors.get(f"{key.removesuffix('weight')}bias")
        if is_head(key) and weight.dim() == 2 and bias is not None:
            return (weight, bias) if len(weight) == IMAGENET_CLASSES else None
    return None

"""Words for what stands at one place of the pictures, and CLIP's open vocabulary.

A thing beside the object is lost in the features of a whole picture. Where both sides of a pattern
differ at a place, that place is cut out, and ImageNet's thousand words are asked of it alone. CLIP
is asked where its weights are at hand (`$SEBRA_CLIP`, a folder of transformers). Both look at some
samples of each side only; whether a word is claimed is decided as for all others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from sebra.engine import networks
from sebra.engine.networks import NetworkSpec
from sebra.errors import UsageError, reason
from sebra.loading.descriptors import PLACES
from sebra.samples.table import ImageArray, Samples
from sebra.workflows.prepared import Prepared
from sebra_tools.places import place_of
from sebra_tools.plain_words import classifier_of, imagenet
from sebra_tools.words import Family, sides_of

Array = npt.NDArray[Any]
MOST_ASKED = 400  # samples of a pattern that are looked at, over its classes and both sides
MOST_CLASSES = 6
WARM = 0.25  # of a map: what belongs to the place
SMALLEST = 0.4  # of a side: a smaller part says little of what it shows
LARGEST = 0.8  # of a side: a larger part is no place
WHOLE = (0.0, 0.0, 1.0, 1.0)
SIDE = 160  # pixels of a part, for the network
_BATCH = 32
CLIP = "SEBRA_CLIP"
PROMPT = "a photo of {}"
WORDS = "words.txt"  # in the folder of CLIP: one's own vocabulary, a line for each
SCENES = (
    "a forest", "a field", "a beach", "the sea", "a lake", "a river", "a mountain", "snow", "ice",
    "the sky", "clouds", "grass", "sand", "rocks", "a street", "a city", "a building", "a house",
    "a room", "a kitchen", "an office", "a shop", "a garden", "a desert", "a bridge", "a road",
    "water", "a studio background", "a white background", "a black background", "a wall",
    "a fence", "a window", "a table", "a bed", "a sofa", "a carpet", "a person", "a face", "a hand",
    "a child", "a man", "a woman", "a crowd", "glasses", "a hat", "long hair", "a beard", "a smile",
    "an animal", "a cow", "a horse", "a dog", "a cat", "a bird", "a fish", "a tree", "flowers",
    "a car", "a truck", "a bicycle", "a boat", "an airplane", "a train", "a traffic light",
    "a fire hydrant", "a parking meter", "a street sign", "a ball", "a cup", "a bottle", "a book",
    "food", "fruit", "text", "a watermark", "a logo", "a caption", "a frame", "a border", "a ruler",
    "a sticker", "an arrow", "night", "a sunset", "fog", "rain", "a shadow", "a blurry picture",
    "a black and white picture", "a drawing", "a close-up", "a picture from above",
)  # fmt: skip


def words_of_places(prepared: Prepared, part: Samples, follows: Array) -> Iterator[Family]:
    """ImageNet's words for the place where both sides of a pattern differ, class by class."""
    content = prepared._read("train")[1]
    words = imagenet(prepared)
    if words is None or prepared.weights is None or not isinstance(content, ImageArray):
        return
    head = classifier_of(prepared.weights)
    assert head is not None
    network = networks.build(
        NetworkSpec(prepared.backbone, (3, SIDE, SIDE), 1), 0, prepared.weights
    ).to(prepared.device)
    network.eval()

    def logits(pictures: Tensor) -> Tensor:
        found: Tensor = network.embed(pictures.to(prepared.device)).float().cpu()
        return found @ head[0].T + head[1]

    values = np.zeros((len(part), len(words[0])), dtype=np.float32)
    known = np.zeros(len(part), dtype=bool)
    said = set()
    for sides, rows in _classes(part, follows):
        found = place_of(content, *sides)
        place = WHOLE if found is None else box_of(found[0])
        if place[2] - place[0] > LARGEST:  # what all of it shows is asked elsewhere
            continue
        said.add(place_name(place))
        values[rows] = _asked(content, rows, place, logits)
        known[rows] = True
    if said:
        where = said.pop() if len(said) == 1 else "there"
        named = [(f"{where} looks like “{w}”", f"{where} does not look like “{w}”")
                 for w in words[0]]  # fmt: skip
        yield Family("object there", values, named, known=known)


def words_of_clip(prepared: Prepared, part: Samples, follows: Array) -> Iterator[Family]:
    """CLIP's agreement of pictures with words; nothing where it is not at hand."""
    folder = os.environ.get(CLIP)
    content = prepared._read("train")[1]
    if not folder or not isinstance(content, ImageArray):
        return
    if find_spec("transformers") is None:
        raise UsageError(f"{CLIP}: needs transformers (pip install 'sebra[clip]')")
    see, words = _clip(Path(folder))
    values = np.zeros((len(part), len(words)), dtype=np.float32)
    known = np.zeros(len(part), dtype=bool)
    for _, rows in _classes(part, follows):
        values[rows] = _asked(content, rows, WHOLE, see)
        known[rows] = True
    named = [(f"shows {w}", f"does not show {w}") for w in words]
    yield Family("what it shows", values, named, known=known)


def _classes(part: Samples, follows: Array) -> Iterator[tuple[tuple[Array, Array], Array]]:
    """Of each class both sides, in an order that means nothing, and who is looked at of them."""
    rng = np.random.default_rng(0)
    many = min(len(part.classes), MOST_CLASSES)
    for c in range(many):
        follow, other = map(rng.permutation, sides_of(follows, part.labels, c))
        sides = follow, other
        yield sides, np.concatenate([rows[: MOST_ASKED // (2 * many)] for rows in sides])


def box_of(heat: Array) -> tuple[float, float, float, float]:
    """The square around the warm part of a map with its peak: left, top, right, bottom."""
    from scipy.ndimage import label

    parts, _ = label(heat >= WARM * heat.max())
    rows, columns = np.nonzero(parts == parts.flat[heat.argmax()])
    grid = len(heat)
    low = np.array([columns.min(), rows.min()]) / grid
    high = np.array([columns.max() + 1, rows.max() + 1]) / grid
    side = min(1.0, max(SMALLEST, float((high - low).max())))
    left, top = np.clip((low + high) / 2 - side / 2, 0.0, 1.0 - side).tolist()
    return left, top, left + side, top + side


def place_name(box: tuple[float, float, float, float]) -> str:
    """Which of nine places the middle of a box is at."""
    left, top, right, bottom = box
    thirds = [min(int(3 * (a + b) / 2), 2) for a, b in ((top, bottom), (left, right))]
    name = PLACES[3 * thirds[0] + thirds[1]]
    return "in the centre it" if name == "centre" else f"at the {name} it"


@torch.no_grad()
def _asked(
    content: ImageArray,
    rows: Array,
    box: tuple[float, float, float, float],
    ask: Callable[[Tensor], Tensor],
) -> Array:
    """What is said of a part of these pictures, rows x words."""
    out = []
    for some in np.array_split(rows, range(_BATCH, len(rows), _BATCH)):
        pixels = np.ascontiguousarray(content.pixels[content.rows[some]])
        height, width = pixels.shape[1:3]
        left, right = round(box[0] * width), round(box[2] * width)
        top, bottom = round(box[1] * height), round(box[3] * height)
        x = torch.from_numpy(pixels[:, top:bottom, left:right]).permute(0, 3, 1, 2).float()
        x = F.interpolate(x, size=(SIDE, SIDE), mode="bilinear", antialias=True)
        out.append(ask(x.round().clamp(0, 255).to(torch.uint8)))
    return torch.cat(out).numpy()


def _clip(folder: Path) -> tuple[Callable[[Tensor], Tensor], list[str]]:
    """A function from pictures to their agreement with words, and the words."""
    from timm.data.imagenet_info import ImageNetInfo
    from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer

    try:
        model = CLIPModel.from_pretrained(folder, local_files_only=True).eval()
        tokens = CLIPTokenizer.from_pretrained(folder, local_files_only=True)
        pictures = CLIPImageProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{CLIP}: no CLIP model in {folder} ({reason(error)})") from error
    own = folder / WORDS
    if own.is_file():
        words = [w.strip() for w in own.read_text(encoding="utf-8").splitlines() if w.strip()]
    else:
        things = [d.partition(",")[0] for d in ImageNetInfo().label_descriptions()]
        words = list(dict.fromkeys([*SCENES, *things]))
    with torch.no_grad():
        given = tokens([PROMPT.format(w) for w in words], padding=True, return_tensors="pt")
        texts = _unit(model.get_text_features(**given))

    @torch.no_grad()
    def see(x: Tensor) -> Tensor:
        ready = pictures(images=list(x), return_tensors="pt")
        return _unit(model.get_image_features(**ready)) @ texts.T

    return see, words


def _unit(found: Any) -> Tensor:
    """Features of length 1; some versions give them with the rest of the output."""
    values: Tensor = getattr(found, "pooler_output", found)
    return F.normalize(values.float(), dim=1)

"""The UrbanCars builder: geometry and counts, measured on what it wrote."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.samples.table import true_groups
from sebra_bench.making.urbancars import Recipe, group_counts, make_urbancars

CAR, THING = (220, 30, 30), (30, 220, 30)
SCENES = {"urban": (60, 60, 60), "country": (40, 60, 140)}


def photo(file, size, box, colour, alpha=False, around=(90, 90, 90)):
    """A coloured box in a picture, with its mask in the alpha channel or in a file beside."""
    picture = Image.new("RGB", size, around)
    mask = Image.new("L", size, 0)
    picture.paste(colour, box)
    mask.paste(255, box)
    file.parent.mkdir(parents=True, exist_ok=True)
    if alpha:
        picture.putalpha(mask)
    else:
        mask.save(file.with_name(f"{file.stem}_mask.png"))
    picture.save(file)


def sources(root: Path, n: int = 16) -> dict[str, Path]:
    for number in range(n):
        for word, shade in (("urban", 0), ("country", 20)):
            car = (CAR[0], CAR[1] + shade, number)
            wide = (30, 40, 30 + 100, 40 + 50)
            photo(root / "cars" / word / f"{number}.png", (200, 160), wide, car)
            tall = (5, 10, 5 + 20, 10 + 60)
            thing = (THING[0] + shade, THING[1], number)
            photo(root / "objects" / word / f"{number}.png", (50, 90), tall, thing, alpha=True)
            scene = root / "backgrounds" / word / f"{number}.png"
            scene.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (150 + number, 90), SCENES[word]).save(scene)
    return {kind: root / kind for kind in ("cars", "backgrounds", "objects")}


def recipe(tmp_path, **changes) -> Recipe:
    found = sources(tmp_path / "own", changes.pop("n", 16))
    settings = {"size": 128, "counts": (6, 4, 4), "background_ratio": 0.75, "object_ratio": 0.75}
    return Recipe(**found, out=tmp_path / "made", **(settings | changes))


def near(pixels, colour):
    return (np.abs(pixels.astype(int) - colour) < 60).all(axis=-1)


def box_of(mask):
    rows, columns = np.nonzero(mask)
    return rows.min(), rows.max() + 1, columns.min(), columns.max() + 1


def test_geometry_of_the_published_pictures(tmp_path):
    made = recipe(tmp_path, size=256)
    make_urbancars(made)
    for file in sorted(made.out.rglob("*.jpg")):
        pixels = np.asarray(Image.open(file))
        assert pixels.shape == (256, 256, 3)
        top, bottom, left, right = box_of(near(pixels, CAR))
        assert right - left == pytest.approx(0.5 * 256, abs=2)  # the longer side
        assert bottom - top == pytest.approx(0.25 * 256, abs=2)  # the photo's proportions
        assert (top + bottom) / 2 == pytest.approx(0.5 * 256, abs=2)
        assert (left + right) / 2 == pytest.approx(0.5 * 256, abs=2)
        top, bottom, left, right = box_of(near(pixels, THING))
        assert bottom - top == pytest.approx(0.25 * 256, abs=2)
        assert (top + bottom) / 2 == pytest.approx(0.5 * 256, abs=2)
        assert (left + right) / 2 == pytest.approx(0.875 * 256, abs=2)
        word = "urban" if "bg-urban" in file.parent.name else "country"
        assert near(pixels[:32], SCENES[word]).all()
        assert near(pixels[-32:], SCENES[word]).all()


def test_the_car_stands_before_the_object(tmp_path):
    own = sources(tmp_path / "own")
    for word in ("urban", "country"):
        for number in range(16):
            wide = (0, 20, 100, 40)
            photo(own["objects"] / word / f"{number}.png", (100, 60), wide, THING, alpha=True)
    made = Recipe(**own, out=tmp_path / "made", size=128, counts=(4, 0, 0), background_ratio=0.5)
    make_urbancars(made)
    pixels = np.asarray(Image.open(next(made.out.rglob("*.jpg"))))
    assert near(pixels[64, 34:94], CAR).all()
    assert near(pixels[64, 98:126], THING).all()


def test_published_counts():
    default = Recipe(Path(), Path(), Path(), Path())
    words = {"obj": "urban", "other": "country"}
    train = group_counts(default, "train")
    for car, other in (words.values(), reversed(words.values())):
        assert train[car, car, car] == 3610
        assert train[car, car, other] == train[car, other, car] == 190
        assert train[car, other, other] == 10
    assert set(group_counts(default, "val").values()) == {125}
    assert set(group_counts(default, "test").values()) == {125}


@pytest.mark.parametrize(
    ("n", "background", "thing", "expected"),
    [
        (1000, 0.9, 0.9, [810, 90, 90, 10]),
        (100, 0.95, 0.95, [90, 4, 4, 1]),  # int(0.25), but every group has at least one
        (100, 1.0, 0.9, [90, 10, 0, 0]),
        (400, 0.95, 0.8, [304, 76, 16, 4]),
    ],
)
def test_counts_are_the_whole_part_of_the_share(n, background, thing, expected):
    asked = Recipe(
        Path(), Path(), Path(), Path(),
        counts=(n, 0, 0), background_ratio=background, object_ratio=thing,
    )  # fmt: skip
    found = group_counts(asked, "train")
    assert [found["urban", b, o] for b in ("urban", "country") for o in ("urban", "country")] == (
        expected
    )


def test_the_tree_is_read_as_urbancars_with_these_groups(tmp_path):
    made = recipe(tmp_path)
    told = make_urbancars(made)
    assert (made.out / "bg-0.75_co_occur_obj-0.75" / "train").is_dir()
    samples = open_samples(f"urbancars:{made.out}")
    assert len(samples) == told["pictures"]
    for split, per_group in (("train", [3, 1, 1, 1]), ("val", [1] * 4), ("test", [1] * 4)):
        rows = samples.rows(split)
        keys = 4 * samples.labels[rows] + true_groups(samples)[rows]
        assert np.bincount(keys, minlength=8).tolist() == per_group * 2


def digest(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*.jpg"))
    }


def test_the_seed_decides_every_picture(tmp_path):
    found = sources(tmp_path / "own")
    made = [
        Recipe(**found, out=tmp_path / f"made{i}", size=64, counts=(6, 2, 2), seed=seed)
        for i, seed in enumerate((5, 5, 6))
    ]
    for one in made:
        make_urbancars(one)
    assert digest(made[0].out) == digest(made[1].out)
    assert digest(made[0].out) != digest(made[2].out)


def blue_of(file: Path) -> int:
    """The number of the car photo, which its colour carries."""
    pixels = np.asarray(Image.open(file)).astype(int)
    return int(np.median(pixels[near(pixels, CAR)][:, 2]))


def test_no_source_is_in_two_splits(tmp_path):
    found = sources(tmp_path / "own", 12)
    for word in ("urban", "country"):
        for number in range(12):
            wide = (30, 40, 130, 90)
            colour = (CAR[0], CAR[1], 5 * number)
            photo(found["cars"] / word / f"{number}.png", (200, 160), wide, colour)
    made = Recipe(**found, out=tmp_path / "made", size=64, counts=(16, 4, 4), reuse=True)
    make_urbancars(made)
    seen = {
        split: {
            (file.parent.name.split("_")[0], round(blue_of(file) / 5))
            for file in made.out.rglob("*.jpg")
            if file.parent.parent.name == split
        }
        for split in ("train", "val", "test")
    }
    assert seen["train"].isdisjoint(seen["val"])
    assert seen["train"].isdisjoint(seen["test"])
    assert seen["val"].isdisjoint(seen["test"])


def test_masks_beside_the_pictures_are_not_samples(tmp_path):
    made = recipe(tmp_path)
    told = make_urbancars(made)
    group = next(made.out.rglob("obj-urban_bg-urban_co_occur_obj-urban"))
    Image.new("L", (8, 8)).save(group / "000_mask.png")
    Image.new("L", (8, 8)).save(group / "000_co_occur_obj_mask.png")
    assert len(open_samples(f"urbancars:{made.out}")) == told["pictures"]


def test_wrong_sources_are_told(tmp_path):
    with pytest.raises(UsageError, match=r"--cars: .*urban has 16 pictures, needs 20; .*--reuse"):
        make_urbancars(recipe(tmp_path, counts=(16, 4, 0)))
    with pytest.raises(UsageError, match=r"--ratio: must be between 0\.5 and 1, not 0\.2"):
        make_urbancars(recipe(tmp_path, background_ratio=0.2))
    car = tmp_path / "own" / "cars" / "urban" / "3_mask.png"
    car.unlink()
    with pytest.raises(UsageError, match=r"3\.png: has no mask; put 3_mask\.png beside it"):
        make_urbancars(recipe_of_all(tmp_path))
    Image.new("L", (200, 160), 0).save(car)
    with pytest.raises(UsageError, match=r"3_mask\.png: the mask is empty"):
        make_urbancars(recipe_of_all(tmp_path))


def recipe_of_all(tmp_path) -> Recipe:
    """Uses every source there is, in a folder of its own."""
    own = tmp_path / "own"
    found = {kind: own / kind for kind in ("cars", "backgrounds", "objects")}
    out = tmp_path / f"made{len(list(tmp_path.iterdir()))}"
    return Recipe(**found, out=out, size=32, counts=(16, 0, 0), background_ratio=0.5,
                  object_ratio=0.5)  # fmt: skip


def test_through_the_command_line(call_cli, tmp_path):
    own = sources(tmp_path / "own")
    options = [f"--{kind}={folder}" for kind, folder in own.items()]
    asked = ("data", "make", "urbancars", *options, "--out", "made", "--size", 48)
    done = call_cli(*asked, "--counts", "8,4,0", "--ratio", 0.75, "--json")
    assert done.status == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["groups"]["train"]["obj-urban_bg-urban_co_occur_obj-urban"] == 4
    assert len(list((tmp_path / "made").rglob("*.jpg"))) == told["pictures"]
    again = call_cli(*asked, "--counts", "8,4,0")
    assert again.status == 2
    assert "--out: made exists and is not empty" in again.stderr
    wrong = call_cli(*asked, "--counts", "8,4")
    assert wrong.status == 2
    assert "--counts: give three numbers" in wrong.stderr

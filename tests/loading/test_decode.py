"""Decoding: right pixels, faults with reasons, one pass only."""

import os

import numpy as np
import pytest
from PIL import Image

import miniatures
from sebra.errors import UsageError
from sebra.loading import decode
from sebra.loading.decode import auto_size, load_images
from sebra.samples import picture
from sebra.samples.open import open_samples
from sebra.samples.picture import decode_image


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path / "cache"))


def test_rows_are_the_images_of_the_samples(tmp_path):
    samples = open_samples(str(miniatures.folder(tmp_path / "d", n=40)))
    loaded, images = load_images(samples, 24)
    assert loaded.ids.tolist() == samples.ids.tolist()
    for row in (0, 33, 79):
        with Image.open(samples.content.paths[row]) as image:
            wanted = np.asarray(image.resize((24, 24), Image.Resampling.BILINEAR))
        assert np.array_equal(images.pixels[images.rows[row]], wanted)


def test_progress_reaches_the_end_and_a_second_run_decodes_nothing(tmp_path, monkeypatch):
    samples = open_samples(str(miniatures.folder(tmp_path / "d", n=40)))
    seen = []
    _, first = load_images(samples, 16, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (80, 80)
    monkeypatch.setattr(decode, "decode_image", None)
    _, second = load_images(samples, 16)
    assert np.array_equal(first.pixels, second.pixels)


def test_a_changed_file_is_decoded_again(tmp_path):
    samples = open_samples(str(miniatures.folder(tmp_path / "d")))
    _, before = load_images(samples, 16)
    path = samples.content.paths[0]
    Image.new("RGB", (24, 20), (255, 0, 0)).save(path)
    os.utime(path, ns=(1, 1))
    _, after = load_images(samples, 16)
    assert (after.pixels[0] == (255, 0, 0)).all()
    assert not (before.pixels[0] == (255, 0, 0)).all()


def test_faulty_images_are_quarantined_and_rows_stay_right(tmp_path):
    root = miniatures.folder(tmp_path / "d", n=8)
    (root / "cat" / "001.png").write_bytes(b"")
    whole = (root / "dog" / "002.png").read_bytes()
    (root / "dog" / "002.png").write_bytes(whole[: len(whole) // 2])
    (root / "dog" / "003.png").write_text("hello", encoding="utf-8")
    samples = open_samples(str(root))
    loaded, images = load_images(samples, 24)
    reasons = {fault.id: fault.reason for fault in loaded.faults}
    assert reasons.keys() == {"cat/001.png", "dog/002.png", "dog/003.png"}
    assert reasons["cat/001.png"] == "empty file"
    assert "truncated" in reasons["dog/002.png"]
    assert len(loaded) == len(images.rows) == 13
    row = loaded.ids.tolist().index("dog/007.png")
    assert np.array_equal(
        images.pixels[images.rows[row]], decode_image(root / "dog" / "007.png", 24)
    )
    again, _ = load_images(samples, 24)
    assert again.faults == loaded.faults


def test_a_file_that_vanished_is_a_fault(tmp_path):
    root = miniatures.folder(tmp_path / "d")
    samples = open_samples(str(root))
    (root / "cat" / "000.png").unlink()
    loaded, _ = load_images(samples, 16)
    assert [f.reason for f in loaded.faults] == ["file not found"]


def test_more_than_half_unreadable_stops(tmp_path):
    root = miniatures.folder(tmp_path / "d", n=4)
    for name in ("cat/000", "cat/001", "dog/000", "dog/001", "dog/002"):
        (root / f"{name}.png").write_bytes(b"x")
    with pytest.raises(UsageError, match="5 of 8 images cannot be read"):
        load_images(open_samples(str(root)), 16)


def test_a_class_that_faults_leave_with_one_sample_stops(tmp_path):
    root = miniatures.folder(tmp_path / "d", n=3)
    for name in ("cat/000", "cat/001"):
        (root / f"{name}.png").write_bytes(b"x")
    with pytest.raises(UsageError, match="'cat' has 1 training sample,"):
        load_images(open_samples(str(root)), 16)


def test_too_large_images_are_refused(tmp_path, monkeypatch):
    path = miniatures.save(tmp_path / "a.png", 0)
    monkeypatch.setattr(picture, "MAX_PIXELS", 100)
    with pytest.raises(ValueError, match="too large: 24 x 20"):
        decode_image(path, 16)


def _solid(mode, colour, path, **options):
    Image.new(mode, (8, 8), colour).save(path, **options)


@pytest.mark.parametrize(
    ("name", "mode", "colour", "wanted"),
    [
        ("grey.png", "L", 100, (100, 100, 100)),
        ("bit.png", "1", 1, (255, 255, 255)),
        ("half.png", "RGBA", (255, 0, 0, 128), (255, 127, 127)),
        ("clear.png", "LA", (0, 0), (255, 255, 255)),
        ("deep.png", "I;16", 257 * 40, (40, 40, 40)),
        ("print.tif", "CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("float.tif", "F", 0.2, (51, 51, 51)),
    ],
)
def test_colour_modes(tmp_path, name, mode, colour, wanted):
    _solid(mode, colour, tmp_path / name)
    assert np.abs(decode_image(tmp_path / name, 8).astype(int) - wanted).max() <= 1


def test_palette_with_transparency_lies_on_white(tmp_path):
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 0, 0, 255])
    image.save(tmp_path / "opaque.gif")
    image.save(tmp_path / "clear.gif", transparency=1)
    assert (decode_image(tmp_path / "opaque.gif", 8) == (0, 0, 255)).all()
    assert (decode_image(tmp_path / "clear.gif", 8) == 255).all()


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (8, 8), c) for c in ((255, 0, 0), (0, 255, 0))]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (decode_image(tmp_path / "a.gif", 8) == (255, 0, 0)).all()


def test_exif_orientation_is_followed(tmp_path):
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif, quality=95)
    turned = decode_image(tmp_path / "a.jpg", 16)
    assert turned[:6].max() < 30
    assert turned[10:].min() > 225


def test_the_whole_picture_is_kept_when_it_is_wide(tmp_path):
    pixels = np.zeros((10, 100, 3), np.uint8)
    pixels[:, :10] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    square = decode_image(tmp_path / "wide.png", 20)
    assert square.shape == (20, 20, 3)
    assert square[:, 0].min() > 200


def test_large_jpegs_come_out_right(tmp_path):
    ramp = np.linspace(0, 255, 1200).astype(np.uint8)
    pixels = np.broadcast_to(ramp[None, :, None], (900, 1200, 3))
    Image.fromarray(np.ascontiguousarray(pixels)).save(tmp_path / "big.jpg", quality=95)
    small = decode_image(tmp_path / "big.jpg", 32).astype(int)
    assert np.abs(small[..., 0] - np.linspace(4, 251, 32)).max() < 6


@pytest.mark.parametrize(
    ("side", "wanted"), [(20, 32), (33, 64), (160, 160), (161, 192), (900, 224)]
)
def test_auto_size(tmp_path, side, wanted):
    for name in ("a", "b"):
        for i in range(2):
            path = tmp_path / name / f"{i}.png"
            path.parent.mkdir(exist_ok=True)
            Image.new("L", (side, side - 10)).save(path)
    assert auto_size(open_samples(str(tmp_path))) == wanted


def test_image_arrays_are_resized_only_when_the_size_differs():
    samples = open_samples("demo?n=100")
    _, same = load_images(samples, None)
    assert same.pixels is samples.content.pixels
    part = samples.take(np.array([5, 3]))
    smaller, images = load_images(part, 24)
    assert images.pixels.shape == (2, 24, 24, 3)
    for i, row in enumerate((5, 3)):
        original = Image.fromarray(samples.content.pixels[row])
        wanted = np.asarray(original.resize((24, 24), Image.Resampling.BILINEAR))
        assert np.array_equal(smaller.content.pixels[smaller.content.rows[i]], wanted)


def test_features_have_no_images(tmp_path):
    with pytest.raises(UsageError, match="holds features, not images"):
        load_images(open_samples(str(miniatures.npz(tmp_path / "x.npz"))), 16)

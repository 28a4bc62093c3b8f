"""The mark of ImageNet-W against its published description."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from fonts import write_font
from sebra.errors import UsageError
from sebra_bench.companions import watermark
from sebra_bench.companions.watermark import Watermark, font_size


@pytest.fixture(scope="module")
def font(tmp_path_factory):
    return str(write_font(tmp_path_factory.mktemp("fonts") / "squares.ttf"))


def marked_at(pixels):
    """First and last row, first and last column that the mark changed."""
    rows, columns = np.nonzero((pixels[0] != 0).any(axis=-1))
    return rows.min(), rows.max(), columns.min(), columns.max()


def test_six_characters_across_the_middle_in_half_white(font):
    black = np.zeros((1, 224, 224, 3), np.uint8)
    out = Watermark(font=font).mark(black)
    top, bottom, left, right = marked_at(out)
    assert left == pytest.approx(0.01 * 224, abs=1)
    assert top == pytest.approx(0.4 * 224, abs=1)
    assert bottom - top + 1 == pytest.approx(36, abs=1)
    assert right - left + 1 == pytest.approx(6 * 36, abs=1)
    assert out.max() == 128
    assert (out[0, 100, 20] == 128).all()
    assert not black.any()


def test_half_of_what_is_there_shines_through(font):
    pixels = np.full((2, 64, 64, 3), 200, np.uint8)
    pixels[1] = (0, 100, 255)
    out = Watermark(font=font).mark(pixels)
    assert out[0, 30, 30].tolist() == [228] * 3
    assert out[1, 30, 30].tolist() == [128, 178, 255]
    assert (out[:, :20] == pixels[:, :20]).all()
    assert (out[:, 45:] == pixels[:, 45:]).all()


def test_the_published_characters():
    assert watermark.TEXT == "捷径捷径捷径"


@pytest.mark.parametrize(
    ("side", "size"), [(224, 36), (384, 62), (512, 82), (518, 84), (256, 41), (64, 10), (3, 1)]
)
def test_the_font_grows_with_the_picture(side, size):
    assert font_size(side) == size


def test_is_what_pillow_draws_with_transparency():
    side, text = 96, "SHORTCUT"
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (1, side, side, 3), dtype=np.uint8)
    layer = Image.new("RGBA", (side, side), (255, 255, 255, 0))
    face = ImageFont.load_default(font_size(side))
    white = (255, 255, 255, 128)
    ImageDraw.Draw(layer).text((0.01 * side, 0.4 * side), text, fill=white, font=face)
    expected = Image.alpha_composite(Image.fromarray(pixels[0]).convert("RGBA"), layer)
    difference = Watermark(text).mark(pixels)[0].astype(int) - np.asarray(expected.convert("RGB"))
    assert np.abs(difference).max() <= 1


def test_without_a_font_that_has_the_characters_the_user_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(watermark, "KNOWN_FONTS", ())
    monkeypatch.setattr(watermark.shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match=r"fonts-noto-cjk\) or give font=FILE"):
        Watermark()
    other = write_font(tmp_path / "other.ttf", "ab")
    with pytest.raises(UsageError, match="lacks characters of '捷径捷径捷径'"):
        Watermark(font=str(other))
    with pytest.raises(UsageError, match="is not a file"):
        Watermark(font=str(tmp_path / "none.ttf"))


def test_a_font_of_the_system_is_found(monkeypatch, font):
    monkeypatch.setattr(watermark, "KNOWN_FONTS", ((font, 0),))
    assert Watermark().alpha(64, 64).any()

"""Augmentation of a batch against one picture at a time, for given random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sebra.loading.augment import Augment


def pictures(n: int = 5, height: int = 7, width: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, 3, height, width), dtype=torch.uint8, generator=generator)


def numbers(n: int, count: int) -> torch.Tensor:
    return torch.rand(n, count, generator=torch.Generator().manual_seed(1))


def naive_crop(image: np.ndarray, rand: list[float], mirrored: bool, least: float) -> np.ndarray:
    """Every pixel looked up on its own in the rectangle that the numbers describe."""
    _, height, width = image.shape
    area = least + (1 - least) * rand[0]
    ratio = (4 / 3) ** (2 * rand[1] - 1)
    share = min(1.0, math.sqrt(area * ratio)), min(1.0, math.sqrt(area / ratio))
    left = rand[2] * (1 - share[0]) * width
    top = rand[3] * (1 - share[1]) * height
    out = np.zeros(image.shape)
    for i in range(height):
        for j in range(width):
            column = width - 1 - j if mirrored else j
            x = left + (column + 0.5) * share[0] - 0.5
            y = top + (i + 0.5) * share[1] - 0.5
            x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
            x0, y0 = int(x), int(y)
            x1, y1 = min(x0 + 1, width - 1), min(y0 + 1, height - 1)
            upper = image[:, y0, x0] * (1 - (x - x0)) + image[:, y0, x1] * (x - x0)
            lower = image[:, y1, x0] * (1 - (x - x0)) + image[:, y1, x1] * (x - x0)
            out[:, i, j] = upper * (1 - (y - y0)) + lower * (y - y0)
    return out


def test_flip_mirrors_exactly_the_pictures_whose_number_is_below_one_half():
    images = pictures(6)
    rand = torch.tensor([[0.0], [0.49], [0.5], [0.99], [0.2], [0.8]])
    out = Augment(flip=True)(images, rand)
    for i, mirrored in enumerate((True, True, False, False, True, False)):
        expected = images[i].numpy()[:, :, ::-1] if mirrored else images[i].numpy()
        np.testing.assert_array_equal(out[i].numpy(), expected)


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("least", [0.3, 0.9])
def test_crops_equal_a_lookup_pixel_by_pixel(flip, least):
    images, augment = pictures(), Augment(flip, least)
    rand = numbers(5, augment.randoms)
    out = augment(images, rand)
    for i in range(5):
        row = rand[i].tolist()
        mirrored = flip and row[4] < 0.5
        expected = naive_crop(images[i].numpy().astype(float), row, mirrored, least)
        np.testing.assert_allclose(out[i].numpy(), expected, atol=0.05)


def test_a_crop_of_everything_is_the_picture_itself():
    images = pictures(2)
    rand = torch.tensor([[1.0, 0.5, 0.3, 0.7]] * 2)  # all of the area, its own shape
    out = Augment(crop=0.5)(images, rand)
    np.testing.assert_allclose(out.numpy(), images.float().numpy(), atol=1e-2)


@pytest.mark.parametrize(
    ("augment", "count"),
    [(Augment(), 0), (Augment(flip=True), 1), (Augment(crop=0.5), 4), (Augment(True, 0.5), 5)],
)
def test_says_how_many_numbers_it_needs(augment, count):
    assert augment.randoms == count
    images = pictures(2)
    assert augment(images, numbers(2, count)).shape == images.shape


def test_without_augmentation_the_batch_is_untouched():
    images = pictures(2)
    assert Augment()(images, torch.zeros(2, 0)) is images

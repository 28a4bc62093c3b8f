"""The published layouts: what is read, and that a wrong folder is told."""

import numpy as np
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.samples.table import alignment, true_groups
from sebra_bench.layouts.celeba import training_sizes


def group_counts(samples, split):
    """Per class, how many samples of each true group a split holds."""
    rows = samples.rows(split)
    groups = 2 ** len(samples.attributes)
    keys = samples.labels[rows] * groups + true_groups(samples)[rows]
    return np.bincount(keys, minlength=groups * len(samples.classes)).reshape(-1, groups).tolist()


class TestUrbanCars:
    def test_words_of_the_folder_names(self, tmp_path):
        samples = open_samples(f"urbancars:{miniatures.urbancars(tmp_path)}")
        assert samples.classes == ("urban", "country")
        assert list(samples.attributes) == ["background", "object"]
        assert group_counts(samples, "train") == [[6, 2, 2, 2]] * 2
        assert group_counts(samples, "val") == [[2, 2, 2, 2]] * 2
        name = "bg-0.5_co_occur_obj-0.5/test/obj-urban_bg-country_co_occur_obj-urban/000.jpg"
        row = samples.ids.tolist().index(name)
        _, aligned = alignment(samples)
        assert samples.labels[row] == 0
        assert aligned[row].tolist() == [False, True]

    def test_alignment_is_fixed_even_where_training_says_otherwise(self, tmp_path):
        samples = open_samples(f"urbancars:{miniatures.urbancars(tmp_path, 2, 6)}")
        assert group_counts(samples, "train") == [[2, 6, 6, 6]] * 2

    def test_the_published_counts(self, data_root):
        samples = open_samples(f"urbancars:{data_root / 'urbancars'}")
        assert group_counts(samples, "train") == [[3610, 190, 190, 10]] * 2
        assert group_counts(samples, "test") == [[125, 125, 125, 125]] * 2

    def test_wrong_folders(self, tmp_path):
        with pytest.raises(UsageError, match=r"no bg-.*train folder"):
            open_samples(f"urbancars:{tmp_path}")
        miniatures.urbancars(tmp_path)
        (tmp_path / "bg-0.95_co_occur_obj-0.95" / "train" / "cows").mkdir()
        with pytest.raises(UsageError, match="cows is not named obj-"):
            open_samples(f"urbancars:{tmp_path}")


class TestBar:
    def test_class_is_the_name_before_the_number(self, tmp_path):
        samples = open_samples(f"bar:{miniatures.bar(tmp_path)}")
        assert samples.classes == ("climbing", "diving", "pole vaulting")
        assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [9, 0, 9]
        row = samples.ids.tolist().index("test/pole vaulting_1.jpg")
        assert samples.labels[row] == 2

    def test_the_published_counts(self, data_root):
        samples = open_samples(f"bar:{data_root / 'bar'}")
        assert (len(samples.rows("train")), len(samples.rows("test"))) == (1941, 654)
        assert len(samples.classes) == 6

    def test_wrong_folders(self, tmp_path):
        with pytest.raises(UsageError, match="train: no such folder"):
            open_samples(f"bar:{tmp_path}")
        miniatures.bar(tmp_path)
        miniatures.save(tmp_path / "train" / "photo.jpg", 1)
        with pytest.raises(UsageError, match=r"photo\.jpg is not named CLASS_NUMBER"):
            open_samples(f"bar:{tmp_path}")


class TestCelebA:
    def test_balanced_held_out_and_biased_training(self, tmp_path):
        samples = open_samples(f"celeba:{miniatures.celeba(tmp_path)}")
        assert samples.classes == ("not smiling", "smiling")
        assert list(samples.attributes) == ["Male", "Young"]
        assert group_counts(samples, "val") == [[2] * 4] * 2
        assert group_counts(samples, "test") == [[4] * 4] * 2
        train = group_counts(samples, "train")
        assert train[0] == train[1]
        assert train[0][0] > 5 * train[0][1] > 0
        assert train[0][3] >= 1

    def test_draws_differ_and_each_is_disjoint(self, tmp_path):
        data = f"celeba:{miniatures.celeba(tmp_path)}"
        first, second = open_samples(data), open_samples(f"{data}?split=1")
        assert len(set(first.ids)) == len(first)
        assert set(first.ids[first.rows("val")]) != set(second.ids[second.rows("val")])

    def test_rest_uses_every_image(self, tmp_path):
        data = f"celeba:{miniatures.celeba(tmp_path)}"
        plain, rest = open_samples(data), open_samples(f"{data}?test=rest")
        assert len(rest) == 6 * 12 + 2 * 60
        assert set(plain.ids[plain.rows("train")]) == set(rest.ids[rest.rows("train")])

    def test_the_first_ten_thousand(self, data_root):
        samples = open_samples(f"celeba:{data_root / 'celeba'}")
        assert group_counts(samples, "train") == [[748, 39, 39, 2]] * 2
        assert group_counts(samples, "val") == [[40] * 4] * 2
        assert group_counts(samples, "test") == [[80] * 4] * 2

    def test_training_size_is_the_largest_possible(self):
        sizes = training_sizes(np.array([[748, 500, 500, 99], [2000, 500, 500, 99]]))
        assert sizes.tolist() == [[748, 39, 39, 2]] * 2
        limited = training_sizes(np.array([[9000, 19, 500, 99], [9000, 500, 500, 99]]))
        assert limited[0, 1] == 19

    def test_wrong_folders(self, tmp_path):
        with pytest.raises(UsageError, match=r"list_attr_celeba\.txt is missing"):
            open_samples(f"celeba:{tmp_path}")
        miniatures.celeba(tmp_path)
        file = tmp_path / "list_attr_celeba.txt"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("Young", "Old"), encoding="utf-8")
        with pytest.raises(UsageError, match="no attribute Young"):
            open_samples(f"celeba:{tmp_path}")
        file.write_text(text.replace("000003.jpg ", "000003.jpg 1 "), encoding="utf-8")
        with pytest.raises(UsageError, match="line 5 has 5 values, not 4"):
            open_samples(f"celeba:{tmp_path}")

    def test_too_few_images(self, tmp_path):
        with pytest.raises(UsageError, match="has only 3 images"):
            open_samples(f"celeba:{miniatures.celeba(tmp_path, per_group=3)}")


class TestColoredMnist:
    @pytest.mark.parametrize("zipped", [True, False])
    def test_training_is_biased_and_the_rest_is_not(self, tmp_path, zipped):
        root = miniatures.mnist(tmp_path, train=2400, test=1000, zipped=zipped)
        samples = open_samples(f"cmnist:{root}?ratio=0.9")
        assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [2200, 200, 1000]
        _, aligned = alignment(samples)
        assert aligned[samples.rows("train"), 0].mean() == pytest.approx(0.9, abs=0.002)
        assert 0.05 < aligned[samples.rows("test"), 0].mean() < 0.15

    def test_pictures_have_the_colour_of_their_code(self, tmp_path):
        samples = open_samples(f"cmnist:{miniatures.mnist(tmp_path)}")
        colour = samples.attributes["colour"]
        means = samples.content.pixels.reshape(len(samples), -1, 3).mean(axis=1)
        red = means[colour.codes == colour.levels.index("red")]
        blue = means[colour.codes == colour.levels.index("blue")]
        assert (red.argmax(axis=1) == 0).all()
        assert (blue.argmax(axis=1) == 2).all()

    def test_png_folders(self, tmp_path):
        samples = open_samples(f"cmnist:{miniatures.mnist_pictures(tmp_path)}")
        assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [110, 10, 30]
        assert all(
            samples.classes[c] == i.split("/")[1]
            for i, c in zip(samples.ids, samples.labels, strict=True)
        )
        assert len(set(samples.labels[samples.rows("val")])) > 1

    def test_fewer_training_images(self, tmp_path):
        samples = open_samples(f"cmnist:{miniatures.mnist(tmp_path)}?n=100")
        assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [100, 20, 40]

    def test_the_real_files(self, data_root):
        samples = open_samples(f"cmnist:{data_root / 'mnist'}?n=1000")
        assert [len(samples.rows(s)) for s in ("train", "val", "test")] == [1000, 5000, 10000]
        assert samples.labels[:5].tolist() == [5, 0, 4, 1, 9]

    def test_wrong_files(self, tmp_path):
        with pytest.raises(UsageError, match="neither train-images"):
            open_samples(f"cmnist:{tmp_path}")
        miniatures.mnist(tmp_path, zipped=False)
        file = tmp_path / "train-images-idx3-ubyte"
        file.write_bytes(file.read_bytes()[:-5])
        with pytest.raises(UsageError, match="not an IDX file"):
            open_samples(f"cmnist:{tmp_path}")


class TestDemo:
    def test_group_structure(self):
        samples = open_samples("demo")
        assert samples.classes == ("boat", "plane")
        assert samples.attributes["background"].levels == ("sea", "land")
        assert group_counts(samples, "train") == [[902, 48, 48, 2]] * 2
        assert group_counts(samples, "val") == [[50] * 4] * 2
        assert group_counts(samples, "test") == [[125] * 4] * 2
        assert samples.content.pixels.shape == (3400, 48, 48, 3)

    def test_same_seed_same_pixels_other_seed_other_pixels(self):
        first, again, other = (open_samples(f"demo?n=100&seed={s}") for s in (0, 0, 1))
        assert np.array_equal(first.content.pixels, again.content.pixels)
        assert not np.array_equal(first.content.pixels, other.content.pixels)

    @pytest.mark.parametrize(
        ("biases", "names", "train"),
        [
            (0, ["background", "companion"], [50, 50, 50, 50]),
            (1, ["background"], [190, 10]),
            (2, ["background", "companion"], [178, 10, 10, 2]),
            (3, ["background", "companion", "light"], [165, 9, 9, 2, 9, 2, 2, 2]),
        ],
    )
    def test_number_of_biases(self, biases, names, train):
        samples = open_samples(f"demo?n=400&biases={biases}")
        assert list(samples.attributes) == names
        assert group_counts(samples, "train") == [train] * 2

    def test_background_is_the_colour_it_is_called(self):
        samples = open_samples("demo?n=200")
        border = samples.content.pixels[:, :, :3].reshape(len(samples), -1, 3).astype(float)
        bluer = border[..., 2].mean(axis=1) > border[..., 1].mean(axis=1)
        assert (bluer == (samples.attributes["background"].codes == 0)).mean() > 0.97

"""Waterbirds, Living17 and ImageNet: what is read, and that wrong folders are told."""

import json
import shutil

import numpy as np
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.measuring.groups import score
from sebra.samples.open import open_samples
from sebra.samples.table import true_groups
from sebra_bench.companions.measure import companions_of
from sebra_bench.layouts.living17 import subpopulations


def splits(samples):
    return [len(samples.rows(split)) for split in ("train", "val", "test")]


class TestWaterbirds:
    def test_the_table_decides_class_split_and_place(self, tmp_path):
        samples = open_samples(f"waterbirds:{miniatures.waterbirds(tmp_path)}")
        assert samples.classes == ("landbird", "waterbird")
        assert splits(samples) == [16, 8, 8]
        rows = samples.rows("train")
        counts = np.bincount(2 * samples.labels[rows] + true_groups(samples)[rows])
        assert counts.tolist() == [6, 2, 6, 2]
        table = (tmp_path / "metadata.csv").read_text(encoding="utf-8").splitlines()
        for line in (table[1], table[-1]):
            _, name, bird, split, place, _ = line.split(",")
            row = samples.ids.tolist().index(name)
            assert samples.labels[row] == int(bird)
            assert samples.split[row] == int(split)
            assert samples.attributes["place"].codes[row] == int(place)

    def test_a_place_is_aligned_by_its_name_not_by_its_frequency(self, tmp_path):
        samples = open_samples(f"waterbirds:{miniatures.waterbirds(tmp_path, 2, 6)}")
        rows = samples.rows("train")
        assert np.bincount(true_groups(samples)[rows]).tolist() == [4, 12]

    def test_wrong_tables(self, tmp_path):
        with pytest.raises(UsageError, match=r"metadata\.csv is missing"):
            open_samples(f"waterbirds:{tmp_path}")
        file = miniatures.waterbirds(tmp_path) / "metadata.csv"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("place,", "where,"), encoding="utf-8")
        with pytest.raises(UsageError, match="no column place"):
            open_samples(f"waterbirds:{tmp_path}")
        lines = text.splitlines()
        lines[3] = lines[3].replace(",0,0,0,", ",0,train,0,")
        file.write_text("\n".join(lines), encoding="utf-8")
        with pytest.raises(UsageError, match="line 4: split is 'train', not 0, 1, 2"):
            open_samples(f"waterbirds:{tmp_path}")


class TestLiving17:
    def test_the_assignment_is_17_kinds_of_four(self):
        parts = subpopulations()
        kinds = {part.kind for part in parts}
        assert len(parts) == len({part.synset for part in parts}) == 68
        assert len(kinds) == 17
        for kind in kinds:
            domains = [part.domain for part in parts if part.kind == kind]
            assert domains == ["source", "source", "target", "target"]
        cats = {part.name: part.domain for part in parts if part.kind == "domestic cat"}
        assert cats["Egyptian cat"] == "source"
        assert cats["Siamese cat"] == "target"

    def test_trains_on_the_source_and_tests_on_both(self, tmp_path):
        samples = open_samples(f"living17:{miniatures.living17(tmp_path)}")
        assert len(samples.classes) == 17
        assert splits(samples) == [34 * 2, 0, 68]
        domain = samples.attributes["domain"]
        assert set(domain.codes[samples.rows("train")]) == {0}
        test = samples.rows("test")
        assert np.bincount(domain.codes[test]).tolist() == [34, 34]
        bear = samples.ids.tolist().index("val/n02134084/n02134084_0.JPEG")
        assert samples.classes[samples.labels[bear]] == "bear"
        assert domain.levels[domain.codes[bear]] == "target"

    def test_the_gap_is_what_the_other_subpopulations_cost(self, tmp_path):
        samples = open_samples(f"living17:{miniatures.living17(tmp_path)}")
        rows = samples.rows("test")
        target = samples.attributes["domain"].codes[rows] == 1
        predicted = np.where(target, (samples.labels[rows] + 1) % 17, samples.labels[rows])
        predicted[np.flatnonzero(target)[::2]] = samples.labels[rows][target][::2]
        found = score(samples, rows, predicted)
        assert found.id_accuracy == 100
        assert found.gaps == {"domain": -50}

    def test_all_domains_have_the_subpopulation_as_attribute(self, tmp_path):
        samples = open_samples(f"living17:{miniatures.living17(tmp_path)}?domains=all")
        assert splits(samples) == [68 * 2, 0, 68]
        names = samples.attributes["subpopulation"]
        for row, name in enumerate(samples.ids):
            part = next(p for p in subpopulations() if p.synset == name.split("/")[1])
            assert names.levels[names.codes[row]] == part.name

    def test_wrong_folders(self, tmp_path):
        miniatures.living17(tmp_path)
        with pytest.raises(UsageError, match="domains must be source or all, not 'both'"):
            open_samples(f"living17:{tmp_path}?domains=both")
        shutil.rmtree(tmp_path / "val" / "n02493509")
        with pytest.raises(UsageError, match=r"val has no folder n02493509 \(titi\)"):
            open_samples(f"living17:{tmp_path}")


class TestImageNet:
    def test_class_is_the_synset_and_val_is_the_test_split(self, tmp_path):
        samples = open_samples(f"imagenet:{miniatures.imagenet(tmp_path)}")
        assert samples.classes == miniatures.SYNSETS
        assert splits(samples) == [48, 0, 24]
        row = samples.ids.tolist().index("val/n02971356/n02971356_3.JPEG")
        assert samples.labels[row] == 2

    def test_a_part_of_the_classes_and_of_the_training_images(self, tmp_path):
        root = miniatures.imagenet(tmp_path / "in")
        samples = open_samples(f"imagenet:{root}?classes=n07753592,n01443537&per_class=5")
        assert samples.classes == ("n01443537", "n07753592")
        assert splits(samples) == [10, 0, 12]
        listed = tmp_path / "some.txt"
        listed.write_text("n07753592\nn01443537\n", encoding="utf-8")
        assert open_samples(f"imagenet:{root}?classes={listed}").classes == samples.classes

    def test_wrong_folders(self, tmp_path):
        root = miniatures.imagenet(tmp_path)
        with pytest.raises(UsageError, match="no folder 'n09999999'"):
            open_samples(f"imagenet:{root}?classes=n01443537,n09999999")
        with pytest.raises(UsageError, match="neither a synset nor a file"):
            open_samples(f"imagenet:{root}?classes=goldfish")
        with pytest.raises(UsageError, match="w must be 0 or 1"):
            open_samples(f"imagenet:{root}?w=2")
        with pytest.raises(UsageError, match=r"nowhere: no such folder \(imagenet: inr\)"):
            open_samples(f"imagenet:{root}?inr={tmp_path}/nowhere")
        shutil.rmtree(root / "val")
        miniatures.save(root / "val" / "ILSVRC2012_val_00000001.JPEG", 1)
        with pytest.raises(UsageError, match="in one heap; sort them into synset folders"):
            open_samples(f"imagenet:{root}")


class TestCompanions:
    def test_none_unless_asked_for(self, tmp_path):
        assert companions_of(f"imagenet:{miniatures.imagenet(tmp_path)}") is None
        assert companions_of("demo?n=50") is None
        assert companions_of("pictures/") is None

    def test_renditions_are_those_of_the_classes_in_use(self, tmp_path):
        root = miniatures.imagenet(tmp_path / "in")
        r = miniatures.synset_folder(tmp_path / "r", ("n01443537", "n02056570", "n02113023"), 3)
        found = companions_of(f"imagenet:{root}?inr={r}").inr
        assert found.classes == ("n01443537", "n02056570")
        assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
        with pytest.raises(UsageError, match="shares 1 classes with the data"):
            companions_of(f"imagenet:{root}?inr={r}&classes=n01443537,n07753592")

    def test_superclasses_by_synset(self, tmp_path):
        root = miniatures.imagenet(tmp_path / "in")
        nine = miniatures.imagenet_9(tmp_path / "nine")
        found = companions_of(f"imagenet:{root}?in9={nine}").in9
        assert found.answers.tolist() == [0, 1, -1, -1]
        assert found.mixed_same.labels.tolist() == [0] * 4 + [1] * 4
        assert len(found.mixed_rand) == 8
        part = companions_of(f"imagenet:{root}?in9={nine}&classes=n02056570,n07753592").in9
        assert set(part.mixed_same.labels) == {1}

    def test_superclasses_by_published_number(self, tmp_path):
        root = miniatures.imagenet(tmp_path / "in")
        nine = miniatures.imagenet_9(tmp_path / "nine")
        mapping = {str(i): -1 for i in range(1000)} | {"1": 0, "145": 1}
        (nine / "in_to_in9.json").write_text(json.dumps(mapping), encoding="utf-8")
        data = f"imagenet:{root}?in9={nine}&classes={','.join(miniatures.SYNSETS)}"
        with pytest.raises(UsageError, match=r"numbers the 1000 classes of ImageNet, but .* has 4"):
            companions_of(data)
        # As in ImageNet, the goldfish is the second class and the penguin number 145.
        before = [f"n0144{i:04d}" for i in range(1)] + [f"n0150{i:04d}" for i in range(143)]
        after = [f"n0990{i:04d}" for i in range(1000 - 4 - len(before))]
        for name in (*before, *after):
            (root / "train" / name).mkdir()
        found = companions_of(data).in9
        assert found.answers.tolist() == [0, 1, -1, -1]

    def test_wrong_companions(self, tmp_path):
        root = miniatures.imagenet(tmp_path / "in")
        nine = miniatures.imagenet_9(tmp_path / "nine")
        with pytest.raises(UsageError, match="carton: 'n01111111' is no class"):
            companions_of(f"imagenet:{root}?w=1&carton=n01111111")
        (nine / "in_to_in9.json").write_text("[1, 2]", encoding="utf-8")
        with pytest.raises(UsageError, match="must map classes to superclass numbers"):
            companions_of(f"imagenet:{root}?in9={nine}")
        (nine / "in_to_in9.json").unlink()
        with pytest.raises(UsageError, match=r"in_to_in9\.json is missing"):
            companions_of(f"imagenet:{root}?in9={nine}")

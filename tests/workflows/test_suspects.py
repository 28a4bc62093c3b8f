"""The noise column: wrong labels of a manifest are found, and looked for once."""

from __future__ import annotations

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.metrics import average_precision_score

from sebra.cli.main import run as cli
from sebra.ranking import noise, peel
from sebra.samples.open import open_samples
from sebra.workflows import rank as suspects
from sebra.workflows.prepared import Source
from sebra.workflows.rank import RankOptions, rank
from sebra_bench.label_noise import inject_noise


def test_wrong_labels_of_a_manifest_are_found(tmp_path):
    """The gate of the demo at a size that tests can afford."""
    samples = open_samples("demo?n=600")
    noisy, changed = inject_noise(samples, 0.1)
    train = samples.rows("train")
    names = [f"{i}.png" for i in train]
    for name, row in zip(names, train.tolist(), strict=True):
        Image.fromarray(samples.content.pixels[samples.content.rows[row]]).save(tmp_path / name)
    labels = np.asarray(samples.classes)[noisy.labels[train]]
    pd.DataFrame({"path": names, "label": labels}).to_csv(tmp_path / "data.csv", index=False)
    command = ["rank", str(tmp_path / "data.csv"), "--mode", "features", "--backbone", "random"]
    more = ["--method", "random", "--device", "cpu", "--out", str(tmp_path / "run")]
    assert cli([*command, *more]) == 0
    table = pd.read_parquet(tmp_path / "run" / "ranking.parquet").set_index("id").loc[names]
    wrong = changed[train]
    assert average_precision_score(wrong, table["noise"]) > 0.75
    flagged = table[table["noise"] >= 0.5]
    assert len(flagged)
    assert (flagged["suggested"] != flagged["label"]).all()
    assert flagged["why"].str.contains("looks more like").all()
    assert (table.loc[table["noise"] < 0.5, "why"] == "").all()


def test_a_ranker_that_estimates_noise_spares_the_run_a_second_estimate(monkeypatch):
    calls = []

    def estimate(task):
        calls.append(task)
        return noise.estimate_noise(task)

    monkeypatch.setattr(peel, "estimate_noise", estimate)
    monkeypatch.setattr(suspects, "estimate_noise", estimate)
    monkeypatch.setattr("sebra.workflows.rank.run_controls", lambda *_: None)  # estimate for copies
    source = Source("demo?n=300", device="cpu", mode="features", backbone="random")
    plain = rank(source, RankOptions("random")).ranking
    assert len(calls) == 1
    columns = ["noise", "suggested", "why"]
    for settings in ((), ("least_noise=1",)):  # with the second the ranker looks for no noise
        calls.clear()
        peeled = rank(source, RankOptions("peel", overrides=settings)).ranking
        assert len(calls) == 1
        pd.testing.assert_frame_equal(peeled.table[columns], plain.table[columns])
        assert peeled.details["suspects"] == plain.details["suspects"]

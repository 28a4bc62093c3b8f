"""What a report says, without a browser."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sebra.samples.table import Fault, FeatureArray, Texts
from sebra.showing.findings import in_words
from sebra.showing.picking import END, pick
from sebra.showing.ranked import ranked_of
from sebra.showing.report import report_html, write_report

from .conftest import HOSTILE, full_run, make_run


@pytest.fixture(scope="module")
def html() -> str:
    """The report of a run that knows everything."""
    return report_html(full_run())


def data_of(html: str, name: str = "data") -> dict:
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.S)
    assert found
    return json.loads(found[1])


def gallery(html: str, label: str) -> list[str]:
    """The ids of one gallery, in the order they are shown."""
    ids = data_of(html)["columns"]["id"]
    part = html.split(f'aria-label="{label}"')[1].split("</ul>", maxsplit=1)[0]
    return [ids[int(n)] for n in re.findall(r'data-s="(\d+)"', part)]


def test_galleries_hold_twelve_from_each_end_in_the_order_of_the_ranking(html: str) -> None:
    run = full_run()
    for label in run.samples.classes:
        order = run.table[run.table["label"] == label].sort_values("rank")["id"].tolist()
        assert gallery(html, f"Most spurious of {label}") == order[:12]
        assert gallery(html, f"Least spurious of {label}") == order[-12:]


def test_pictures_of_the_galleries_show_without_scripts() -> None:
    run = make_run()
    html = report_html(run)
    body = html.split('<script type="application/json"')[0]
    assert body.count('src="data:image/jpeg;base64,') == 2 * END * len(run.samples.classes)


def test_a_small_class_is_shown_once() -> None:
    ranked = ranked_of(*_table_and_samples(make_run(n=15, classes=("a", "b", "c"))))
    picked = pick(ranked)
    for c in range(3):
        shown = [*picked.most[c], *picked.least[c]]
        assert shown == ranked.orders[c].tolist()


def _table_and_samples(run):
    return run.table, run.samples


def test_the_two_sides_of_a_bias_differ_in_its_attribute() -> None:
    run = full_run()
    ranked = ranked_of(run.table, run.samples)
    picked = pick(ranked)
    for stage, attribute in (("stage_1", "place"), ("stage_2", "light")):
        follows = run.samples.attributes[attribute].codes == run.samples.labels
        for contrast in picked.contrasts[stage]:
            assert len(contrast.follows) == len(contrast.breaks) == 12
            assert follows[ranked.rows[contrast.follows]].all()
            assert not follows[ranked.rows[contrast.breaks]].any()


def test_a_bias_is_named_by_the_attribute_it_goes_with(html: str) -> None:
    first, second = html.split('id="bias-1"')[1].split('id="bias-2"')
    assert "Goes with <b><bdi" in first
    assert "place</bdi></b> (agreement 1.00 of 1)" in first
    assert "light</bdi></b> (agreement 1.00 of 1)" in second.split('id="suspects"')[0]


def test_a_pattern_is_a_sentence_with_what_rests_on_it_before_anything_else(html: str) -> None:
    assert html.index('id="summary"') < html.index('id="biases"') < html.index('id="next"')
    first, second = html.split('id="bias-1"')[1].split('id="bias-2"')
    assert re.search(r"7\d % of <bdi class=\"name\">boat</bdi>: <b>bluer</b>", first)
    assert "right on <b>97 %</b> of those that follow it and on <b>32 %</b> of the 50" in first
    assert "<b>bluer</b> (0.98), <b>bluer at the top</b> (0.91)" in first
    assert "A pattern without a word for it" in second
    for jargon in ("bucket", "Somers", "rounds"):
        assert jargon not in html.split("<main")[1].split('id="classes"', 1)[0]


def test_the_telling_words_of_texts_are_marked() -> None:
    run = make_run(attributes=(), pixels=False)
    texts = [f"sentence {i} <b>honestly</b> said" for i in range(240)]
    run = replace(run, samples=replace(run.samples, content=Texts(tuple(texts))))
    run.table["stage_1"] = np.where(np.arange(240) % 5, 0.9, 0.1)
    word = {"kind": "phrase", "area": 1.0, "phrases": {"boat": "contains “honestly”"}}
    metrics = {"ranking": {"patterns": [{"words": [word]}]}}
    html = report_html(replace(run, metrics=metrics))
    assert "&lt;b&gt;<mark>honestly</mark>&lt;/b&gt; said" in html
    assert '<body class="text">' in html


def test_a_table_shows_the_columns_that_tell_with_both_sides() -> None:
    run = make_run(attributes=(), pixels=False)
    values = np.random.default_rng(0).normal(size=(240, 3)).astype(np.float32)
    run.table["stage_1"] = np.where(np.arange(240) % 5, 0.9, 0.1)
    values[:, 1] += 4 * (run.table["stage_1"].to_numpy() > 0.5)
    content = FeatureArray(values, np.arange(240), ("age", "income", "visits"))
    html = report_html(replace(run, samples=replace(run.samples, content=content)))
    shown = html.split('id="biases"')[1].split("</section>")[0]
    assert "Values of income, boat on both sides" in shown
    assert "Values of age" not in shown
    assert re.search(r"income -?[\d.]+, age -?[\d.]+, visits", shown)


@pytest.mark.parametrize(
    ("metrics", "said", "unsaid"),
    [
        ({"verdict": {"state": "cannot tell", "reason": "r"}}, "Look at both ends", "debias"),
        ({"verdict": {"state": "nothing found", "reason": "r"}}, "Train as usual", "debias"),
        ({"evaluation": {"average": 90.0}}, "Compare the model with plain", "debias"),
        ({}, "train a model without it", "Train as usual"),
    ],
    ids=["cannot tell", "nothing", "debiased", "found"],
)
def test_advice_fits_what_was_found_and_done(metrics, said, unsaid) -> None:
    run = make_run(attributes=())
    if metrics.get("verdict", {}).get("state") != "nothing found":
        run.table["stage_1"] = np.where(np.arange(240) % 5, 0.9, 0.1)
    html = report_html(replace(run, metrics=metrics))
    steps = html.split('class="steps"')[1].split("</ol>")[0]
    assert said in steps
    assert unsaid not in steps


def test_a_found_pattern_goes_before_a_column_that_tells_little() -> None:
    run = make_run()
    coin = np.random.default_rng(0).integers(0, 3, len(run.samples))
    known = {k: replace(a, codes=coin) for k, a in run.samples.attributes.items()}
    run.table["stage_1"] = np.where(np.arange(240) % 5, 0.9, 0.1)
    words = [{"kind": "colour", "area": 0.9, "phrases": {"boat": "bluer"}}]
    metrics = {
        "verdict": {"state": "found", "reason": "one pattern"},
        "ranking": {"patterns": [{"words": words}]},
    }
    run = replace(run, samples=replace(run.samples, attributes=known))
    for state, said in (("found", "bluer"), ("cannot tell", "No strong shortcut")):
        metrics["verdict"]["state"] = state
        html = report_html(replace(run, metrics=metrics))
        assert said in html.split('id="summary-title"')[1].split("</h2>")[0]
    assert in_words({**metrics["ranking"]["patterns"][0], "share": {"boat": 0.8}}) == (
        "80 % of boat: bluer"
    )


def test_without_a_pattern_the_reason_and_the_galleries_come_first() -> None:
    metrics = {
        "verdict": {"state": "cannot tell", "reason": "too few; a control"},
        "ranking": {"controls": {"said": ["a control", "another"]}},
    }
    html = report_html(replace(make_run(attributes=()), metrics=metrics))
    assert "Too few; a control." in html.split('id="summary"')[1].split("</section>")[0]
    assert html.index('id="classes"') < html.index('id="next"')
    answers = html.split('class="answers"')[1].split("</dl>")[0]
    assert "Another." in answers
    assert "control" not in answers


def test_a_side_holds_only_those_that_are_on_it() -> None:
    run = make_run(attributes=())
    run.table["stage_1"] = np.where(np.arange(240) % 80 < 3, 0.1, 0.9)
    ranked = ranked_of(run.table, run.samples)
    for contrast in pick(ranked).contrasts["stage_1"]:
        assert (ranked.stages["stage_1"][contrast.follows] > 0.5).all()
        assert (ranked.stages["stage_1"][contrast.breaks] <= 0.5).all()
    broken = sum(len(c.breaks) for c in pick(ranked).contrasts["stage_1"])
    assert broken == (run.table["stage_1"] < 0.5).sum()


def test_rows_are_found_by_id_whatever_their_order(html: str) -> None:
    run = full_run()
    mixed = np.random.default_rng(3).permutation(len(run.samples))
    shuffled = replace(run, samples=run.samples.take(mixed))
    assert data_of(html) == data_of(report_html(shuffled))


def test_the_summary_gives_strength_classes_cost_and_next_steps() -> None:
    html = report_html(replace(full_run(), folder="runs/a b"))
    summary = html.split('id="summary"')[1].split("</section>")[0]
    assert "A strong shortcut" in summary
    summary = html.split('id="next"')[1].split("</section>")[0]
    for said in (
        "place</bdi></b> for",
        "light</bdi></b> for",
        "Share of each class",
        "21.5 %",
        "raises the worst group to 64.2 %",
    ):
        assert said in summary
    assert "sebra debias pictures --ranking &#39;runs/a b&#39;" in summary


def test_nothing_is_claimed_where_nothing_is_known() -> None:
    html = report_html(make_run(attributes=()))
    summary = html.split('id="summary"')[1].split("</section>")[0]
    assert "No figure can say yet whether there is a shortcut" in summary
    assert "strong shortcut" not in summary
    for section in ("biases", "suspects", "groups", "training"):
        assert f'<section id="{section}"' not in html


def test_an_attribute_without_a_link_to_the_class_is_no_shortcut() -> None:
    run = make_run(n=600)
    rng = np.random.default_rng(5)
    samples = replace(
        run.samples,
        attributes={
            "coin": replace(
                run.samples.attributes["place"], name="coin", codes=rng.integers(0, 3, 600)
            )
        },
    )
    assert "No strong shortcut among the known attributes" in report_html(
        replace(run, samples=samples)
    )


def test_the_run_is_described(html: str) -> None:
    section = html.split('id="run"')[1]
    for said in ("sebra audit pictures --seed 3", "settings.p_critical", "0.7", "seed", "9.8.7",
                 "train/broken.png", "empty file", "features mode: there is no GPU"):  # fmt: skip
        assert said in section


def test_figures_over_seeds_show_their_spread() -> None:
    run = replace(full_run(), metrics={"ranking": {"somers_d": {"mean": 0.5, "std": 0.1, "n": 3}}})
    assert "0.50 ± 0.10" in report_html(run)


def test_texts_and_features_have_tiles_without_pictures() -> None:
    run = make_run(n=30)
    words = tuple(f"sentence {i} </script>" for i in range(30))
    html = report_html(replace(run, samples=replace(run.samples, content=Texts(words))))
    assert "sentence 0 &lt;/script&gt;" in html
    features = FeatureArray(np.zeros((30, 2), dtype=np.float32), np.arange(30))
    html = report_html(replace(run, samples=replace(run.samples, content=features)))
    assert html.count('class="excerpt"') >= 30


def test_a_picture_that_is_gone_leaves_its_sample() -> None:
    def gone(row: int) -> None:
        raise OSError("moved")

    run = replace(make_run(n=30), thumbnail=gone)
    assert len(data_of(report_html(run))["columns"]["id"]) == 30


def test_hostile_names_are_text_everywhere() -> None:
    run = full_run(
        classes=HOSTILE, attributes=HOSTILE[:3], ids=lambda i: f"{HOSTILE[i % len(HOSTILE)]} {i}"
    )
    run = replace(run, title=HOSTILE[1], data=HOSTILE[0], command=HOSTILE[1], notes=list(HOSTILE))
    html = report_html(run)
    assert len(re.findall(r"<script\b", html)) == 5
    assert len(re.findall(r"</script>", html)) == 5
    assert not re.search(r"<img src=x", html)
    assert "49" not in html.split("{{ 7 * 7 }}")[0][-3:]
    assert data_of(html)["classes"] == list(HOSTILE)


def test_the_script_is_the_only_one_the_policy_allows() -> None:
    import base64
    import hashlib

    html = report_html(make_run(n=30))
    script = re.findall(r"<script>(.*?)</script>", html, re.S)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert f"script-src &#39;sha256-{digest}&#39;" in policy[1]
    assert policy[1].startswith("default-src &#39;none&#39;")


def test_a_name_with_broken_encoding_can_be_written(tmp_path: Path) -> None:
    run = replace(make_run(n=30), faults=[Fault("caf\udce9.png", "empty file")], title="\udce9")
    written = write_report(run, tmp_path / "report.html")
    assert "caf�.png" in written.read_text(encoding="utf-8")


def test_many_classes_and_pictures_stay_under_15_megabytes(tmp_path: Path) -> None:
    classes = tuple(f"class {c:04d} " + "&" * 100 for c in range(200))
    noise = np.random.default_rng(0).integers(0, 255, (80, 80, 3)).astype(np.uint8)

    def noisy(row: int) -> Image.Image:
        return Image.fromarray(noise)  # compresses worse than any photograph

    run = replace(make_run(n=6000, classes=classes, attributes=()), thumbnail=noisy)
    path = write_report(run, tmp_path / "report.html")
    assert 10_000_000 < path.stat().st_size < 15_000_000


def test_long_names_stay_under_15_megabytes(tmp_path: Path) -> None:
    run = make_run(n=5000, ids=lambda i: f"{i:06d}-" + "<" * 4000, attributes=())
    path = write_report(run, tmp_path / "report.html")
    assert path.stat().st_size < 15_000_000


def test_a_run_without_a_ranking_shows_its_models() -> None:
    run = full_run()
    html = report_html(replace(run, table=run.table.iloc[:0]))
    assert "raises the worst group to 64.2 %" in html
    assert '<section id="classes"' not in html


def test_a_heat_map_stands_with_its_bias_and_class() -> None:
    spot = Image.new("RGB", (32, 32), (200, 30, 30))
    html = report_html(replace(full_run(), heatmaps={"stage_2": {"plane": spot}}))
    assert html.count("Where it sits, </span><bdi") == 1
    assert 'alt="Where pattern 2 sits in images of plane, averaged"' in html


def test_a_picture_is_in_the_file_larger_than_in_the_galleries(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def photo(row: int) -> Image.Image:
        coarse = rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)
        return Image.fromarray(coarse).resize((800, 600), Image.Resampling.BICUBIC)

    html = report_html(replace(full_run(), thumbnail=photo))
    assert len(html) < 15_000_000
    large = data_of(html, "large")
    first = Image.open(io.BytesIO(base64.b64decode(next(iter(large.values())).split(",")[1])))
    assert first.size == (533, 400)  # whole: the original's shape


def test_ordinary_checks_are_listed_with_their_examples() -> None:
    check = {"kind": "leakage", "count": 1, "text": "1 picture <b>", "examples": [["a", "b"]]}
    run = full_run()
    html = report_html(replace(run, metrics={**run.metrics, "checks": [check]}))
    assert '<section id="checks"' in html
    assert "1 picture &lt;b&gt;" in html
    assert '<bdi class="name">a</bdi> = <bdi class="name">b</bdi>' in html
    assert '<section id="checks"' not in report_html(run)

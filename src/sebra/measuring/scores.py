"""What a classifier scored, as Python users, `metrics.json` and notebooks see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class GroupScore:
    """One group of evaluated samples: a class and one value of every attribute.

    `alignment` says "aligned" or "conflicting" per attribute. A `small` one has too few samples to
    be judged.
    """

    name: str
    class_name: str
    values: Mapping[str, str]
    alignment: Mapping[str, str]
    n_test: int
    n_train: int
    accuracy: float
    small: bool

    def to_dict(self) -> dict[str, Any]:
        return {"class" if k == "class_name" else k: v for k, v in vars(self).items()}


@dataclass(frozen=True)
class Scores:
    """Accuracies in percent; gaps in points, negative is worse.

    `id_accuracy` weighs groups by their share of the training split, `average` is the plain mean
    over samples, `balanced_average` the mean over groups, `class_average` the mean over classes.
    A figure that the data cannot give is None here and absent from `to_dict()`. Where a group too
    small to judge may be the worst, `worst_group` is None and `worst_group_range` says between
    which figures it lies.
    """

    average: float
    class_average: float
    balanced_average: float | None = None
    id_accuracy: float | None = None
    worst_group: float | None = None
    worst_group_name: str | None = None
    worst_group_range: tuple[float, float] | None = None
    gaps: Mapping[str, float] = field(default_factory=dict)
    average_gap: float | None = None
    cues: Mapping[str, float] = field(default_factory=dict)
    per_class: Mapping[str, float] = field(default_factory=dict)
    groups: tuple[GroupScore, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The `evaluation` object of `metrics.json`."""
        out: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name == "groups":
                out["groups"] = [group.to_dict() for group in self.groups]
            elif isinstance(value, Mapping):
                out[entry.name] = dict(value)
            elif value is not None:
                out[entry.name] = value
        return out

    @property
    def table(self) -> pd.DataFrame:
        """One row per group: class, attribute values, counts, accuracy, whether it is small."""
        import pandas as pd

        return pd.DataFrame([_row(group) for group in self.groups])

    def summary(self) -> dict[str, float | str]:
        """The headline figures by their printed names, in the order of the paper's tables."""
        figures: dict[str, float | str | None] = {
            # Without attributes it is the average, and a shifted test set is not I.D. at all.
            "I.D. accuracy": self.id_accuracy if self.groups and self.gaps else None,
            **{f"{name} gap": gap for name, gap in self.gaps.items()},
            "average gap": self.average_gap,
            "worst group": worst_shown(self.to_dict()),
            "worst group name": self.worst_group_name,
            "average": self.average,
        }
        return {name: value for name, value in figures.items() if value is not None}

    def _repr_html_(self) -> str:
        import pandas as pd

        names = [f"{g.name} (small)" if g.small else g.name for g in self.groups]
        columns = {"test": "n_test", "train": "n_train", "accuracy": "accuracy"}
        groups = {k: [getattr(g, field) for g in self.groups] for k, field in columns.items()}
        tables = (pd.Series(self.summary()).to_frame(""), pd.DataFrame(groups, index=names))
        return "".join(table.to_html(float_format="{:.1f}".format) for table in tables)


def worst_shown(evaluation: Mapping[str, Any]) -> Any:
    """The worst group of an `evaluation`: a figure, or a text where groups are too small."""
    ends = evaluation.get("worst_group_range")
    if not ends:
        return evaluation.get("worst_group")
    low, high = (end["mean"] if isinstance(end, Mapping) else end for end in ends)
    return f"{low:.0f} to {high:.0f}: groups too small"


def _row(group: GroupScore) -> dict[str, Any]:
    # An attribute may be called like one of the fixed columns; the fixed ones then win.
    fixed = {k: v for k, v in group.to_dict().items() if not isinstance(v, Mapping)}
    return {**group.values, "group": fixed.pop("name"), **fixed}

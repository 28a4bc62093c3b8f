"""Debiasing for arrays, scikit-learn style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from sebra.errors import UsageError
from sebra.samples.table import FeatureArray, Samples
from sebra.workflows.debias import DebiasOptions, debias
from sebra.workflows.prepared import Source

if TYPE_CHECKING:
    from typing_extensions import Self


class SebraClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier over features that does not need their shortcuts.

    method: any of `sebra debias`; `auto` ranks, trains over the patterns it finds, and keeps plain
    training where there are none. settings: fields of the method's configuration, those of the
    ranker as `rank.field`. After `fit(X, y)`: `model_` (a `sebra.Model`), `metrics_` (what the run
    measured), `classes_`, `n_features_in_`.

    >>> SebraClassifier().fit(X, y).predict(X)  # doctest: +SKIP
    """

    def __init__(
        self,
        method: str = "auto",
        settings: dict[str, Any] | None = None,
        random_state: int = 0,
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.settings = settings
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:
        """Trains on the rows of X (n x d numbers) with labels y."""
        X, y = validate_data(self, X, y, dtype=(np.float32, np.float64))
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y holds one class only; a classifier needs at least 2 classes")
        rows = np.arange(len(X), dtype=np.int64)
        samples = Samples(
            ids=rows.astype(str).astype(object),
            labels=labels.astype(np.int64),
            classes=tuple(map(str, range(len(self.classes_)))),
            split=np.zeros(len(X), dtype=np.int8),
            content=FeatureArray(X, rows),
        )
        overrides = tuple(f"{key}={value}" for key, value in (self.settings or {}).items())
        source = Source("(X, y)", seed=int(self.random_state or 0), device=self.device)
        try:
            run = debias(source, DebiasOptions(self.method, overrides=overrides), samples=samples)
        except UsageError as error:
            raise ValueError(str(error).replace("--set ", "").replace("--", "")) from None
        self.model_, self.metrics_ = run.model, run.metrics
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Class probabilities, in the order of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        return self.model_.probabilities(X.astype(np.float32))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of each row."""
        best = self.predict_proba(X).argmax(1)
        found: npt.NDArray[Any] = self.classes_[best]
        return found

"""The ranking for arrays, scikit-learn style."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from sebra.engine import networks
from sebra.engine.device import choose_device
from sebra.engine.features import moments
from sebra.engine.networks import LINEAR, Network, NetworkSpec
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.errors import UsageError
from sebra.loading.inputs import Inputs
from sebra.ranking.order import ranks_within_classes, spuriosity_of
from sebra.ranking.ranking import Blind
from sebra.ranking.sebra import SebraConfig, SelfGuidedRanker
from sebra.samples.table import FeatureArray
from sebra.settings import of_mode

if TYPE_CHECKING:
    from typing_extensions import Self

Array = npt.NDArray[Any]
FLOATS = (np.float32, np.float64, np.float16)


class SebraRanker(BaseEstimator):  # type: ignore[misc]
    """Ranks labelled feature vectors by spuriosity with a linear head.

    The parameters are the settings of `sebra rank` over features; None takes its default.
    `random_state` seeds the draws; `device` is `auto`, `cpu` or `cuda`.

    After `fit(X, y)`, one entry per sample: `spuriosity_` (1 = most spurious of its class, falling
    to 0), `rank_` (0 = most spurious of its class, no ties), `bucket_` (the round in which it was
    learned). Also `classes_`, `n_features_in_`, `n_rounds_` and `notes_`. A ranking that collapsed
    into one bucket comes with a `ConvergenceWarning` that says what to change.

    >>> SebraRanker(p_critical=0.7).fit(X, y).spuriosity_  # doctest: +SKIP
    """

    def __init__(
        self,
        p_critical: float | None = None,
        lam: float | None = None,
        beta: float | None = None,
        epochs: int | None = None,
        enough: float | None = None,
        lr: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        optimizer: str | None = None,
        batch: int | None = None,
        draws: str | None = None,
        resolution: str | None = None,
        use_u: bool | None = None,
        use_v: bool | None = None,
        random_state: Any = 0,
        device: str = "cpu",
    ) -> None:
        self.p_critical = p_critical
        self.lam = lam
        self.beta = beta
        self.epochs = epochs
        self.enough = enough
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.batch = batch
        self.draws = draws
        self.resolution = resolution
        self.use_u = use_u
        self.use_v = use_v
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:
        """Ranks the rows of X (n x d numbers; a memory map is read in place) with labels y."""
        X, y = validate_data(self, X, y, dtype=FLOATS, y_numeric=False)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y holds one class only; a ranking needs at least 2 classes")
        session = Session()
        try:
            ranker = SelfGuidedRanker(self._config())
            task = self._task(X, labels.astype(np.int64))
        except UsageError as error:
            raise ValueError(str(error).replace("--set ", "").replace("--", "")) from None
        result = ranker.rank(task, session, Blind())
        self.bucket_: Array = result.bucket
        self.rank_: Array = ranks_within_classes(result.bucket, result.score, labels)
        self.spuriosity_: Array = spuriosity_of(self.rank_, labels)
        self.n_rounds_ = int(result.details["rounds"])
        self.notes_ = list(session.notes)
        if result.collapsed:
            advice = result.collapsed.replace("--set ", "")
            warnings.warn(advice, ConvergenceWarning, stacklevel=2)
            self.notes_.append(advice)
        return self

    def _config(self) -> SebraConfig:
        own = self.get_params(deep=False)
        settings = {k: v for k, v in own.items() if k not in ("random_state", "device")}
        given = {k: v for k, v in settings.items() if v is not None}
        return SebraConfig(**{**of_mode(SebraConfig, "features"), **given})

    def _task(self, X: Array, labels: Array) -> Task:
        device = choose_device(self.device)
        inputs = Inputs(FeatureArray(_shared(X), np.arange(len(X), dtype=np.int64)), device)
        spec = NetworkSpec(LINEAR, (X.shape[1],), len(self.classes_))
        mean, std = moments(inputs)

        def build(seed: int, hidden: int) -> Network:
            network = networks.build(spec, seed).to(device)
            network.standardise(mean, std)
            return network

        return Task(
            inputs=inputs,
            rows=torch.arange(len(X), device=device),
            targets=torch.from_numpy(labels).to(device),
            classes=len(self.classes_),
            build=build,
            device=device,
            seed=self._seed(),
        )

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = True
        return tags


def _shared(X: Array) -> Array:
    """The same memory as an array that torch takes as it is, read-only maps and views included."""
    if any(step < 0 for step in X.strides):  # torch has no negative strides
        return np.ascontiguousarray(X)
    if X.flags.writeable:
        return X
    with warnings.catch_warnings():
        # torch warns that it could write to read-only memory; nothing here writes to inputs.
        warnings.simplefilter("ignore")
        return torch.from_numpy(X).numpy()

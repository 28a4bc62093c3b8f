"""Class-balanced last-layer retraining: the simple control of whatever is retrained more cleverly.

Follows LaBonte, Muthukumar and Kumar, "Towards Last-Layer Retraining for Group Robustness with
Fewer Annotations" (NeurIPS 2023): the last layer again on held-out samples in which classes count
alike. It departs in three things: samples are weighted where the paper draws them, the solver is
convex, and the strength of its penalty comes from cross-validation.
"""

from __future__ import annotations

from sebra.debiasing.choosing import even
from sebra.debiasing.heads import STRENGTHS, Examples, fitted, told
from sebra.debiasing.last_layer import embedded, set_head
from sebra.engine.networks import Network
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra_bench.baselines.held_out import HeldOut, HeldOutConfig


class Cbllr(HeldOut[HeldOutConfig]):
    """Plain training, then a last layer for which all classes count alike."""

    name = "cbllr"
    config_class = HeldOutConfig

    def refit(self, network: Network, held: Task, session: Session) -> None:
        x, mean, std = embedded(network, held)
        y = held.targets.cpu()
        weights = even(y, 1.0)
        data = Examples.of(x, y, held.classes, held.seed)
        at, _ = data.best(weights, lambda z: told(z, y, weights))
        set_head(network, fitted(x, y, held.classes, weights, STRENGTHS[at]), mean, std)

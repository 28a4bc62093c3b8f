"""Features of one piece of content by a frozen network."""

from __future__ import annotations

from sebra.engine.features import Frozen


def extract_features(spec, weights, inputs, key, progress=None, look=False):
    return Frozen(spec, weights, inputs, key, look).features(inputs, key, progress)

"""Which device a run takes."""

from __future__ import annotations

import pytest
import torch

from sebra.engine.device import autocast, choose_device
from sebra.errors import UsageError


def test_auto_takes_the_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    with pytest.raises(UsageError, match="no CUDA GPU"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto").type == "cuda"
    assert choose_device("cpu").type == "cpu"


def test_another_name_is_refused():
    with pytest.raises(UsageError, match="'tpu' is not one of"):
        choose_device("tpu")


def test_a_cpu_computes_in_full_precision():
    with autocast(torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32

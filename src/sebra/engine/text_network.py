"""Text: a transformers encoder over token rows, pooled to one vector per sample."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sebra.engine.networks import NetworkSpec
from sebra.engine.weights import Weights
from sebra.errors import UsageError, reason
from sebra.loading.inputs import Inputs
from sebra.loading.texts import MOST_TOKENS, ROWS
from sebra.places import offline

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
_BATCH = {"cpu": 32, "cuda": 512}
_PREFIX = "encoder."


@dataclass(frozen=True)
class Encoder:
    """A pretrained encoder as it was read: all that networks and tokenisers are built from."""

    name: str
    config: str  # JSON
    vocabulary: str  # content of a tokenizer.json
    most_tokens: int
    weights: Weights


def read_encoder(name: str) -> Encoder:
    """An encoder from a local folder or, unless SEBRA_OFFLINE=1, from the hub."""
    transformers = _transformers()
    local = Path(name).expanduser()
    if not local.is_dir():
        _require_hub(name)
    place = str(local) if local.is_dir() else name
    try:
        config = transformers.AutoConfig.from_pretrained(place)
        if config.is_encoder_decoder:
            raise UsageError(f"--backbone {name}: translates; give an encoder such as BERT")
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        model = transformers.AutoModel.from_pretrained(place).float()
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UsageError(f"--backbone {name}: cannot be read ({reason(error)})") from None
    if not tokenizer.is_fast:
        raise UsageError(f"--backbone {name}: has no fast tokenizer (tokenizer.json)")
    _drop_pooler(model)
    tensors = {_PREFIX + k: v for k, v in model.state_dict().items()}
    limit = int(getattr(config, "max_position_embeddings", None) or MOST_TOKENS)
    return Encoder(
        name,
        config.to_json_string(use_diff=False),
        tokenizer.backend_tokenizer.to_str(),
        min(limit, int(min(tokenizer.model_max_length, MOST_TOKENS))),
        Weights(name, _digest(tensors), tensors),
    )


class TextBody(nn.Module):
    """Token rows (n x 3·sequences x length) to one vector: the mean over a sequence's tokens.

    Of three sequences (a pair a, b joined, and each alone) the vector holds the pair's mean, a, b,
    |a − b| and a · b. Dropout stays off: a resumed run must repeat itself.
    """

    def __init__(self, encoder: Any, sequences: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.sequences = sequences
        self.width = int(encoder.config.hidden_size) * (5 if sequences == 3 else 1)
        accepted = inspect.signature(encoder.forward).parameters
        kinds = int(getattr(encoder.config, "type_vocab_size", 0) or 0)
        self._typed = "token_type_ids" in accepted and kinds > 1
        # Given the usual mask, transformers asks the device whether it is all ones, which a CUDA
        # graph cannot; a BERT takes one that is already spread over heads and queries as it is.
        self.capturable = encoder.config.model_type == "bert"

    def train(self, mode: bool = True) -> TextBody:
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        each = [self.pooled(x[:, ROWS * k : ROWS * (k + 1)]) for k in range(self.sequences)]
        return joined(each)

    def pooled(self, x: Tensor) -> Tensor:
        """One sequence (n x 3 x length) to its tokens' mean."""
        ids, mask, types = x.unbind(1)
        hidden = self._hidden(ids, mask, types)
        weight = mask[:, :, None].to(hidden.dtype)
        mean: Tensor = (hidden * weight).sum(1) / weight.sum(1).clamp_min(1)
        return mean

    def _hidden(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        if self.capturable:
            n, length = mask.shape
            mask = mask.bool()[:, None, None, :].expand(n, 1, length, length)
        extra = {"token_type_ids": types} if self._typed else {}
        out: Tensor = self.encoder(input_ids=ids, attention_mask=mask, **extra).last_hidden_state
        return out


def joined(sequences: Sequence[Tensor]) -> Tensor:
    """One sequence's vector as it is; of a pair and its sentences a, b all there is to compare."""
    if len(sequences) == 1:
        return sequences[0]
    pair, a, b = sequences
    return torch.cat([pair, a, b, (a - b).abs(), a * b], dim=1)


def text_body(spec: NetworkSpec) -> tuple[nn.Module, int]:
    """An encoder with random weights from the configuration in the spec."""
    transformers = _transformers()
    values = json.loads(spec.encoder)
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    model = transformers.AutoModel.from_config(config)
    _drop_pooler(model)
    body = TextBody(model, spec.inputs[0] // ROWS)
    return body, body.width


class Pooled(nn.Module):
    """One sequence (n x 3 x length) to its tokens' mean, as a module of its own."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        assert isinstance(body, TextBody)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body.pooled(x)

    def parts(self, rows: Tensor) -> tuple[Tensor]:
        """Nothing to tell apart."""
        return (rows,)


def fill_features(
    out: npt.NDArray[Any],
    run: Callable[[Tensor], Tensor],
    inputs: Inputs,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """Writes every row's vector; texts of similar length go together, cut to their longest."""
    order = torch.argsort(_lengths(inputs), descending=True, stable=True)
    done = 0
    for rows in torch.split(order, _BATCH[inputs.device.type]):
        parts = torch.split(inputs.batch(rows), ROWS, dim=1)
        z = joined([run(_cut(part)) for part in parts])
        out[rows.cpu().numpy()] = z.half().cpu().numpy()
        done += len(rows)
        if progress is not None:
            progress(done, len(inputs))
    return {}


def _lengths(inputs: Inputs) -> Tensor:
    everyone = torch.arange(len(inputs), device=inputs.device)
    return torch.cat([inputs.batch(rows)[:, 1].sum(1) for rows in torch.split(everyone, 4096)])


def _cut(x: Tensor) -> Tensor:
    """Without the columns that are padding in every row."""
    used = x[:, 1].any(0).nonzero()
    return x[:, :, : int(used[-1]) + 1] if len(used) else x


def _drop_pooler(model: Any) -> None:
    """A layer over the first token, of which nothing here makes use."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None


def _digest(tensors: dict[str, Tensor]) -> str:
    state = hashlib.sha256()
    for name in sorted(tensors):
        state.update(name.encode())
        state.update(np.ascontiguousarray(tensors[name].cpu().numpy()).data)
    return state.hexdigest()[:16]


def _require_hub(name: str) -> None:
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UsageError(f"--backbone {name}: no such folder")
    if offline():
        raise UsageError(
            f"--backbone {name}: no such folder, and SEBRA_OFFLINE=1 forbids the hub; "
            "give the folder of a transformers model"
        )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise UsageError("text needs the extra `text`: pip install 'sebra[text]'") from None
    library: Any = transformers
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    return library

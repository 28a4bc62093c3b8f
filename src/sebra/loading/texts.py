"""Tokenises every text once, into a memory map of fixed-shape token rows.

A sequence takes three rows of one length: token ids, attention mask, token types. A sample is one
sequence (a text, or both sentences of a pair joined), or three: the pair and each sentence alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.loading.cache import digest, user_cache
from sebra.samples.table import IntArray, Texts

Progress = Callable[[int, int], None]
Tokens = npt.NDArray[np.int32]

FORMAT_VERSION = 1  # raise it when the same text would give other tokens
ROWS = 3  # of a sequence: ids, mask, types
LENGTH_STEP = 8
MOST_TOKENS = 512
_COVERED = 0.999  # share of the texts that must fit without a cut
_LOOKED_AT = 20_000  # texts that decide the length
_CHUNK = 1024


@dataclass(frozen=True)
class TokenArray:
    """Token rows in memory or in a memory map: int32, n x (3 · sequences) x length."""

    values: Tokens
    rows: IntArray


@dataclass(frozen=True)
class Tokeniser:
    """Texts to token rows of one shape.

    vocabulary: the content of a `tokenizer.json`. length: tokens of a sequence, padding included.
    pair: whether samples are sentence pairs. apart: of a pair also each sentence alone.
    """

    vocabulary: str
    length: int
    pair: bool = False
    apart: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one sample."""
        return (ROWS * (3 if self.pair and self.apart else 1), self.length)

    @cached_property
    def _backend(self) -> Any:
        backend = _backend(self.vocabulary)
        backend.enable_truncation(self.length)
        return backend

    @cached_property
    def _padding(self) -> int:
        """The id that fills a sequence; what it is does not matter where the mask is zero."""
        padding = json.loads(self.vocabulary).get("padding") or {}
        if "pad_id" in padding:
            return int(padding["pad_id"])
        known = (self._backend.token_to_id(t) for t in ("[PAD]", "<pad>"))
        return next((int(i) for i in known if i is not None), 0)

    def encode(self, texts: Texts) -> Tokens:
        """The token rows of every text."""
        self.check(texts, "the texts")
        out = np.zeros((len(texts.first), *self.shape), dtype=np.int32)
        self._fill(texts, out)
        return out

    def check(self, texts: Texts, where: str) -> None:
        """Refuses single texts for a tokeniser of pairs, and pairs for one of single texts."""
        if self.pair and texts.second is None:
            raise UsageError(f"{where}: single texts, but the model takes pairs (column text_b)")
        if not self.pair and texts.second is not None:
            raise UsageError(f"{where}: sentence pairs (text_b), but the model takes single texts")

    def _fill(self, texts: Texts, out: Tokens) -> None:
        for k, sequence in enumerate(self._sequences(texts)):
            encoded = self._backend.encode_batch(sequence)
            block = out[:, ROWS * k : ROWS * (k + 1)]
            block[:, 0] = self._padding
            for row, found in enumerate(encoded):
                block[row, 0, : len(found.ids)] = found.ids
                block[row, 1, : len(found.ids)] = found.attention_mask
                block[row, 2, : len(found.ids)] = found.type_ids

    def _sequences(self, texts: Texts) -> Iterator[list[Any]]:
        if texts.second is None:
            yield list(texts.first)
            return
        yield list(zip(texts.first, texts.second, strict=True))
        if self.apart:
            yield list(texts.first)
            yield list(texts.second)


def fit_tokeniser(vocabulary: str, texts: Texts, most: int, apart: bool = False) -> Tokeniser:
    """A tokeniser whose length holds nearly all of `texts`, at most `most` (and 512) tokens.

    Lengths are multiples of eight, and at most 20,000 evenly spread texts are looked at.
    """
    step = max(1, -(-len(texts.first) // _LOOKED_AT))
    seen = texts.take(np.arange(0, len(texts.first), step))
    backend = _backend(vocabulary)
    items = list(seen.first if seen.second is None else zip(seen.first, seen.second, strict=True))
    lengths = [
        len(found.ids)
        for start in range(0, len(items), _CHUNK)
        for found in backend.encode_batch(items[start : start + _CHUNK])
    ]
    wanted = int(np.quantile(lengths, _COVERED, method="higher"))
    rounded = -(-wanted // LENGTH_STEP) * LENGTH_STEP
    length = min(max(rounded, LENGTH_STEP), most, MOST_TOKENS)
    return Tokeniser(vocabulary, length, texts.second is not None, apart)


def load_texts(texts: Texts, tokeniser: Tokeniser, progress: Progress | None = None) -> TokenArray:
    """Every text's token rows, from the cache where they are there."""
    total = len(texts.first)

    def fill(out: npt.NDArray[Any]) -> dict[str, Any]:
        for start in range(0, total, _CHUNK):
            stop = min(start + _CHUNK, total)
            tokeniser._fill(texts.take(np.arange(start, stop)), out[start:stop])
            if progress is not None:
                progress(stop, total)
        return {}

    shape = (total, *tokeniser.shape)
    array, _ = user_cache().array("tokens", _key(texts, tokeniser), shape, np.int32, fill)
    return TokenArray(array, np.arange(total, dtype=np.int64))


def _key(texts: Texts, tokeniser: Tokeniser) -> list[str | int | bytes]:
    parts: Sequence[Sequence[str]] = (texts.first, texts.second or ())
    contents = [digest(t.encode("utf-8", "surrogatepass") for t in part) for part in parts]
    kind = f"{tokeniser.length}/{tokeniser.pair}/{tokeniser.apart}"
    return [FORMAT_VERSION, digest([tokeniser.vocabulary]), kind, *contents]


def _backend(vocabulary: str) -> Any:
    """The tokenizer that a `tokenizer.json` describes; it pads and cuts nothing by itself."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError("text needs the extra `text`: pip install 'sebra[text]'") from None
    backend = Tokenizer.from_str(vocabulary)
    backend.no_padding()
    backend.no_truncation()
    return backend

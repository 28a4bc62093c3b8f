"""Texts as token rows: what a row holds, how long it is, and that it is computed once."""

from __future__ import annotations

import numpy as np
import pytest

from sebra.errors import UsageError
from sebra.loading import texts as module
from sebra.loading.texts import Tokeniser, fit_tokeniser, load_texts
from sebra.samples.table import Texts

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra text")
VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "man": 5, "no": 6, "dog": 7}


@pytest.fixture(scope="module")
def vocabulary():
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    backend.enable_padding(length=40)  # as published tokenisers do: it must not show
    backend.enable_truncation(3)
    return backend.to_str()


def test_a_text_is_ids_mask_and_types(vocabulary):
    rows = Tokeniser(vocabulary, 6).encode(Texts(("a man", "no", "a man what a dog")))
    assert rows.shape == (3, 3, 6)
    assert rows[0].tolist() == [[2, 4, 5, 3, 0, 0], [1, 1, 1, 1, 0, 0], [0] * 6]
    assert rows[1].tolist() == [[2, 6, 3, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0] * 6]
    assert rows[2].tolist() == [[2, 4, 5, 1, 4, 3], [1] * 6, [0] * 6]


def test_a_pair_is_joined_and_with_apart_each_sentence_follows(vocabulary):
    texts = Texts(("a man",), ("no dog",))
    joined = Tokeniser(vocabulary, 8, pair=True).encode(texts)
    assert joined[0].tolist() == [
        [2, 4, 5, 3, 6, 7, 3, 0],
        [1, 1, 1, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 1, 1, 1, 0],
    ]
    three = Tokeniser(vocabulary, 8, pair=True, apart=True).encode(texts)
    np.testing.assert_array_equal(three[:, :3], joined)
    alone = Tokeniser(vocabulary, 8)
    np.testing.assert_array_equal(three[:, 3:6], alone.encode(Texts(("a man",))))
    np.testing.assert_array_equal(three[:, 6:], alone.encode(Texts(("no dog",))))


def test_pairs_and_single_texts_are_not_mixed_up(vocabulary):
    with pytest.raises(UsageError, match="takes pairs"):
        Tokeniser(vocabulary, 8, pair=True).encode(Texts(("a",)))
    with pytest.raises(UsageError, match="takes single texts"):
        Tokeniser(vocabulary, 8).encode(Texts(("a",), ("b",)))


def test_the_length_comes_from_the_data(vocabulary):
    short = Texts(("a man",) * 20)
    assert fit_tokeniser(vocabulary, short, 512).length == 8
    longer = Texts(("a man " * 10,) * 20)  # 22 tokens with the special ones
    assert fit_tokeniser(vocabulary, longer, 512).length == 24
    assert fit_tokeniser(vocabulary, longer, 16).length == 16
    one_long = Texts((*("a man",) * 5000, "a man " * 200))
    assert fit_tokeniser(vocabulary, one_long, 512).length == 8  # one in 5,000 may be cut
    pairs = Texts(("a man " * 4,), ("a dog " * 4,))  # 8 + 8 + 3
    assert fit_tokeniser(vocabulary, pairs, 512).length == 24


def test_tokens_are_kept_in_the_cache(vocabulary, tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    tokeniser = Tokeniser(vocabulary, 8)
    texts = Texts(("a man", "no dog", "dog"))
    seen = []
    first = load_texts(texts, tokeniser, lambda done, total: seen.append((done, total)))
    assert seen == [(3, 3)]
    np.testing.assert_array_equal(first.values, tokeniser.encode(texts))
    assert isinstance(first.values, np.memmap)
    load_texts(texts, tokeniser, lambda done, total: seen.append((done, total)))
    assert len(seen) == 1
    load_texts(Texts(("a man", "no dog", "man")), tokeniser, lambda *at: seen.append(at))
    load_texts(texts, Tokeniser(vocabulary, 16), lambda *at: seen.append(at))
    assert len(seen) == 3


def test_pieces_make_the_same_whole(vocabulary, tmp_path, monkeypatch):
    monkeypatch.setenv("SEBRA_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_CHUNK", 2)
    texts = Texts(("a", "man", "no", "dog", "a", "man", "no"))
    tokeniser = Tokeniser(vocabulary, 8)
    np.testing.assert_array_equal(load_texts(texts, tokeniser).values, tokeniser.encode(texts))


def test_odd_texts_have_rows_too(vocabulary):
    rows = Tokeniser(vocabulary, 8).encode(Texts(("", " ", "\u0000", "日本語", "a\nman")))
    assert (rows[:, 1].sum(1) >= 2).all()
    assert rows[4, 0, :4].tolist() == [2, 4, 5, 3]

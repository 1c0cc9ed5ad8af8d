"""A cross-encoder with random weights: what it costs is real, what it says means nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remembrancer.actors.embedder.engine import VOCABULARY, bert_tokenizer


def build_cross_encoder(directory: Path, *, layers: int = 6, hidden: int = 384, heads: int = 12) -> Path:
    """Write a model of the shape of MiniLM-L6 (Wang et al., 2020) into a directory, as transformers saves one."""
    import torch
    import transformers

    library: Any = transformers
    torch.manual_seed(0)
    library.utils.logging.disable_progress_bar()
    config = library.BertConfig(
        vocab_size=len(VOCABULARY.read_text(encoding="utf-8").splitlines()),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        num_labels=1,
    )
    library.BertForSequenceClassification(config).save_pretrained(directory)
    tokenizer = library.PreTrainedTokenizerFast(
        tokenizer_object=bert_tokenizer(VOCABULARY),
        model_max_length=512,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
    )
    tokenizer.save_pretrained(str(directory))
    return directory

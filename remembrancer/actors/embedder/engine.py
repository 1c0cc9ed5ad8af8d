"""The interface of an embedding engine, and the engines' shared code for model files: tokenizers and checksums."""

import abc
import hashlib
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import BertWordPieceTokenizer, Tokenizer

from remembrancer.actors.embedder.passages import PASSAGE_TOKENS, TokenCounter
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.work import CALIBRATED, DEFAULT_MODEL, CosineScale, ModelIdentity

VOCABULARY: Final = Path(__file__).parent / "data" / "vocab.txt"
REVISION_DIGITS: Final = 16
BATCH_TOKENS: Final = 2048
"""Large enough for a batch to be worth its fixed cost, small enough that other texts hardly wait for it."""

Vector = NDArray[np.float32]
"""One dimension: the vector of one text."""
Vectors = NDArray[np.float32]
"""Two dimensions: a row for each text."""


class ModelTokenizer(TokenCounter, Protocol):
    """A model's tokenizer. Several threads may use it at once."""

    marks: int
    """The number of special tokens added around a text."""
    pad_id: int

    def token_ids(self, texts: Sequence[str], window: int) -> list[list[int]]:
        """The ids of each text with its special tokens, cut to `window` ids; the last is always the closing token."""


class Engine(abc.ABC):
    """A loaded model. Passages and questions may be embedded at the same time, from two threads."""

    identity: ModelIdentity
    scale = CALIBRATED
    tokenizer: ModelTokenizer
    passage_budget: int
    """The maximum number of tokens in a passage, without the special tokens (and the prompt) around it."""
    passage_tokens = PASSAGE_TOKENS
    """The length in tokens of the passages that texts are split into, if the budget allows it."""
    batch_tokens = BATCH_TOKENS

    @abc.abstractmethod
    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row of unit length for each text; text beyond the window is ignored. May raise `ModelUnusable`."""

    @abc.abstractmethod
    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        """Like `embed_passages`, for questions; some models use a different prompt for questions."""


PROBES: Final = (
    ("Which port does the API listen on?", "The API server listens on port 8080."),
    ("Who is responsible for the billing service?", "Marta leads the billing team."),
    ("When do we release?", "Releases go out every second Thursday."),
    ("How are passwords stored?", "Passwords are hashed with bcrypt before they are saved."),
    ("What does the user like to drink?", "The user prefers green tea to coffee."),
    ("Why was the cache removed?", "We dropped Redis because invalidation caused stale pages."),
    ("Where do the photos lie?", "Images are uploaded to a bucket in Frankfurt."),
    ("How do I run the tests?", "Use make check to run the whole test suite."),
    ("Which language is the parser written in?", "The parser is a Rust crate with Python bindings."),
    ("What is the dog called?", "Their terrier is named Bruno."),
    ("What went wrong during the migration?", "The schema upgrade failed as the disk was full."),
    ("How long may a session last?", "Users are logged out after thirty minutes without activity."),
    ("Which colours does the logo have?", "The brand mark is orange on a dark blue ground."),
    ("Where will the holiday be?", "In July the family travels to the coast of Portugal."),
    ("How is the weather measured?", "A sensor on the roof reports temperature and wind each minute."),
    ("What should reviewers look at?", "Check error handling first when you go through a pull request."),
)
"""Questions, and texts that answer them. Changing them changes the vectors of the multilingual model."""


def scale_of(engine: Engine) -> CosineScale:
    """The scale of a model's cosines, measured on matching and non-matching pairs of `PROBES`."""
    if DEFAULT_MODEL in engine.identity.key:
        return CALIBRATED
    questions, answers = zip(*PROBES, strict=True)
    cosines = engine.embed_questions(questions) @ engine.embed_passages(answers).T
    together = np.eye(len(PROBES), dtype=bool)
    return CosineScale(float(cosines[together].mean()), float(cosines[~together].mean()))


def unit_rows(rows: Vectors) -> Vectors:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = (rows / np.maximum(norms, 1e-12)).astype(np.float32, copy=False)
    return unit


def sha256_of(paths: Iterable[Path]) -> str:
    """The SHA-256 of the concatenated files, in hexadecimal. Raises `ModelUnusable` if a file cannot be read."""
    digest = hashlib.sha256()
    try:
        for path in paths:
            with path.open("rb") as stream:
                hashlib.file_digest(stream, lambda: digest)
    except OSError as error:
        raise ModelUnusable(f"a model file cannot be read: {error}") from error
    return digest.hexdigest()


def packaged_weights(package: str, file: str, expected: str, remedy: str) -> Path:
    """A file of an installed package. Raises `ModelUnusable`, with the `remedy`, unless it has this checksum."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnusable(f"the weights in {package} are not installed: {remedy}")
    path = Path(spec.submodule_search_locations[0]) / file
    if not path.is_file():
        raise ModelUnusable(f"{path} is missing: {remedy}")
    found = sha256_of([path])
    if found != expected:
        raise ModelUnusable(f"{path} is not the pinned file (SHA-256 {found}, not {expected}): {remedy}")
    return path


class TextTokenizer:
    """Uses only the library's batch calls, which release the interpreter's lock while they work."""

    def __init__(self, tokenizer: Any) -> None:
        padding = tokenizer.padding
        self.pad_id: int = padding["pad_id"] if padding else 0
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.marks: int = tokenizer.num_special_tokens_to_add(is_pair=False)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(each) for each in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def token_ids(self, texts: Sequence[str], window: int) -> list[list[int]]:
        rows = [each.ids for each in self._tokenizer.encode_batch_fast(list(texts))]
        return [row if len(row) <= window else [*row[: window - 1], row[-1]] for row in rows]


def default_tokenizer() -> TextTokenizer:
    return TextTokenizer(bert_tokenizer(VOCABULARY))


def local_tokenizer(directory: Path) -> TextTokenizer:
    """The tokenizer in a directory's `tokenizer.json` or, for lower-case BERT, `vocab.txt`. Raises `ModelUnusable`."""
    own, vocabulary = directory / "tokenizer.json", directory / "vocab.txt"
    try:
        if own.is_file():
            return TextTokenizer(Tokenizer.from_file(str(own)))
        if vocabulary.is_file():
            return TextTokenizer(bert_tokenizer(vocabulary))
    except Exception as error:  # the library raises plain Exception
        raise ModelUnusable(f"the tokenizer in {directory} cannot be read: {error}") from error
    raise ModelUnusable(f"{directory} has neither a tokenizer.json nor a vocab.txt; put the model's own file there")


def bert_tokenizer(vocabulary: Path) -> Any:
    """BERT's lower-case WordPiece: no accents, Chinese characters separated, [CLS] … [SEP]."""
    return Tokenizer.from_str(BertWordPieceTokenizer(str(vocabulary)).to_str())

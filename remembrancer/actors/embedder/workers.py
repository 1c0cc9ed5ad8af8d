"""The work of an embedder's threads. An error with one text is returned as its result; any other error is raised."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Final, NamedTuple

import numpy as np

from remembrancer.actors.embedder.engine import Engine, Vector, Vectors, scale_of, unit_rows
from remembrancer.actors.embedder.passages import MeasuredPassage, split_passages
from remembrancer.config.settings import Settings, model_choices
from remembrancer.protocol.errors import InternalError, ModelUnusable, RemembrancerError
from remembrancer.protocol.system import give_back_memory
from remembrancer.protocol.work import EmbeddedText, Passage

MODULES: Final = {"sentence-transformers": "sentence_transformers", "voyage": "providers", "openai": "providers"}
"""The modules that are not named after their engines. A process loads only its engine's module and library."""

logger = logging.getLogger(__name__)


def load_engine(settings: Settings, threads: int) -> Engine:
    """Takes up to several seconds. Raises `ModelUnusable`."""
    choice, _ = model_choices(settings)
    try:
        module = import_module(f"remembrancer.actors.embedder.{MODULES.get(choice.engine, choice.engine)}")
        engine: Engine = module.load(choice, settings, threads)
        engine.scale = scale_of(engine)
        return engine
    except ModelUnusable:
        raise
    except Exception as error:  # a model's files can cause any error in a library
        logger.info("the model cannot be loaded", exc_info=True)
        raise ModelUnusable(f"the engine {choice.engine} cannot load {choice.model}: {error}") from error
    finally:
        give_back_memory()


class _Row(NamedTuple):
    """A passage to embed: number `place` of the text with this key. Ordered by length."""

    tokens: int
    key: int
    place: int
    text: str


def embed_texts(engine: Engine, texts: Mapping[int, str], most: int) -> Iterator[list[tuple[int, EmbeddedText | str]]]:
    """Embed texts in batches of at most `most` passages (0: no limit) of similar length, shortest first. Yields the
    finished texts before the first batch and after each batch: their keys, with the vectors or the error."""
    unfinished: dict[int, tuple[tuple[Passage, ...], dict[int, Vector]]] = {}
    rows: list[_Row] = []
    finished: list[tuple[int, EmbeddedText | str]] = []
    for key, text in texts.items():
        try:
            passages = passages_of(engine, text)
        except Exception as error:
            logger.exception("a text cannot be split")
            finished.append((key, in_words(error)))
            continue
        unfinished[key] = tuple(Passage(start, end) for start, end, _ in passages), {}
        rows += [_Row(tokens, key, place, text[start:end]) for place, (start, end, tokens) in enumerate(passages)]
    yield finished
    rows.sort()
    while rows:
        batch = rows[: batch_size(engine, rows, most)]
        finished = []
        for row, result in zip(batch, embed_each(engine.embed_passages, [row.text for row in batch]), strict=False):
            if row.key not in unfinished:  # another passage of this text has already failed
                continue
            split, vectors = unfinished[row.key]
            if isinstance(result, str):
                finished.append((row.key, result))
            else:
                vectors[row.place] = result
                if len(vectors) < len(split):
                    continue
                matrix = np.stack([vectors[place] for place in range(len(split))])
                finished.append((row.key, EmbeddedText(split, matrix.astype("<f4").tobytes())))
            del unfinished[row.key]
        yield finished
        rows = [row for row in rows[len(batch) :] if row.key in unfinished]


def passages_of(engine: Engine, text: str) -> list[MeasuredPassage]:
    return split_passages(text, engine.tokenizer, min(engine.passage_tokens, engine.passage_budget))


def batch_size(engine: Engine, rows: Sequence[_Row], most: int) -> int:
    """The number of rows in a batch, shortest rows first: at least one, at most `most` (0: no limit)."""
    marks = engine.identity.window_tokens - engine.passage_budget
    fitting = (
        number
        for number, row in enumerate(rows[: most or None], start=1)
        if number * (row.tokens + marks) <= engine.batch_tokens
    )
    return max(fitting, default=1)


def embed_each(embed: Callable[[Sequence[str]], Vectors], texts: Sequence[str]) -> list[Vector | str]:
    """A vector for each text, or its error: one bad text does not affect the rest of its batch."""
    try:
        return list(finite(embed(texts)))
    except ModelUnusable:
        raise
    except Exception as error:
        logger.exception("texts cannot be embedded", extra={"texts": len(texts)})
        if len(texts) == 1:
            return [in_words(error)]
    return [embed_each(embed, [text])[0] for text in texts]


def finite(vectors: Vectors) -> Vectors:
    """Raises `InternalError` if a vector is not finite."""
    if not np.isfinite(vectors).all():
        raise InternalError("the model returned a vector that is not finite")
    return vectors


def in_words(error: Exception) -> str:
    return error.message if isinstance(error, RemembrancerError) else f"{type(error).__name__}: {error}"[:200]


def question_vector(engine: Engine, question: str) -> bytes:
    """As float32. Beyond the window, the mean of the first two and last two parts, which usually have the question."""
    passages = split_passages(question, engine.tokenizer, engine.passage_budget)
    if len(passages) > 4:
        passages = passages[:2] + passages[-2:]
    vectors = finite(engine.embed_questions([question[each.start : each.end] for each in passages]))
    return unit_rows(vectors.mean(axis=0, keepdims=True)).astype("<f4").tobytes()

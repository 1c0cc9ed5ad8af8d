"""The variables that a runtime inherits from a session, and the names of toolsets. Hooks import it: keep it small."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_INHERITED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES"),
        *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TOKENIZERS_PARALLELISM", "TORCH_HOME"),
    }
)
_INHERITED_PREFIXES = (
    *("REMEMBRANCER_", "MEMORY_", "PYTHON", "LC_", "XDG_", "DYLD_", "MALLOC_", "COVERAGE_", "NIX_"),
    *("OMP_", "OPENBLAS_", "MKL_", "ORT_", "KMP_", "SENTENCE_TRANSFORMERS_"),
)
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "PASS")
_PLACES = ("FROM", "FILE")
"""The last words in the names of variables that hold the location of a secret."""
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
NETWORK_VARIABLES = frozenset([*_NETWORK, *map(str.lower, _NETWORK)])
"""The variables for reaching a provider. A proxy's address may contain a password."""
PROVIDER_KEYS = frozenset({"VOYAGE_API_KEY", "OPENAI_API_KEY"})
TOOLSETS_VARIABLE = "REMEMBRANCER_TOOLSETS"
TOOLSETS = ("admin", "code", "directory", "files", "graph", "memory", "nodes")


def toolsets_in(wanted: str) -> list[str]:
    return [name.strip() for name in wanted.split(",") if name.strip()]


def unknown_toolsets(wanted: str) -> list[str]:
    """An error message for each name in a comma-separated list that is not a toolset."""
    known = ", ".join(TOOLSETS)
    return [
        f"there is no toolset {name[:100]!a}: valid names are {known}"
        for name in toolsets_in(wanted)
        if name not in TOOLSETS
    ]


def is_secret_variable(name: str) -> bool:
    *words, last = name.upper().split("_")
    return last not in _PLACES and any(word.endswith(_SECRET_WORDS) for word in (*words, last))


def runtime_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The known variables without secrets: the runtime outlives its first session, and must not hold its keys."""
    return {
        name: value
        for name, value in environ.items()
        if name in _INHERITED or (name.startswith(_INHERITED_PREFIXES) and not is_secret_variable(name))
    }

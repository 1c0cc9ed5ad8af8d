"""The variables that a runtime gets from who starts it. A hook imports this: nothing else is."""

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
"""The last words of names of variables that say where a secret is."""
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
NETWORK_VARIABLES = frozenset([*_NETWORK, *map(str.lower, _NETWORK)])
"""The variables by which a provider is reached. A proxy's address may have a password in it."""
PROVIDER_KEYS = frozenset({"VOYAGE_API_KEY", "OPENAI_API_KEY"})


def is_secret_variable(name: str) -> bool:
    """True if a variable of that name may hold a secret, which is nobody else's business."""
    *words, last = name.upper().split("_")
    return last not in _PLACES and any(word.endswith(_SECRET_WORDS) for word in (*words, last))


def runtime_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a runtime gets from the session that starts it: those that it knows, and nobody's secrets.

    It outlives that session and serves others: an assistant's keys have no business there.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _INHERITED or (name.startswith(_INHERITED_PREFIXES) and not is_secret_variable(name))
    }

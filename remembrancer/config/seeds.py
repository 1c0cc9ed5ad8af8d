"""The names that the memory servers before this one had for settings, and what they mean here."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "MEMORY_"
"""Others use it as well, so a variable that we do not know is none of our business."""
VARIABLES: Final = {"DEPLOYMENT_MODE": "deployment_mode", "LOG_LEVEL": "log_level"}
"""Without the prefix, to our setting."""
ELSEWHERE: Final = frozenset({"CONFIG_PATH", "DB_PATH", "SESSION_ID"})
"""Read where the home is looked for, and by the bridge."""
UNUSED_VARIABLES: Final = {"REMOTE_URL": "remote_url"}

KEYS: Final = {"embedding_model": "model"}
"""In a file, to our setting."""
DB_PATH: Final = "db_path"
DIMENSIONS: Final = "embedding_dimensions"
KNOWN_DIMENSIONS: Final = {"all-MiniLM-L6-v2": 384}

UNUSED_KEYS: Final = frozenset(
    {
        "namespace",
        "database",
        "max_memories_per_session",
        "consolidation_on_shutdown",
        "remote_url",
        "remote_user",
        "remote_pass",
        # The second one's sections, which are about indexing files.
        "workspace",
        "sources",
        "embedding",
        "chunking",
        "search",
        "sync",
        "store",
        "secrets",
    }
)
"""In a file: accepted with any value, and without effect in this release."""

SYNONYMS: Final = {"log_level": {"warn": "warning"}}
"""Values of a setting that mean another one of ours."""
LATER_MODES: Final = ("local-server", "remote")
"""Deployment modes that this release does not have."""

"""The `memory` toolset, which sessions have by default."""

from typing import Final

INSTRUCTIONS: Final = (
    "If a prompt has no Memory Context, call get_memory_context. If incomplete, recall_memories where earlier work "
    "could matter. store_memory at once what matters later: preferences, corrections, decisions with reasons, "
    "fixes with causes, who is who, figures, open ends (only what is left or awaited); each self-contained and dated, "
    "no secrets, nothing the code says."
)

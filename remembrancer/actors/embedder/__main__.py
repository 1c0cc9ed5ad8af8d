"""The embedder's process: `python -P -m remembrancer.actors.embedder`, with its `LaunchSpec` on standard input."""

import os

from remembrancer.actors.actor_process import run_actor
from remembrancer.actors.embedder.actor import EmbedderActor

if __name__ == "__main__":
    # The number of threads is limited; the tokenizer would start one more for each core.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    run_actor(EmbedderActor)

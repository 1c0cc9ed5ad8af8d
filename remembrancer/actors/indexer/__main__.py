"""The indexer's process: `python -P -m remembrancer.actors.indexer`, with its `LaunchSpec` on standard input."""

from remembrancer.actors.actor_process import run_actor
from remembrancer.actors.indexer.actor import IndexerActor

if __name__ == "__main__":
    run_actor(IndexerActor)

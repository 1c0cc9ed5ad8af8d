"""The indexer's process: `python -P -m remembrancer.actors.indexer`, with its `LaunchSpec` on standard input."""

from remembrancer.actors.indexer.actor import IndexerActor
from remembrancer.actors.shell import run_actor

if __name__ == "__main__":
    run_actor(IndexerActor)

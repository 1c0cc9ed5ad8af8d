"""The consolidator's process: `python -P -m remembrancer.actors.consolidator`, its `LaunchSpec` on standard input."""

from remembrancer.actors.consolidator.actor import ConsolidatorActor
from remembrancer.actors.shell import run_actor

if __name__ == "__main__":
    run_actor(ConsolidatorActor)

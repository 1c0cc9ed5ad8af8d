"""The consolidator's process: `python -P -m remembrancer.actors.consolidator`, its `LaunchSpec` on standard input."""

from remembrancer.actors.actor_process import run_actor
from remembrancer.actors.consolidator.actor import ConsolidatorActor

if __name__ == "__main__":
    run_actor(ConsolidatorActor)

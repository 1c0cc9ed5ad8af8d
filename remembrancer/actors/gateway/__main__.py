"""The gateway's process: `python -m remembrancer.actors.gateway`, with its launch specification on standard input."""

import gc

gc.disable()  # imports leave no garbage

from remembrancer.actors.actor_process import run_actor  # noqa: E402
from remembrancer.actors.gateway.actor import GatewayActor  # noqa: E402

gc.freeze()
gc.enable()
run_actor(GatewayActor)

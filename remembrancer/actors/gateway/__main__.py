"""The gateway's process: `python -m remembrancer.actors.gateway`, with its launch on standard input."""

import gc

gc.disable()  # what imports make is no garbage: to look for some among the models of MCP takes a sixth of the start

from remembrancer.actors.gateway.actor import GatewayActor  # noqa: E402
from remembrancer.actors.shell import run_actor  # noqa: E402

gc.freeze()
gc.enable()
run_actor(GatewayActor)

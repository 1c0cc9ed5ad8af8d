"""The gateway's process: `python -m remembrancer.actors.gateway`, with its launch on standard input."""

from remembrancer.actors.gateway.actor import GatewayActor
from remembrancer.actors.shell import run_actor

run_actor(GatewayActor)

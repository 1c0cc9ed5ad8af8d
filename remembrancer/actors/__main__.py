"""An actor's process: `python -P -m remembrancer.actors ROLE`, with its `LaunchSpec` on standard input."""

import gc
import sys
from importlib import import_module

from remembrancer.actors.actor_process import run_actor

role = sys.argv[1]
gc.disable()  # imports create no garbage
module = import_module(f"remembrancer.actors.{role}.actor")
gc.freeze()
gc.enable()
run_actor(getattr(module, f"{role.capitalize()}Actor"))

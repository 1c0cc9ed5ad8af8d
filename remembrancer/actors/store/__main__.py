"""The store's process."""

import gc

gc.disable()  # imports leave no garbage

from remembrancer.actors.actor_process import run_actor  # noqa: E402
from remembrancer.actors.store.actor import StoreActor  # noqa: E402

gc.freeze()
gc.enable()
run_actor(StoreActor)

"""The store's process."""

from remembrancer.actors.actor_process import run_actor
from remembrancer.actors.store.actor import StoreActor

run_actor(StoreActor)

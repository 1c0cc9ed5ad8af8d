"""The store's process."""

from remembrancer.actors.shell import run_actor
from remembrancer.actors.store.actor import StoreActor

run_actor(StoreActor)

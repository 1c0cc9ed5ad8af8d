"""Chance in the tests of faults: its seed is in the output of a failed test, and `FAULT_SEED` begins there again."""

import os
import random

import pytest


@pytest.fixture
def seed() -> int:
    seed = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))
    print(f"FAULT_SEED={seed}")
    return seed


@pytest.fixture
def dice(seed: int) -> random.Random:
    return random.Random(seed)

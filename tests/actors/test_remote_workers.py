"""The store as a process, and embedders on other hosts, honest and not, over TCP with CURVE."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from remembrancer.actors.embedder.actor import NOT_ADMITTED
from remembrancer.config.settings import Settings
from remembrancer.config.worker_keys import Invitation, WorkerKeys
from remembrancer.protocol.control import PeerGone, RemoteEmbedder
from remembrancer.protocol.errors import Failure, InvalidInput
from remembrancer.protocol.sockets import CurveKeys, Dealer, Speaker
from remembrancer.protocol.work import EmbeddedText, ModelChoice, Passage, to_worker
from remembrancer.protocol.writes import Submit
from tests.actors.store_process import CHOICE, IDENTITY, StoreRig, store_rig, vector_of
from tests.forked import ForkedProcess, start_command
from tests.operations import store_operation
from tests.patience import PATIENCE_S, until
from tests.runtime import command, done

OPEN = Settings(embedder_listen="tcp://127.0.0.1:0", embedders=0, stall_timeout_s=3.0)
"""Any free port, and no embedder of this host's own."""


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home, settings=OPEN) as made:
        yield made


def invite(rig: StoreRig, name: str = "gpu") -> Invitation:
    return WorkerKeys(rig.paths.keys).invite(name, CHOICE, time.time())


async def shown(rig: StoreRig, name: str = "gpu") -> RemoteEmbedder:
    remote = (await rig.health()).remote
    assert remote is not None
    (found,) = [each for each in remote.workers if each.name == name]
    return found


async def until_state(rig: StoreRig, state: str, name: str = "gpu") -> RemoteEmbedder:
    remote: RemoteEmbedder = await until(partial(shown, rig, name), lambda remote: remote.state == state)
    return remote


async def test_a_host_without_a_model_has_vectors_made_by_another_which_can_ask_nothing(rig: StoreRig) -> None:
    memory = await rig.gateway.store("The harbour is dredged in April")
    remote = await rig.remote_worker(invite(rig))
    await rig.gateway.until_embedded()
    assert await rig.gateway.found("harbour dredged") == [memory]
    found = await shown(rig)
    assert found == RemoteEmbedder("gpu", "ready", 1)
    assert [job.text for job in remote.jobs] == ["The harbour is dredged in April"]
    await until(lambda: remote.pings)
    remote.say(Submit(store_operation("op", "Planted from elsewhere")))
    remote.say(Failure("internal_error", "no job of mine"), 1)
    await rig.gateway.embedding_of(await rig.gateway.store("The lighthouse is white"))
    assert await rig.gateway.found("planted harbour", strategy="keyword") == [memory]


async def test_a_worker_of_another_model_is_refused_with_the_reason(rig: StoreRig) -> None:
    await rig.worker()
    others: dict[str, dict[str, Any]] = {
        "does not use the model": {"choice": ModelChoice("onnx", "elsewhere")},
        "this memory's vectors are from": {"identity": msgspec.structs.replace(IDENTITY, revision="f" * 16)},
    }
    for reason, options in others.items():
        worker = await rig.remote_worker(invite(rig, name := "-".join(reason.split())), **options)
        refused = await until_state(rig, "refused", name)
        assert reason in str(refused.error)
        await until(partial(getattr, worker, "asked"))


async def test_questions_are_asked_of_this_hosts_worker_while_there_is_one(rig: StoreRig) -> None:
    local = await rig.worker()
    remote = await rig.remote_worker(invite(rig))
    await until_state(rig, "ready")
    await rig.gateway.store("The harbour is dredged in April")
    await rig.gateway.until_embedded()
    await rig.gateway.recall("harbour")
    assert local.questions == ["harbour"]
    assert not remote.questions


async def test_a_lying_worker_is_refused_at_its_first_lie_and_this_hosts_does_its_jobs(rig: StoreRig) -> None:
    liar = await rig.remote_worker(invite(rig))
    await until_state(rig, "ready")
    liar.garbles = lambda vectors: vectors[: len(vectors) // 2]
    memories = [await rig.gateway.store(f"Fact number {n} about the harbour") for n in range(3)]
    refused = await until_state(rig, "refused")
    assert "an answer did not fit its model" in str(refused.error)
    await until(lambda: any(isinstance(each, Failure) for each in liar.asked))
    await rig.worker()
    await rig.gateway.until_embedded()
    assert set(await rig.gateway.found("fact harbour")) == set(memories)
    assert (await rig.gateway.describe()).embedding.dead_letters == 0
    pings = liar.pings
    await until(lambda: liar.pings > pings + 1)  # it says each time that it is ready
    assert (await shown(rig)).state == "refused", "until it is started anew"


async def test_answers_to_jobs_and_questions_of_others_count_for_nothing(rig: StoreRig) -> None:
    local = await rig.worker(holds=True)
    await rig.gateway.store("The harbour is dredged in April")
    await until(lambda: local.jobs)
    liar = await rig.remote_worker(invite(rig))
    await until_state(rig, "ready")
    job = local.jobs[0]
    liar.say(EmbeddedText((Passage(0, 3),), vector_of("zebra").tobytes()), job.message_id)
    await rig.gateway.store("Another fact")
    await until(lambda: liar.jobs)  # so its first word was heard
    await rig.gateway.until(lambda now: now.embedding.pending == 1)
    local.answer(local.jobs)
    await rig.gateway.until_embedded()


async def test_who_is_not_on_the_list_or_has_another_stores_key_is_not_let_in(rig: StoreRig) -> None:
    invitation = invite(rig)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    stranger = CurveKeys(public, secret, invitation.keys.server)
    mistaken = CurveKeys(invitation.keys.public, invitation.keys.secret, public)
    remote = (await rig.health()).remote
    assert remote is not None
    found: list[bool | str] = []
    other: list[bool | str] = []
    async with (
        Dealer(remote.address, Speaker("x", "x"), to_worker, keys=stranger, on_refused=found.append),
        Dealer(remote.address, Speaker("y", "y"), to_worker, keys=mistaken, on_refused=other.append) as second,
    ):
        await until(lambda: found)
        assert found[0] is True, NOT_ADMITTED
        await until(lambda: other)
        assert other[0] is False
        assert not second.connected
    assert (await shown(rig)).state == "away"


async def test_a_revoked_worker_is_told_so_and_given_nothing_more(rig: StoreRig) -> None:
    remote = await rig.remote_worker(invite(rig), holds=True)
    await until_state(rig, "ready")
    await rig.gateway.store("The harbour is dredged in April")
    await until(lambda: remote.jobs)
    WorkerKeys(rig.paths.keys).revoke("gpu")
    await until(lambda: any(isinstance(each, Failure) and "revoked" in each.message for each in remote.asked))
    remote.answer(remote.jobs)
    await rig.gateway.store("The lighthouse is white")
    local = await rig.worker()
    await rig.gateway.until_embedded()
    assert len(local.jobs) == 2
    assert len(remote.jobs) == 1


def test_names_of_invited_embedders_are_unique_and_their_files_private(tmp_path: Path) -> None:
    keys = WorkerKeys(tmp_path / "home" / "keys")
    invitation = keys.invite("gpu", CHOICE, 1.0)
    with pytest.raises(InvalidInput, match="another embedder has the name 'gpu'"):
        keys.invite("gpu", CHOICE, 2.0)
    assert WorkerKeys(tmp_path / "home" / "keys").find(invitation.public) == keys.all()[0]
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").rglob("*")}
    assert set(modes.values()) == {0o600, 0o700}
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    stored = b"".join(path.read_bytes() for path in (tmp_path / "home" / "keys").iterdir())
    assert invitation.secret.encode() not in stored
    keys.revoke("gpu")
    assert keys.find(invitation.public) is None
    with pytest.raises(InvalidInput, match="there is no embedder 'gpu'"):
        keys.revoke("gpu")


# --- `remembrancer admin embedder`: a real worker with the real model, killed, paused, not let in.
async def start(rig: StoreRig, tmp_path: Path, name: str) -> ForkedProcess:
    file = tmp_path / f"{name}.key"
    assert json.loads(done("admin", "embedder", "--invite", str(file), "--json", home=rig.home))["name"] == name
    assert file.stat().st_mode & 0o777 == 0o600
    remote = (await rig.health()).remote
    assert remote is not None
    elsewhere = {**os.environ, "REMEMBRANCER_HOME": str(tmp_path / "elsewhere")}
    arguments = ("embedder", "--connect", remote.address, "--key-file", str(file), "--threads", "1")
    return start_command(*arguments, environ=elsewhere, printed=tmp_path / f"{name}.out")


async def test_a_worker_that_is_killed_or_paused_costs_nothing_but_time(rig: StoreRig, tmp_path: Path) -> None:
    first = await start(rig, tmp_path, "first")
    await until_state(rig, "ready", "first")
    second = await start(rig, tmp_path, "second")
    await until_state(rig, "ready", "second")
    texts = [f"Ship number {n} left the harbour with {n * 7} crates of tea on board" for n in range(60)]
    for text in texts[:30]:
        await rig.gateway.store(text)
    first.kill()
    await rig.gateway.until_embedded()
    await until_state(rig, "away", "first")
    second.send_signal(signal.SIGSTOP)
    for text in texts[30:]:
        await rig.gateway.store(text)
    await until_state(rig, "away", "second")
    local = rig.launch("embedder")
    await rig.gateway.until_embedded()
    await rig.gateway.until(lambda now: now.embedding.workers == 1)
    assert (await rig.gateway.describe()).embedding.dead_letters == 0
    found = await rig.gateway.recall("Where is ship number 41?")
    assert "number 41 " in found.memories[0].content
    second.send_signal(signal.SIGCONT)
    await until_state(rig, "ready", "second")
    await local.kill()
    await rig.launcher.tell(rig.store, PeerGone("embedder", local.spec.incarnation))
    late = await rig.gateway.store("The lighthouse is white")
    assert (await rig.gateway.embedding_of(late)).embedded, "by the one that is back"
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_S) == 0


async def test_a_worker_says_why_it_is_not_let_in_and_ends(rig: StoreRig, tmp_path: Path) -> None:
    worker = await start(rig, tmp_path, "gpu")
    await until_state(rig, "ready", "gpu")
    assert "connected to tcp://" in (tmp_path / "gpu.out").read_text()
    done("admin", "embedder", "--revoke", "gpu", home=rig.home)
    assert worker.wait(PATIENCE_S) == 8
    assert "this embedder was revoked" in (tmp_path / "gpu.out").read_text()
    address = (await rig.health()).remote.address  # type: ignore[union-attr]
    again = command("admin", "embedder", "--connect", address, "--key-file", str(tmp_path / "gpu.key"), home=rig.home)
    assert again.returncode == 8
    assert "the store does not accept this embedder" in again.stderr

from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer.actors.store.dispatcher import Dispatcher, RequestContext
from remembrancer.protocol.control import AskScale
from remembrancer.protocol.errors import Failure, InternalError, InvalidInput, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.sockets import Dealer, Reply, Router, Speaker
from remembrancer.protocol.wire import Notice
from tests.patience import PATIENCE_S

FAULTS = {1: InvalidInput("no odd numbers"), 3: KeyError("a secret text")}
HALVED = Notice("partial_results", "it was halved")


async def halve(request: AskScale, context: RequestContext) -> object:
    if (fault := FAULTS.get(request.embedders)) is not None:
        raise fault
    context.notices.append(HALVED)
    return object() if request.embedders == 5 else request.embedders // 2


async def test_every_request_is_answered_or_refused_whatever_its_handler_does_and_none_is_begun_during_a_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []
    endpoint = f"ipc://{tmp_path / 's'}"
    dispatcher = Dispatcher(lambda *_: events.append("asked"), lambda *_: events.append("answered"), {})
    dispatcher.register({AskScale: halve})
    dispatcher.router = Router(endpoint, Speaker("store", "01S"), dispatcher.decoder(), dispatcher.take)
    client: Dealer[Any] = Dealer(endpoint, Speaker("gateway", "01G"), msgspec.msgpack.Decoder(Failure))

    async def refusal_of(number: int) -> RemembrancerError:
        with pytest.raises(RemembrancerError) as caught:
            await client.request(AskScale(number), timeout_s=PATIENCE_S)
        return caught.value

    async with dispatcher.tasks, dispatcher.router, client:
        assert await client.wait_connected(PATIENCE_S)
        refused = await refusal_of(1)
        assert (type(refused), refused.message) == (InvalidInput, "no odd numbers")
        assert not caplog.records
        for number in (3, 5):  # a fault of the handler, and a reply that cannot be sent
            refused = await refusal_of(number)
            assert (type(refused), "secret" in refused.message) == (InternalError, False)
        assert [vars(each)["request"] for each in caplog.records if each.exc_info] == ["AskScale", "AskScale"]
        assert await client.exchange(AskScale(8), timeout_s=PATIENCE_S) == Reply(4, (HALVED,))
        dispatcher.draining = True
        refused = await refusal_of(8)
        assert (type(refused), refused.message) == (MemoryUnavailable, "the store is stopping")
    assert events == ["asked", "answered"] * 5, "background work waits until clients have had their answers"

"""Who carries out which duty."""

from __future__ import annotations

from typing import Final

from remembrancer.actors.consolidator.handlers import Handlers
from remembrancer.actors.consolidator.work.consolidating import consolidate
from remembrancer.actors.consolidator.work.maintaining import maintain
from remembrancer.actors.consolidator.work.promote_now import promote_now
from remembrancer.actors.consolidator.work.reflecting import reflect
from remembrancer.actors.consolidator.work.session_end import end_session
from remembrancer.protocol.consolidation import (
    ConsolidateDuty,
    MaintainDuty,
    PromoteDuty,
    ReflectDuty,
    SessionEndDuty,
)

HANDLERS: Final[Handlers] = {
    SessionEndDuty: end_session,
    PromoteDuty: promote_now,
    ConsolidateDuty: consolidate,
    MaintainDuty: maintain,
    ReflectDuty: reflect,
}

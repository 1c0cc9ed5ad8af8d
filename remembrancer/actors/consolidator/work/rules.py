"""All the numbers that the consolidator decides by, from the settings of the runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from remembrancer.actors.consolidator.maintenance import DEFAULT_RULES as MAINTENANCE
from remembrancer.actors.consolidator.maintenance import MaintenanceRules
from remembrancer.actors.consolidator.promotion import DEFAULT_RULES as PROMOTION
from remembrancer.actors.consolidator.promotion import PromotionRules
from remembrancer.actors.consolidator.reflection.clusters import ClusterRules
from remembrancer.actors.consolidator.reflection.contradictions import ContradictionRules
from remembrancer.actors.consolidator.reflection.themes import ThemeRules
from remembrancer.config.settings import Settings, maintenance_rules, promotion_rules

VECTORS_WAIT_S: Final = 10.0
"""How long memories are waited for that have no vectors yet. Without, they are promoted and never merged."""


@dataclass(frozen=True, slots=True)
class WorkRules:
    """The numbers of promotion, of maintenance and of reflection."""

    promotion: PromotionRules = PROMOTION
    maintenance: MaintenanceRules = MAINTENANCE
    clusters: ClusterRules = field(default_factory=ClusterRules)
    themes: ThemeRules = field(default_factory=ThemeRules)
    contradictions: ContradictionRules = field(default_factory=ContradictionRules)
    vectors_wait_s: float = VECTORS_WAIT_S
    summarise_in_background: bool = True
    """Whether memories are summed up without somebody having asked for it."""


def rules_of(settings: Settings) -> WorkRules:
    """The rules that the settings ask for. Where no embedder runs, nobody waits for vectors."""
    return WorkRules(
        promotion=promotion_rules(settings),
        maintenance=maintenance_rules(settings),
        vectors_wait_s=VECTORS_WAIT_S if settings.embedders else 0.0,
        summarise_in_background=settings.consolidate_in_background,
    )

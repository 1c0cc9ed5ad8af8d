"""The rules of promotion and of maintenance that a runtime's settings ask for: to decide by and to explain by."""

from __future__ import annotations

from dataclasses import replace

from remembrancer.config.settings import Settings
from remembrancer.protocol.rules import (
    DEFAULT_MAINTENANCE,
    DEFAULT_PROMOTION,
    ArchiveRule,
    MaintenanceRules,
    PromotionRules,
)


def promotion_rules(settings: Settings) -> PromotionRules:
    """The numbers by which memories are promoted."""
    return replace(
        DEFAULT_PROMOTION,
        session_end_score=settings.promotion_session_end_score,
        at_once_score=settings.promotion_at_once_score,
        user_score=settings.promotion_user_score,
        merge_cosine=settings.promotion_merge_cosine,
    )


def maintenance_rules(settings: Settings) -> MaintenanceRules:
    """The numbers by which memories are archived and let go."""
    return replace(
        DEFAULT_MAINTENANCE,
        project=ArchiveRule(
            settings.archive_project_strength,
            settings.archive_project_after_s,
            DEFAULT_MAINTENANCE.project.accessed_below,
        ),
        user=ArchiveRule(
            settings.archive_user_strength, settings.archive_user_after_s, DEFAULT_MAINTENANCE.user.accessed_below
        ),
        delete_after_s=settings.delete_archived_after_s,
        orphan_after_s=settings.orphan_after_s,
        session_details_kept_s=settings.session_details_kept_s,
        runs_kept_s=settings.runs_kept_s,
    )

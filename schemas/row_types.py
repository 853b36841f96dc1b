"""All rows: the tables that a shard is made with."""

from __future__ import annotations

from palimpsest.schemas.audit_rows import AcceptedRow, DeadLetterRow, HistoryRow
from palimpsest.schemas.privacy import PrivacyRow
from palimpsest.schemas.promotion_rows import PromotionItemRow, PromotionPartRow, PromotionRow
from palimpsest.schemas.rows import (
    ArchiveRow,
    AspectRow,
    AttributeRow,
    CategoriesRow,
    CommandRow,
    DocumentMemoryRow,
    DocumentRow,
    EdgeRow,
    ExtractionRow,
    FactRow,
    FlagsRow,
    MemoryRow,
    MentionRow,
    NameRow,
    OpenSessionsRow,
    OutcomeRow,
    PendingProposalRow,
    ProposalRow,
    RelationRow,
    Row,
    SessionRow,
    ShadowProposalRow,
    ShortTermRow,
)

ROW_TYPES: tuple[type[Row], ...] = (
    MemoryRow,
    ArchiveRow,
    EdgeRow,
    SessionRow,
    OpenSessionsRow,
    ShortTermRow,
    NameRow,
    RelationRow,
    MentionRow,
    AspectRow,
    AttributeRow,
    FactRow,
    ExtractionRow,
    ProposalRow,
    PendingProposalRow,
    OutcomeRow,
    AcceptedRow,
    HistoryRow,
    DeadLetterRow,
    CommandRow,
    FlagsRow,
    PrivacyRow,
    DocumentRow,
    DocumentMemoryRow,
    PromotionRow,
    PromotionItemRow,
    PromotionPartRow,
    ShadowProposalRow,
    CategoriesRow,
)

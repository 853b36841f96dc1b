"""All operations by name, collected from the files of the subjects."""

from __future__ import annotations

from typing import Any, Final

from palimpsest.ops.operations import (
    answers,
    authoring,
    changing,
    dead_letters,
    documents,
    forgetting,
    graph,
    memories,
    privacy,
    proposals,
    provenance,
    scopes,
    selection,
    sessions,
)
from palimpsest.ops.operations.lifecycle import (
    archive,
    embeddings,
    fading,
    health,
    jobs,
    pipeline,
    retention,
    simulation,
)
from palimpsest.ops.operations.operation import Operation, defined_in
from palimpsest.ops.replay import operations as replay

SUBJECTS: Final = (
    memories,
    fading,
    provenance,
    changing,
    forgetting,
    selection,
    graph,
    authoring,
    sessions,
    documents,
    privacy,
    proposals,
    answers,
    pipeline,
    jobs,
    retention,
    scopes,
    health,
    dead_letters,
    archive,
    embeddings,
    simulation,
    replay,
)


OPERATIONS: Final[dict[str, type[Operation[Any]]]] = {
    kind.slug: kind for module in SUBJECTS for kind in defined_in(module)
}

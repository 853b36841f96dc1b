"""What every section of the settings is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the settings file: a model that lies beside what it sets, each value with its
    default, its limits and its meaning. Whoever uses a value takes the section itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

"""The section `http` of the settings: what `palimpsest serve` listens on and what it allows."""

from __future__ import annotations

from pydantic import Field

from palimpsest.schemas.section import Section


class HttpSettings(Section):
    host: str = Field(
        default="127.0.0.1",
        description="address that `palimpsest serve` listens on; any but loopback needs tokens",
    )
    port: int = Field(default=3850, ge=0, le=65535, description="its port; 0 selects a free one")
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description="names that the Host header may have beside localhost on loopback; elsewhere,"
        " when set, the only ones; separated by commas",
    )
    max_connections: int = Field(
        default=512,
        ge=1,
        description="connections at once; fewer where the system grants too few file descriptors",
    )
    head_seconds: float = Field(
        default=10.0,
        gt=0.0,
        description="how long a connection may take to say what it asks for, in seconds",
    )
    body_seconds: float = Field(
        default=30.0,
        gt=0.0,
        description="how long a body may take, in seconds; one more for every 16 KiB of it",
    )
    requests_per_token: int = Field(
        default=64, ge=1, description="maximum number of concurrent requests of a token"
    )
    streams_per_token: int = Field(
        default=10, ge=1, description="maximum number of open event streams and exports of a token"
    )
    unprocessed_bytes_per_token: int = Field(
        default=256 * 1024,
        ge=1024,
        description="bytes of turns and changes that a token sent and that are not processed yet;"
        " a token that has reached them is answered by 429 (embedded log)",
    )
    wait_seconds: float = Field(
        default=5.0,
        ge=0.0,
        le=60.0,
        description="how long a change waits for its result unless the request says, in seconds",
    )
    sql_seconds: float = Field(
        default=30.0, gt=0.0, description="maximum duration of a SQL query, in seconds"
    )
    max_body_bytes: int = Field(
        default=1024 * 1024, ge=1024, description="maximum size of a request body, in bytes"
    )
    max_import_bytes: int = Field(
        default=1024 * 1024 * 1024, ge=1024, description="maximum size of an import file, in bytes"
    )
    modify_per_minute: int = Field(
        default=60, ge=1, description="changes of memories that a token may ask for in a minute"
    )
    delete_per_minute: int = Field(
        default=30, ge=1, description="single memories that a token may have forgotten in a minute"
    )
    batch_forget_per_minute: int = Field(
        default=5, ge=1, description="forgets of many memories that a token may ask for in a minute"
    )

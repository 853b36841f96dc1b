"""gateway: a single address for reads from all workers of a cluster."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import typer

from palimpsest.ops.cli.common import Cli, command, usage_error, warn

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings


def register(app: typer.Typer) -> None:
    command(app)(gateway)


def gateway(cli: Cli) -> None:
    """Serve queries at one address, each answered by the owner of the scope's partition.

    Listens at kafka.listen and kafka.listen_port; has no store. On an address other than loopback
    it needs kafka.worker_token, the secret that callers send as a bearer token.

    Example: palimpsest gateway --set log.kind=kafka --set kafka.listen_port=8765
    """

    import asyncio

    settings = cli.settings
    if settings.log.kind != "kafka":
        raise usage_error("the gateway is for workers on Kafka; add --set log.kind=kafka")
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    import asyncio

    from palimpsest.ops.service.local import local_interface
    from palimpsest.ops.service.routing import RoutedQueries
    from palimpsest.ops.service.running import listen_address

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    folder = settings.data_dir / "gateway"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    routed = RoutedQueries(settings, settings.cluster.partitions)
    try:
        async with local_interface(routed, folder, listen_address(settings)) as announced:
            warn(f"the gateway listens at {settings.kafka.listen}:{announced.port}")
            await stop.wait()
    finally:
        await routed.close()

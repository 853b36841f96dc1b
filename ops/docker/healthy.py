"""Whether this container's worker, gateway or HTTP service answers; for its healthcheck.

python -m palimpsest.ops.docker.healthy [gateway | serve]
"""

from __future__ import annotations

import asyncio
import sys

import httpx

from palimpsest.ops.errors import RequestError
from palimpsest.ops.service.announcement import announced, announcements
from palimpsest.ops.service.client import NotThereError, RemoteQueries
from palimpsest.ops.settings.sources import SettingsError, load_settings


async def healthy(gateway: bool) -> bool:
    """True when one worker that announced itself here, or the gateway, answers to its token."""
    data_dir = load_settings().settings.data_dir
    places = announcements(data_dir)
    if gateway:
        own = announced(data_dir / "gateway")
        places = {} if own is None else {f"http://127.0.0.1:{own.port}": own.token}
    for place, token in places.items():
        client = RemoteQueries(place, token)
        try:
            await client.ping()
        except (NotThereError, RequestError):
            continue
        finally:
            await client.close()
        return True
    return False


def served() -> bool:
    """True when the HTTP service answers."""
    port = load_settings().settings.http.port
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5.0).is_success
    except httpx.HTTPError:
        return False


def main() -> int:
    """Exit code 0 when healthy."""
    what = sys.argv[1:]
    try:
        good = served() if "serve" in what else asyncio.run(healthy("gateway" in what))
        return 0 if good else 1
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""Runs the program's main commands in a network of its own and prints what they looked up.

Started by `unshare --net --mount`: the only interface is loopback, on which every name is asked of
this process. Prints a JSON object: the names that were looked up and the exit code of each command.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def name_asked(datagram: bytes) -> str:
    labels, place = [], 12
    while place < len(datagram) and datagram[place]:
        length = datagram[place]
        labels.append(datagram[place + 1 : place + 1 + length].decode("ascii", "replace"))
        place += length + 1
    return ".".join(labels)


def listen(asked: list[str]) -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))

    def answer() -> None:
        while True:
            datagram, sender = server.recvfrom(4096)
            asked.append(name_asked(datagram))
            # No such name.
            server.sendto(datagram[:2] + b"\x81\x83" + datagram[4:], sender)

    threading.Thread(target=answer, daemon=True).start()


def served(program: list[str], data: str) -> int:
    """The exit code of a service that answered a recall and was then stopped."""
    service = subprocess.Popen(
        [*program, "serve", "--port", "0", "--data-dir", data],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert service.stdout is not None
    try:
        for line in service.stdout:
            address = re.search(r"http://127\.0\.0\.1:\d+", line)
            if address is not None:
                break
        else:
            return service.wait()
        urllib.request.urlopen(f"{address[0]}/health", timeout=60).read()
    finally:
        service.terminate()
    return service.wait()


def main(folder: Path) -> None:
    resolver = folder / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n")
    subprocess.run(["mount", "--bind", str(resolver), "/etc/resolv.conf"], check=True)
    bring_up_loopback()
    asked: list[str] = []
    listen(asked)
    data, turns = str(folder / "data"), folder / "turns.jsonl"
    turns.write_text(json.dumps({"role": "user", "content": "I moved to Lisbon in March."}))
    program = [sys.executable, "-m", "palimpsest.ops.cli.main"]
    commands = (
        ("ingest", str(turns), "--scope", "home"),
        ("run", "--once"),
        ("recall", "where does Ana live?", "--scope", "home"),
        ("doctor",),
    )
    codes = {}
    for command in commands:
        arguments = [*program, *command, "--data-dir", data]
        codes[command[0]] = subprocess.run(arguments, capture_output=True, check=False).returncode
    codes["serve"] = served(program, data)
    print(json.dumps({"asked": asked, "codes": codes}))


if __name__ == "__main__":
    os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = sys.argv[2]
    main(Path(sys.argv[1]))

"""Hooks of a coding agent: what is said becomes memory, and what is known comes back.

The agent runs this program when the user has typed a prompt, with the event as JSON on standard
input, and puts what it prints before the prompt; and again when it has answered. Here the two
events are named UserPromptSubmit and Stop; in the settings of an agent that names them so:

    {"hooks": {
      "UserPromptSubmit": [{"hooks": [
        {"type": "command", "command": "python coding_agent_hooks.py"}]}],
      "Stop": [{"hooks": [
        {"type": "command", "command": "python coding_agent_hooks.py"}]}]}}

A project has a memory space of its own, named as its folder. The memory lies where
PALIMPSEST_DATA_DIR says. `palimpsest run`, left running, makes the hooks quick: without it each of
them opens the memory itself.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from palimpsest import Memory

BUDGET_TOKENS = 600


def main() -> None:
    event: dict[str, Any] = json.load(sys.stdin)
    scope = Path(event["cwd"]).name or "home"
    with Memory(scope=scope) as memory:
        if event["hook_event_name"] == "UserPromptSubmit":
            known = memory.context(event["prompt"], budget=BUDGET_TOKENS).text
            publish(memory, event["session_id"], "user", event["prompt"])
            if known:
                sys.stdout.write(f"What is remembered of this project:\n\n{known}\n")
        elif event["hook_event_name"] == "Stop":
            answer = last_answer(Path(event["transcript_path"]))
            publish(memory, event["session_id"], "assistant", answer)


def publish(memory: Memory, session: str, role: str, text: str) -> None:
    """One id for one text of a session: a hook that runs twice publishes once."""
    if text.strip():
        turn_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session}/{role}/{text}"))
        turn = {"turn_id": turn_id, "role": role, "speaker": role, "content": text}
        memory.add(turn, session_id=session, wait=False)


def last_answer(transcript: Path) -> str:
    """The texts of the agent's last message; a line of the transcript is a message."""
    texts: list[str] = []
    for line in transcript.read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        if said.get("type") == "assistant":
            content = said["message"]["content"]
            found = [part["text"] for part in content if part.get("type") == "text"]
            texts = found or texts
    return "\n".join(texts)


if __name__ == "__main__":
    main()

"""Conversations in LoCoMo's layout, made up."""

from __future__ import annotations

import json
from pathlib import Path

SAID = (
    ("Ana", "I live in Lisbon with my sister Nora."),
    ("Ben", "Nice! I adopted a dog called Rex."),
    ("Ana", "I am allergic to walnuts, as you know, Ben."),
    ("Ben", "I play the cello on Sundays."),
)
QUESTIONS = (
    ("Where does Ana live?", "D1:1", 4),
    ("Which animal did Ben adopt?", "D1:2", 1),
    ("What did nobody say?", "D1:2", 5),
)


def write_conversations(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    turns = [
        {"speaker": speaker, "dia_id": f"D1:{number}", "text": text}
        for number, (speaker, text) in enumerate(SAID, 1)
    ]
    asked = [
        {"question": text, "evidence": [evidence], "category": category}
        for text, evidence, category in QUESTIONS
    ]
    whole = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns, "qa": asked}
    for name in names:
        (folder / f"{name}.json").write_text(json.dumps(whole), encoding="utf-8")
    return folder

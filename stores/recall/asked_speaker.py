"""Whether a question asks for an assistant's statements, read from its words."""

from __future__ import annotations

import re
from typing import Final, Literal

AskedSpeaker = Literal["people", "assistant", "anyone"]
"""Whose words a question asks for. `anyone`: it may be either."""

MAX_CHARACTERS: Final = 2_000
"""Text beyond this is not read."""
_SAID = (
    "said|told|mentioned|recommended|suggested|advised|gave|given|provided|listed|described"
    "|explained|proposed|wrote|written|created|shared|showed|shown|named|noted|referred"
    "|came up with|come up with|talked|made|answered|replied|called|helped|taught|found"
)
_SAY = (
    "say|tell|mention|recommend|suggest|advise|give|provide|list|describe|explain|propose|write"
    "|create|share|show|name|note|refer|come up|talk|make|answer|reply|call|help|teach|find"
)
_ADVERB = "had|have|also|just|once|all|previously|earlier|already|originally"
_EARLIER = "previous|last|earlier|past|prior|first|recent"
_TALK = (
    "conversation|chat|discussion|session|exchange|talk|message|answer|reply|response"
    "|recommendation|suggestion"
)
_OF_ASSISTANT: Final = re.compile(
    rf"\b(?:you(?:['’]ve|['’]d)?(?: (?:{_ADVERB})){{0,2}} (?:{_SAID})"
    rf"|did you (?:\w{{1,20}} )?(?:{_SAY})|(?:had|have) you (?:\w{{1,20}} )?(?:{_SAID})"
    r"|you were (?:saying|referring|talking|recommending|suggesting|describing|explaining)"
    rf"|(?:our|your) (?:\w{{1,20}} )?(?:{_EARLIER}) (?:\w{{1,20}} )?(?:{_TALK})s?"
    r"|(?:the|my) assistant)\b",
    re.IGNORECASE,
)
_OF_EITHER: Final = re.compile(r"\bremind me\b", re.IGNORECASE)


def asked_speaker(question: str) -> AskedSpeaker:
    """`assistant` for "what did you recommend" or "in our last chat you listed …", `anyone` for
    "remind me of …", `people` for all else. English only."""
    text = question[:MAX_CHARACTERS]
    if _OF_ASSISTANT.search(text):
        return "assistant"
    return "anyone" if _OF_EITHER.search(text) else "people"

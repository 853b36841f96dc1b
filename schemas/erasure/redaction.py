"""Removes the texts of erased memories from stored data: messages and rows, as JSON.

Each removed text is replaced by a mark. Equal texts get equal marks and different ones different
marks, so equality is preserved: folding the redacted records into a store, and then executing the
erasure, leads to the state of the store that was erased."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import JsonValue

from palimpsest.schemas.erasure.quotations import ERASED, LONG, Quotations, is_mark, mark_of
from palimpsest.schemas.erasure.vocabulary import SOURCES, is_plain, plain_part
from palimpsest.schemas.identity import (
    ImportedIds,
    command_memory_id,
    document_id,
    entity_id,
    erased_name,
    erased_relation,
    fact_memory_id,
    turn_item_id,
    turn_memory_id,
)
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.normal_forms import (
    canonical_name,
    content_hash,
    folded,
    folded_hash,
    parse_prefix,
    shown_name,
)
from palimpsest.schemas.surrogates import dumped

OWN: Final = frozenset(
    {"content", "normalized_content", "published_content", "old_content", "new_content", "fact"}
    | {"chunks"}
)
"""Fields that hold a text as a whole: changed only if all of it is erased."""
QUOTING: Final = frozenset(
    {"reason", "warnings", "raw_output", "dropped", "decision_reason", "error", "why"}
    | {"blocked_reason", "skipped_reason", "summary", "title", "question"}
)
"""Fields that may quote a text."""
OF_MODEL: Final = frozenset({"raw_output", "warnings", "dropped", "decision_reason"})
"""Fields in which a model describes its input."""
_PROPOSED: Final = frozenset({"created", "modified", "deleted", "none", "dropped"})
"""Outcomes of a fact whose reason is the decision's."""
GRAPH_LINES: Final = ("name", "relation", "mention", "aspect", "attribute")
"""Kinds of imported lines that belong to the graph."""
_CALLED: Final = ("title", "source")
"""Fields that name a document."""
_STAYS: Final = frozenset(
    {"id", "memory_id", "turn_memory_id", "source_id", "target_id", "session_id", "correlation_id"}
    | {"name", "canonical_name", "main", "source", "target", "entity"}
    | {"changed_by", "updated_by", "model", "prompt_version", "extraction_model", "reason"}
)
"""Fields of an imported line: ids, names (which are redacted separately), who and what made it."""
_AUTHORED: Final = frozenset({"entities", "aspects", "attributes"})
"""What the graph receives of a memory in addition to triples."""
_ANY_MEMORY: Final = frozenset({""})
CHANGING: Final = (
    OWN
    | QUOTING
    | _AUTHORED
    | {"content_hash", "triples", "value_base64", "action", "event", "command", "turn", "kind"}
)
"""Fields of which every object has one in which `Redaction.node` changes anything."""


@dataclass(slots=True)
class _Place:
    """The position in a record: whose text this is, if an erased memory's (`owner`), and whose the
    next `content` is (`subject`). Within imported lines `ids` maps their ids to those of this
    scope."""

    owner: str | None = None
    subject: str | None = None
    ids: ImportedIds | None = None


@dataclass(slots=True)
class Redaction:
    """Replaces what was erased in a scope: the `erased` memories' own texts, with their `marks` by
    memory and folded form, and everything derived from them. The texts of `kept` memories stay,
    `kept_texts` in folded form, also if equal to an erased one; and so do the names in the graph
    that they contain: `told_by` returns these memories by the ids of names (none for erased ones),
    and is called when needed; if it is None, all names stay. No chunk of `documents` is left. Of
    turns, `refused` are those that became dead letters, by item. `repeats`: by command the memory
    that a `remember` found. `earlier`: by kept memory and version, as "id version", the mark of a
    text that is erased."""

    scope: str
    erased: frozenset[str]
    marks: dict[tuple[str, str], str]
    quoted: Sequence[str] = ()
    kept: frozenset[str] = frozenset()
    kept_texts: Container[str] = frozenset()
    told_by: Callable[[], Mapping[str, frozenset[str]]] | None = dict
    documents: frozenset[str] = frozenset()
    refused: Container[str] = frozenset()
    repeats: Mapping[str, str] = field(default_factory=dict)
    earlier: Mapping[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(init=False)
    _owners: dict[str, str] = field(init=False)
    hashes: dict[str, str] = field(init=False)
    _labels: dict[str, str] = field(default_factory=dict)
    quotations: Quotations = field(init=False)

    def __post_init__(self) -> None:
        # Equal texts have one mark where nothing tells whose they are.
        self.texts = {text: mark for (_, text), mark in reversed(self.marks.items()) if text}
        self._owners = {text: owner for owner, text in reversed(self.marks) if text}
        self.hashes = {
            folded_hash(text): content_hash(mark)
            for text, mark in self.texts.items()
            if text not in self.kept_texts
        }
        self.quotations = Quotations(self.quoted)

    def value(self, value: bytes) -> bytes:
        """Returns a record's value without what was erased; the same bytes if it contains nothing
        of it."""
        try:
            raw: JsonValue = json.loads(value)
        except (ValueError, RecursionError):
            return self._plain(value)
        if not isinstance(raw, dict) or raw.get("scope", self.scope) != self.scope:
            return value
        try:
            redacted = self.node(raw, _Place(self._commanded(raw)))
        except RecursionError:
            return self._plain(value)  # nested as no message is
        if self.documents and isinstance(redacted, dict):
            given = str(raw.get("causation_id") or raw.get("id"))
            added = document_id(self.scope, given) in self.documents

            def bare(node: JsonValue) -> JsonValue:
                if not isinstance(node, dict):
                    return node
                node = {name: bare(each) for name, each in node.items()}
                is_added = added and node.get("command") == "add-document"
                if is_added or node.get("document_id") in self.documents:
                    node |= {
                        name: None if name == "source" else "" for name in _CALLED if name in node
                    }
                return node

            redacted = {name: bare(each) for name, each in redacted.items()}
        return value if redacted == raw else dumped(redacted)

    def node(self, node: JsonValue, place: _Place | None = None, name: str = "") -> JsonValue:
        """Redacts a part of a message or a row, under the name of its field."""
        place = place or _Place()
        if isinstance(node, dict):
            return self._object(node, self._placed(node, place))
        if isinstance(node, list):
            if name in _AUTHORED and place.owner is not None:
                return [self._authored(_object(each)) for each in node]
            if name in ("triples", "relations") and place.owner is not None:
                return [*self._triples(node)]
            return [self.node(each, place, name) for each in node]
        return self._text(node, place, name) if isinstance(node, str) else node

    # --- objects --------------------------------------------------------------------------

    def _commanded(self, raw: Mapping[str, JsonValue]) -> str | None:
        """The erased memory that a `remember`, if this is one, made, found or was drawn from."""
        body = raw.get("body")
        if not isinstance(body, dict):
            return None
        command, given = body.get("command"), raw.get("id")
        if not isinstance(command, dict):
            write = body.get("write")
            command = write.get("command") if isinstance(write, dict) else None
            given = raw.get("causation_id") or raw.get("correlation_id")
        if not isinstance(command, dict) or command.get("command") != "remember":
            return None
        memory_id = command_memory_id(self.scope, str(given))
        sources = [_object(each).get("memory_id") for each in _list(command.get("drawn_from"))]
        if any(each in self.erased for each in (memory_id, *sources)):
            return memory_id
        text = folded(parse_prefix(str(command.get("content")))[2])  # results are not kept for ever
        owner = None if text in self.kept_texts else self._owners.get(text)
        return None if memory_id in self.kept else self.repeats.get(str(given), owner)

    def _placed(self, node: Mapping[str, JsonValue], place: _Place) -> _Place:
        """Determines the owner of an object, by the memories that it names."""
        owner, subject = place.owner, None
        if place.ids is not None:
            node = self._of_scope(node, place.ids)
        turn = node.get("turn")
        ids = [node.get("turn_memory_id"), node.get("source_memory"), node.get("memory_id")]
        ids += [turn.get("memory_id")] if isinstance(turn, dict) else []
        if "turn_id" in node and "memory_id" not in node:
            ids.append(turn_memory_id(self.scope, str(node["turn_id"])))
        many = node.get("memory_ids")
        ids += many[:1] if isinstance(many, list) else []
        for memory_id in ids:
            if isinstance(memory_id, str) and memory_id in self.erased:
                owner = subject = memory_id
            elif isinstance(memory_id, str) and memory_id in self.kept:
                owner = None
        is_fact = node.get("item_kind", "fact") == "fact" and "role" not in node
        if is_fact and isinstance(node.get("item_id"), str):
            fact = fact_memory_id(str(node["item_id"]))
            if fact in self.kept:
                owner = None
            elif fact in self.erased or owner is not None:
                owner, subject = owner or fact, fact
        return _Place(owner, subject or place.subject or owner, place.ids)

    def _of_scope(self, part: Mapping[str, JsonValue], ids: ImportedIds) -> Mapping[str, JsonValue]:
        """Determines the owner of an imported line, or of a part of one, as of the row that it
        becomes."""
        names: tuple[str, ...] = ("memory_id", "source_memory")
        match part.get("kind"):
            case "memory":
                return {"memory_id": ids.of(str(part.get("id")))}
            case "state":
                return self._of_scope({"kind": "memory", **_object(part.get("memory"))}, ids)
            case "fact":
                named = {"item_id": "id", "turn_memory_id": "turn_memory_id"}
                return {name: ids.of(str(part.get(each))) for name, each in named.items()}
            case "edge":
                ends = [ids.of_end(str(part.get(f"{end}_id"))) for end in ("source", "target")]
                ends = [end.partition("@")[0] for end in ends]
                return {"memory_id": next((end for end in ends if end in self.erased), ends[0])}
            case None if "action" in part:
                names = ()  # what was proposed is the turn's
        return {name: ids.of(str(part[name])) for name in names if part.get(name) is not None}

    def _object(self, node: Mapping[str, JsonValue], place: _Place) -> JsonValue:
        if "value_base64" in node:
            return self._dead_letter(node, place)
        redacted = {name: self.node(each, place, name) for name, each in node.items()}
        if isinstance(node.get("from_scope"), str) and "lines" in node:
            ids = ImportedIds(str(node["from_scope"]), self.scope)
            redacted["lines"] = self.node(node["lines"], replace(place, ids=ids), "lines")
        self._command(node, redacted)
        if "speaker" in node and node.get("content") != redacted.get("content"):
            redacted["speaker"] = ""
        if self._leaves_nothing(node):
            turn = _object(redacted["turn"])
            turn = {name: turn[name] for name in turn if name not in ("source_id", "project")}
            turn |= {"speaker": ""} if "speaker" in turn else {}
            if turn.get("source_type") not in SOURCES:
                turn.pop("source_type", None)
            redacted["turn"] = turn  # which turn it was, and no more
        if node.get("kind") in GRAPH_LINES:
            redacted |= self._graph_line(node)
        if "aspect" in node and "version" in node:
            redacted |= self._classified(node, place)
        if place.owner is not None:
            self._owned(node, redacted, place.owner)
            if place.ids is not None and "kind" in node:
                self._line(node, redacted)
        return redacted

    def _graph_line(self, node: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Returns what an imported line loses that only erased memories support: the names in their
        texts, and relations between such names that no other memory has both."""
        kind = str(node["kind"])
        of_names = {"main", "source", "target", "entity"}
        of_names |= set() if kind == "aspect" else {"canonical_name", "name"}
        ends = {name: str(node[name]) for name in node if name in of_names}
        left: dict[str, JsonValue] = {
            name: erased_name(self.scope, each)
            for name, each in ends.items()
            if self._is_erased_name(each)
        }
        if left:
            left |= {name: ERASED for name in ("mention_text", "summary") if node.get(name)}
            left |= {name: "unknown" for name in ("entity_type",) if name in node}
            of_facet = {"aspect": ("canonical_name", "name"), "attribute": ("aspect",)}
            left |= dict.fromkeys(of_facet.get(kind, ()), "erased")
        if left and kind == "relation" and self._is_untold(ends["source"], ends["target"]):
            relation = str(node["relation_type"])
            pair = (ends["source"], ends["target"])
            left["relation_type"] = erased_relation(self.scope, *pair, relation)
        return left

    def _classified(self, node: Mapping[str, JsonValue], place: _Place) -> dict[str, JsonValue]:
        """Redacts the place of a fact among aspects, as a model saw the fact."""
        mark = self.earlier.get(f"{node.get('memory_id')} {node['version']}")
        if place.owner is None and mark is None:
            return {}
        key = None if mark is None or node.get("text_key") is None else embedding_key(mark)
        return self._authored(node) | {"text_key": key}

    def _command(self, node: Mapping[str, JsonValue], redacted: dict[str, JsonValue]) -> None:
        if node.get("command") == "add-document":
            redacted["text"] = self._document(node.get("text"))
        if node.get("command") == "update-short-term-memory" and not self.kept:
            redacted["summary"] = ERASED  # of a scope of which nothing is left
        if node.get("command") == "record-access":
            self._recalls(node, redacted)
        if "command" not in node:
            return
        patches = _list(node.get("patches"))
        named = [*_list(node.get("memory_ids"))]
        named += [node.get("memory_id"), *(_object(each).get("memory_id") for each in patches)]
        about = {each for each in named if isinstance(each, str)}
        if about and about <= self.erased and not node.get("hard"):
            redacted["reason"] = ERASED  # the reason of the erasure itself stays
        for patch, left in zip(patches, _list(redacted.get("patches")), strict=False):
            if _object(patch).get("memory_id") in self.erased and isinstance(left, dict):
                self._patch(_object(patch), left)

    def _recalls(self, node: Mapping[str, JsonValue], redacted: dict[str, JsonValue]) -> None:
        """Recalls lose what they returned of erased memories, and then their question. That these
        memories were accessed stays."""
        accesses = [*_list(node.get("erased"))]
        for recall in map(_object, _list(redacted.get("recalls"))):
            results = _list(recall.get("results"))
            named = {str(_object(each).get("memory_id")): each for each in results}
            gone = [key for key in named if key in self.erased]
            if gone:
                accesses += [{"memory_id": key, "at": recall.get("at")} for key in gone]
                left = [each for key, each in named.items() if key not in gone]
                recall |= {"results": left, "question": None, "question_id": None}
        redacted |= {"erased": accesses} if accesses else {}

    def _owned(
        self, node: Mapping[str, JsonValue], redacted: dict[str, JsonValue], owner: str
    ) -> None:
        """Redacts other fields that go with an erased memory's texts."""
        if "action" in node or self._is_told(node):
            redacted["reason"] = ERASED
        if isinstance(node.get("metadata"), dict) and "event" in node:
            redacted["metadata"] = plain_part(redacted["metadata"])
        if isinstance(kind := node.get("type"), str) and kind and not is_plain(kind):
            redacted["type"] = ERASED
        if {"item_id", "categories"} <= node.keys():
            # A fact whose text another memory keeps has its categories in a rebuild, too.
            text = str(node.get("content") or ERASED)
            if text == ERASED or is_mark(text) or text != redacted["content"]:
                redacted["categories"] = []
        if "turn_id" in node and "content" in node:
            self._turn(node, redacted, owner)
        if node.get("command") == "remember":
            gone = {"who", *({"normalized_content", "content_hash"} & redacted.keys())}
            redacted |= {**dict.fromkeys(gone), **self._wishes(node, owner)}
            if redacted.get("source_type") not in SOURCES:
                redacted.pop("source_type", None)

    def _wishes(self, node: Mapping[str, JsonValue], owner: str) -> dict[str, JsonValue]:
        """Returns what a `remember` says of an erased memory: news of it stays news."""
        critical, tags, text = parse_prefix(str(node.get("content", "")))
        known = folded(text)
        if not is_mark(text) and known not in self.kept_texts:
            # What was found by its source id may have another text.
            number = 1 if node.get("drawn_from") or not node.get("source_id") else 0
            text = self.texts.get(known) or mark_of(owner, number)
        left: dict[str, JsonValue] = {"content": text}
        left |= {"pinned": True, "importance": 1.0} if critical else {}
        names = ("importance", "type", "project", "tags")
        given = {name: node[name] for name in names if node.get(name) is not None}
        given |= {"tags": node.get("tags") or [*tags]} if tags else {}
        left |= {name: self._label(each) for name, each in given.items()}
        if node.get("source_id") is not None and not node.get("drawn_from"):  # an entity's id
            left["source_id"] = mark_of(owner)
        metadata = {
            self._hidden(k): self._hidden(v) for k, v in _object(node.get("metadata")).items()
        }
        return left | ({"metadata": {**metadata}} if "metadata" in node else {})

    def _hidden(self, node: JsonValue) -> str:
        """As `_label`, of any value."""
        text = node if isinstance(node, str) else json.dumps(node, sort_keys=True)
        label = f"[erased label {len(self._labels) + 1}]"
        return text if is_mark(text) else self._labels.setdefault(text, label)

    def _leaves_nothing(self, node: Mapping[str, JsonValue]) -> bool:
        """Whether facts come from an erased memory and none of them is kept: a kept fact has its
        speaker from there."""
        facts = node.get("facts", node.get("proposals"))
        turn = node.get("turn")
        if not isinstance(facts, list) or not isinstance(turn, dict):
            return False
        ids = [fact_memory_id(str(each.get("item_id"))) for each in facts if isinstance(each, dict)]
        return turn.get("memory_id") in self.erased and self.kept.isdisjoint(ids)

    def _patch(self, node: Mapping[str, JsonValue], redacted: dict[str, JsonValue]) -> None:
        """What a command changes of a memory: what was a change is one afterwards."""
        labels = ("tags", "type", "who")
        redacted |= {name: self._label(node[name]) for name in labels if name in node}
        if node.get("reason") is not None:
            redacted["reason"] = ERASED

    def _label(self, node: JsonValue) -> JsonValue:
        """Returns the replacement of a word that someone chose: equal ones for equal words."""
        if isinstance(node, list):
            return [self._label(each) for each in node]
        is_shown = not isinstance(node, str) or not node or is_plain(node)
        return node if is_shown else self._hidden(node)

    def _is_told(self, node: Mapping[str, JsonValue]) -> bool:
        """Whether a reason concerns the outcome of a memory: that of the erasure itself stays."""
        event = str(node.get("event", node.get("outcome")))
        if event == "purged" or node.get("reason") == "turn stored":
            return False
        by = str(node.get("changed_by", "pipeline"))
        is_command = "changed_by" in node and node.get("item_kind") != "fact"
        return event in _PROPOSED or (is_command and not by.startswith("pipeline"))

    def _line(self, line: Mapping[str, JsonValue], redacted: dict[str, JsonValue]) -> None:
        """Returns what remains of an imported line: its counts and identifiers."""
        for name, held in [*redacted.items()]:
            if name in _STAYS or name in OWN:
                continue
            if isinstance(held, str) and held and not is_mark(held) and not is_plain(held):
                redacted[name] = ERASED
            elif isinstance(held, list) and name in ("tags", "categories"):
                redacted[name] = []
        if line["kind"] == "memory":
            redacted |= {"metadata": {}, "extraction_model": None}
            if line.get("source_type") != "extraction":
                redacted["source_id"] = None
        redacted |= {"reason": ERASED} if line["kind"] == "state" else {}
        if line.get("text_key"):
            redacted["text_key"] = ERASED  # a hash of the text

    def _turn(
        self, node: Mapping[str, JsonValue], redacted: dict[str, JsonValue], owner: str
    ) -> None:
        """A turn keeps what it is counted by, and nothing else from its producer."""
        text = str(node["content"])
        # Of a turn that was edited, each text has a mark of its own.
        # An edit that was never stored must not pass for a repeat.
        other = mark_of(owner, 1 if node.get("revised_at") is None else 0)
        own = self.marks.get((owner, folded(text)), other)
        mark: str | None = text if is_mark(text) else own
        if "normalized_content" not in node and text != mark:
            try:
                turn = ConversationTurn.model_validate(dict(node))
                # No reader accepts half a surrogate pair.
                json.dumps(node, ensure_ascii=False).encode()
            except ValueError:
                mark = None  # it counts by its place, and must not become readable
            else:
                redacted["erased_item_id"] = turn_item_id(self.scope, turn)
        known = {"item_id", "erased_item_id", "memory_id", "content_hash", "context"}
        known |= {"normalized_content", *ConversationTurn.model_fields} - {"source_id", "project"}
        for name in {*redacted} - known:
            del redacted[name]
        item = str(redacted.get("erased_item_id") or node.get("item_id"))
        redacted |= {"content": mark, "speaker": "", "tags": [], "metadata": {}}
        if item in self.refused:  # an edit by somebody else, which it must stay
            redacted["speaker"] = ERASED
        if redacted.get("source_type") not in SOURCES:
            redacted.pop("source_type", None)
        if "normalized_content" in node and mark is not None:
            redacted |= {"normalized_content": mark, "content_hash": content_hash(mark)}

    def _triples(self, triples: Sequence[JsonValue]) -> Iterator[JsonValue]:
        """Yields triples with marks for names that no other memory has, and without those between
        two names that no other memory has both."""
        for triple in triples:
            if not isinstance(triple, dict) or not {"source", "target"} <= triple.keys():
                continue  # a producer's field of that name
            ends = {end: str(triple[end]) for end in ("source", "target")}
            left: dict[str, JsonValue] = {}
            for end, name in ends.items():
                if not self._tellers(name):
                    left |= {end: erased_name(self.scope, name), f"{end}_type": "unknown"}
            source, target = ends["source"], ends["target"]
            if "relationship" in triple and self._is_untold(source, target):
                relation = str(triple["relationship"])
                left["relationship"] = erased_relation(self.scope, source, target, relation)
            yield triple | left

    def _authored(self, authored: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Redacts an authored entity or an attribute of one, in the same way."""
        left: dict[str, JsonValue] = {**authored}
        for name in ("name", "entity"):
            if name in authored and not self._tellers(str(authored[name])):
                left |= {name: erased_name(self.scope, str(authored[name]))}
                left |= {"type": "unknown"} if "type" in authored else {}
        left |= {"aspect": "erased"} if "aspect" in authored else {}
        if "content" in authored:  # the text of a memory of its own
            left["content"] = self.node(authored["content"], name="content")
        aliases = [str(each) for each in _list(authored.get("aliases"))]
        if aliases:
            left["aliases"] = [
                each if self._tellers(each) else erased_name(self.scope, each) for each in aliases
            ]
        return left

    def _tellers(self, name: str) -> frozenset[str]:
        """The memories that have a name and are not erased."""
        if self.told_by is None:
            return _ANY_MEMORY
        known = entity_id(self.scope, canonical_name(shown_name(name)))
        return self.told_by().get(known, frozenset())

    def _is_untold(self, source: str, target: str) -> bool:
        return self._tellers(source).isdisjoint(self._tellers(target))

    def _is_erased_name(self, name: str) -> bool:
        """Whether erased memories contain a name and no other does."""
        if self.told_by is None or self._tellers(name):
            return False
        wanted = folded(name)
        known = entity_id(self.scope, canonical_name(shown_name(name)))
        is_named = known in self.told_by() or any(f" {wanted} " in f" {t} " for t in self.texts)
        return bool(wanted) and is_named

    def _dead_letter(self, node: Mapping[str, JsonValue], place: _Place) -> JsonValue:
        redacted = {
            name: self.node(each, place, name)
            for name, each in node.items()
            if name != "value_base64"
        }
        try:
            held = base64.b64decode(str(node["value_base64"]), validate=True)
        except ValueError:
            held = b""
        value = self.value(held)
        redacted["value_base64"] = base64.b64encode(value).decode()
        if value != held:
            redacted["raw_output"] = None if node.get("raw_output") is None else ERASED
            kind, colon, _ = str(node.get("reason", "")).partition(": ")
            redacted["reason"] = f"{kind}{colon}{ERASED}" if colon else ERASED
        return {name: redacted[name] for name in node}

    # --- texts ----------------------------------------------------------------------------

    def _text(self, text: str, place: _Place, name: str) -> str:
        if name in OWN:
            return self._own(text, place, name)
        if name == "content_hash":
            return self.hashes.get(text, text)
        if name in QUOTING:
            if place.owner is not None and name in OF_MODEL:
                return ERASED
            return self.quotations.left_out(text)
        return text

    def _own(self, text: str, place: _Place, name: str) -> str:
        if is_mark(text) or not text:
            return text
        known = folded(text)
        if known in self.kept_texts:
            return text
        if known in self.texts:
            return self.texts[known]
        if place.owner is not None:
            return mark_of(place.owner if name == "fact" else place.subject or place.owner)
        # Redacts a truncated text, which a model's input may be.
        return ERASED if len(text) >= LONG and self.quotations.end(text, 0) == len(text) else text

    def _document(self, text: JsonValue) -> JsonValue:
        """Redacts a document's whole text: if one of its chunks is erased, the others stay in
        records of their own."""
        if not isinstance(text, str):
            return text
        whole = folded(text)
        return ERASED if any(known in whole for known in self.texts) else text

    def _plain(self, value: bytes) -> bytes:
        """Redacts a value that is not JSON, as text."""
        text = value.decode(errors="surrogateescape")
        left = self.quotations.left_out(text)
        return value if left == text else left.encode(errors="surrogateescape")


def _object(node: JsonValue) -> dict[str, JsonValue]:
    return node if isinstance(node, dict) else {}


def _list(node: JsonValue) -> list[JsonValue]:
    return node if isinstance(node, list) else []

"""The views of what is remembered: the recall inspector, memories, review, the graph, scopes
and sessions, documents, privacy levels."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from fastapi import Response

from palimpsest.ops.console import explanations
from palimpsest.ops.console.page import Page, PageOf, router
from palimpsest.ops.console.showing import count, url, whole
from palimpsest.ops.errors import RequestError, why_left
from palimpsest.ops.graphs.drawing import Drawing, Edge, Node, drawn, neighbourhood
from palimpsest.ops.operations.answers import CommandResult
from palimpsest.ops.operations.changing import Confirm, Correct, Pin, Recover, Unpin
from palimpsest.ops.operations.documents import (
    AddDocument,
    DeleteDocument,
    DocumentChunks,
    Documents,
    GetDocument,
)
from palimpsest.ops.operations.forgetting import Erase, EraseScope, ForgetOne, PreviewEraseScope
from palimpsest.ops.operations.graph import (
    Alias,
    Entities,
    GetEntity,
    ProposedMerges,
    ShowGraph,
    Unalias,
)
from palimpsest.ops.operations.memories import Context, List, Recall, Search
from palimpsest.ops.operations.operation import Json, Surface, parameters
from palimpsest.ops.operations.privacy import Privacy, SetPrivacy
from palimpsest.ops.operations.proposals import ApplyProposals, DismissProposals, Proposals
from palimpsest.ops.operations.provenance import Explain
from palimpsest.ops.operations.scopes import Flags, Scopes, Stats
from palimpsest.ops.operations.sessions import EndSession, SessionMemory, Sessions, SessionTimeline

routes = router()

NEAR: Final = 5
"""How many results after the last one are shown."""
NAMED_BY_WORDS: Final = 3
"""How many memories are explained that have the words of "why not this one?"."""
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
COMPARISONS: Final = {
    "rerank": ("reranked by the cross-encoder", {"rerank": True}),
    "no-rerank": ("without reranking", {"rerank": False}),
    "ungrouped": ("turns and facts apart", {"group": False}),
    "unfiltered": ("without the filters", {}),
}
"""Settings to compare a recall with: the fields that they change."""
FILTERS: Final = (
    *("types", "tags", "all_tags", "categories", "metadata", "who", "roles", "pinned"),
    *("min_importance", "project", "session_id", "since", "until", "valid_at", "as_of"),
)


@routes.get("/recall")
async def recall(page: PageOf) -> Response:
    """The results of a question, or the form to ask one."""
    if page.scope is None:
        return page.see(page.here(scope=await page.chosen_scope()))
    values = page.fields_of(Recall)
    values.pop("why_not", None)
    shown: dict[str, Any] = {"answer": None, "context": None, "missing": [], "other": None}
    if "query" in values and page.query.get("view") == "context":
        asked = {**page.fields_of(Context), "record": False, "explain": True}
        block = await page.ask(Context, **asked)
        ids = (each for line in block.get("lines", ()) for each in line["memory_ids"])
        shown |= {"context": block, "sources": await page.memories(page.scope, ids)}
        shown["budget"] = next(each for each in parameters(Context) if each.name == "budget")
    elif "query" in values:
        shown |= await _results(page, values)
    active = {name for name in FILTERS if name in values}
    others = [("", "nothing"), *((name, title) for name, (title, _) in COMPARISONS.items())]
    return page.render(
        "memory/recall.html", **shown, filters=active, others=others, explanations=explanations
    )


async def _results(page: Page, values: dict[str, Any]) -> dict[str, Any]:
    limit = _limit(values)
    asked = {"explain": True, "record": False, **values, "limit": min(limit + NEAR, 1_000)}
    asked["why_not"] = await _named(page, values.get("scope"))
    answer = await page.ask(Recall, **asked)
    results = answer["results"]
    longest = explanations.longest_bar(results)
    for result in results:
        result["bar"] = explanations.bar(result["explanation"]["parts"], longest)
        result["found_by"] = explanations.found_by(result)
    return {
        "answer": answer | {"results": results[:limit], "near": results[limit:]},
        "missing": answer.get("why_not", []),
        "other": await _compared(page, values, results[:limit]),
    }


def _limit(values: dict[str, Any]) -> Any:
    # Anything else is refused with a reason by the operation.
    limit = whole(str(values.get("limit", "10")), 10)
    return limit if 0 < limit <= 1_000 else 10


async def _named(page: Page, scope: str | None) -> list[str]:
    """The ids of the memories that the URL asks about, by their ids or words."""
    text = page.query.get("why_not", "")
    ids = [match[0] for match in _ID.finditer(text.lower())]
    if ids or not text:
        return ids[:20]
    found = await page.ask(Search, query=text[:2_000], scope=scope, limit=NAMED_BY_WORDS)
    return [each["id"] for each in found["results"]]


async def _compared(page: Page, values: dict[str, Any], first: list[Json]) -> Json | None:
    """The results with another setting, each with its rank in the first ones."""
    name = page.query.get("compare", "")
    if name not in COMPARISONS:
        return None
    title, changes = COMPARISONS[name]
    kept = {n: v for n, v in values.items() if changes or n not in FILTERS}
    other = await page.ask(Recall, **{"explain": True, "record": False, **kept, **changes})
    ranks = {each["id"]: rank for rank, each in enumerate(first, 1)}
    for each in other["results"]:
        each["was"] = ranks.get(each["id"])
    found = {each["id"] for each in other["results"]}
    lost = [each for each in first if each["id"] not in found]
    return {"title": title, "lost": lost, **other}


# ---- memories ----
CHANGES: Final[dict[str, tuple[type[Any], dict[str, Any], str]]] = {
    "correct": (Correct, {}, "Corrected."),
    "pin": (Pin, {}, "Pinned: machines may no longer change it."),
    "unpin": (Unpin, {}, "Unpinned: machines may change it again."),
    "confirm": (Confirm, {}, "Confirmed: it no longer decays, and machines may not change it."),
    "forget": (ForgetOne, {}, "Forgotten: it is hidden at once, and can be recovered below."),
    "recover": (Recover, {}, "Recovered."),
    "erase": (ForgetOne, {"hard": True}, "Erased for good."),
}
"""The operation of each form, the fields that it sets, and the notice after it."""


@routes.get("/memories")
async def memories(page: PageOf) -> Response:
    """The memories of a scope, newest first."""
    if page.scope is None and not page.caller.sees_all:
        return page.see(page.here(scope=await page.chosen_scope()))
    found = await page.ask(List, **page.fields_of(List))
    return page.render("memory/memories.html", **found)


@routes.get("/memories/{memory_id}")
async def memory(page: PageOf, memory_id: str) -> Response:
    """What happened to a memory, and what may be done with it."""
    found = await page.ask(Explain, memory_id=memory_id)
    may = {name for name, (kind, _, _) in CHANGES.items() if page.may(kind)}
    return page.render(
        "memory/memory.html",
        **found,
        timeline=explanations.timeline(found),
        versions=explanations.versions(found),
        drawing=_neighbourhood(found),
        may=may,
    )


@routes.get("/memories/{memory_id}/erase")
async def ask_to_erase(page: PageOf, memory_id: str) -> Response:
    """Asks again before a memory is erased."""
    found = await page.ask(Explain, memory_id=memory_id)
    return page.render("memory/erase.html", **found, error="")


@routes.post("/memories/{memory_id}/{change}")
async def change(page: PageOf, memory_id: str, change: str) -> Response:
    """Executes the form of this name."""
    if change not in CHANGES:
        raise RequestError(f"nothing is called {change} here; go back to the memory")
    kind, fields, notice = CHANGES[change]
    if change == "erase" and page.form.get("typed", "").strip() != memory_id[:8]:
        found = await page.ask(Explain, memory_id=memory_id)
        error = f"To erase it, type {memory_id[:8]}."
        return page.render("memory/erase.html", 400, **found, error=error)
    names = ("content", "reason", "if_version")
    given = {name: page.form[name] for name in names if page.form.get(name)}
    scope = page.form.get("scope") or None
    answer = await page.ask(kind, memory_id=memory_id, **given, **fields)
    left = ", ".join(answer.get("left") or ())
    told = f"{notice} Copies are left in {left}." if left else notice
    if not answer.get("applied", True) or answer.get("why"):
        told = f"Nothing was changed: {why_left(answer) or answer.get('status')}."
    after = url("/memories", scope=scope) if change == "erase" else url(f"/memories/{memory_id}")
    return page.see(after, told)


def _neighbourhood(found: Json) -> Drawing:
    """The memory with the entities that it names and the memories that it is connected with."""
    memory = found["memory"]
    nodes = [Node(memory["id"], "this memory", "", "self", memory["content"])]
    edges = []
    for each in found["entities"]:
        href = url(f"/entities/{each['name']}", scope=memory["scope"])
        title = f"{each['name']} ({each['type']})"
        nodes.append(Node(f"entity {each['name']}", each["name"], href, each["type"], title))
        edges.append(Edge(memory["id"], nodes[-1].id, "names"))
    turns = [("extracted from", each) for each in found["derived_from"]]
    facts = [("gave", each) for each in found["facts"]]
    others = [(each["predicate"] or each["relation"], each) for each in found["edges"]]
    known = {memory["id"]}
    for label, each in (*turns, *facts, *others):
        if each["id"] not in known:
            known.add(each["id"])
            href = url(f"/memories/{each['id']}")
            nodes.append(Node(each["id"], each["content"], href, "memory", each["content"]))
        edges.append(Edge(memory["id"], each["id"], label))
    return drawn(nodes, edges)


# ---- review ----
PENDING = 100
"""Changes of a page, the oldest first."""


@routes.get("/review")
async def review(page: PageOf) -> Response:
    """What waits for a decision of a person."""
    if page.scope is None and not page.caller.sees_all:
        return page.see(page.here(scope=await page.chosen_scope()))
    asked = {"limit": 10_000, **page.fields_of(Proposals, "scope")}
    waiting = (await page.ask(Proposals, **asked))["proposals"]
    proposals = waiting[:PENDING]
    for each in proposals:
        new = each["fact"] if each["action"] == "UPDATE" else ""
        each["changes"] = explanations.word_changes(each["memory"] or "", new)
    scope = await page.chosen_scope()
    merges = await page.ask(ProposedMerges, scope=scope)
    is_person = page.caller.actor == "human"
    may = {"settle": page.may(ApplyProposals) and is_person, "merge": page.may(Alias)}
    return page.render(
        "memory/review.html",
        proposals=proposals,
        waiting=len(waiting),
        **merges,
        may=may,
        scope=scope,
    )


@routes.post("/review")
async def settle(page: PageOf) -> Response:
    """Applies or dismisses the chosen changes, in one command for each scope."""
    action = page.form.get("action", "")
    kind = {"apply": ApplyProposals, "dismiss": DismissProposals}.get(action)
    ids = page.form.getlist("ids")
    if kind is None or not ids:
        raise RequestError("choose at least one change, and whether to apply or dismiss it")
    reason = page.form.get("reason") or None
    by_scope: dict[str, list[str]] = {}
    for each in (await page.ask(Proposals, ids=ids, limit=len(ids)))["proposals"]:
        by_scope.setdefault(each["scope"], []).append(each["id"])
    if not by_scope:
        raise RequestError("these changes wait no longer; someone else settled them")
    outcomes: list[dict[str, Any]] = []
    for scope, of_scope in by_scope.items():
        answer = await page.ask(kind, ids=of_scope, scope=scope, reason=reason)
        outcomes += answer["changes"]
    return page.see(url("/review", scope=page.form.get("scope")), _told(outcomes))


def _told(outcomes: list[dict[str, Any]]) -> str:
    """What became of each, in a sentence."""
    counts: dict[str, int] = {}
    for each in outcomes:
        why = each.get("why")
        name = f"{each['status']} ({why})" if why else each["status"]
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count(number, 'change')} {name}" for name, number in counts.items()) + "."


@routes.post("/review/merges")
async def settle_merge(page: PageOf) -> Response:
    """Makes two entities one, or keeps them apart for good."""
    form = page.form
    kind = Alias if form.get("action") == "merge" else Unalias
    pair = {name: form.get(name, "") for name in ("name", "alias")}
    scope = form.get("scope") or None
    answer = await page.ask(kind, **pair, scope=scope, reason=form.get("reason") or None)
    status = str(answer["status"]).replace("_", " ")
    after = form.get("after", "")
    back = url(f"/entities/{pair['name']}", scope=scope) if after else url("/review", scope=scope)
    return page.see(back, f"{pair['name']} and {pair['alias']}: {status}.")


# ---- the graph ----
NODES: Final = 300
"""Maximum number of entities in a picture."""
WHOLE: Final = 80
"""How many entities the picture of a scope has where the URL names no number."""
RELATIONS: Final = 50
"""How many relations of an entity are listed where the URL names no number."""


@routes.get("/graph")
async def graph(page: PageOf) -> Response:
    """The entities of a scope, as a list and as a picture."""
    if page.scope is None:
        return page.see(page.here(scope=await page.chosen_scope()))
    entities, picture = await asyncio.gather(
        page.ask(Entities, **page.fields_of(Entities)),
        page.ask(ShowGraph, scope=page.scope, limit=_nodes(page, WHOLE)),
    )
    return page.render("memory/graph.html", **entities, picture=picture, drawing=_picture(picture))


@routes.get("/entities/{name:path}")
async def entity(page: PageOf, name: str) -> Response:
    """All about an entity."""
    around = {"depth": page.query.get("depth", "1"), "limit": _nodes(page, NODES)}
    found, picture = await asyncio.gather(
        page.ask(GetEntity, name=name, **page.fields_of(GetEntity, "scope", "limit")),
        page.ask(ShowGraph, name=name, scope=page.scope, **around),
    )
    aspects: dict[str, list[Json]] = {}
    for each in found["attributes"]:
        aspects.setdefault(each["aspect"], []).append(each)
    return page.render(
        "memory/entity.html",
        entity=found,
        aspects=aspects,
        picture=picture,
        drawing=_picture(picture),
        depth=around["depth"],
        relations=whole(page.query["relations"], RELATIONS) or RELATIONS,
        may_merge=page.may(Alias),
    )


def _nodes(page: Page, default: int) -> int:
    """How many entities to draw, by the URL."""
    return min(whole(page.query["nodes"], default) or default, NODES)


def _picture(found: dict[str, Any]) -> Drawing:
    """The picture of an answer of ShowGraph, its entities as links."""
    href = lambda each: url(f"/entities/{each['name']}", scope=each["scope"])  # noqa: E731
    return neighbourhood(found["nodes"], found["edges"], href)


# ---- scopes and sessions ----
@routes.get("/scopes")
async def scopes(page: PageOf) -> Response:
    """All memory spaces."""
    return page.render("scopes.html", **await page.ask(Scopes), **_upload(page))


def _upload(page: Page) -> dict[str, Any]:
    """What the form for a conversation needs."""
    can_upload = page.may(Surface(permission="remember"))
    return {"can_upload": can_upload, "most": page.service.settings.http.max_ingest_bytes}


@routes.get("/sessions")
async def sessions(page: PageOf) -> Response:
    """The sessions of a scope, with its counts and flags."""
    scope = await page.chosen_scope()
    found = await page.ask(Sessions, **{**page.fields_of(Sessions), "scope": scope})
    stats = await page.ask(Stats, scope=scope)
    flags = await page.ask(Flags, scope=scope)
    return page.render(
        "sessions.html",
        **found,
        scope=scope,
        stats=stats,
        flags=flags["flags"],
        **_upload(page),
    )


@routes.get("/sessions/{session_id:path}")
async def session(page: PageOf, session_id: str) -> Response:
    """The timeline of a session: its turns, and the facts drawn from each."""
    asked = page.fields_of(SessionTimeline, "scope", "limit", "cursor")
    timeline = await page.ask(SessionTimeline, session_id=session_id, **asked)
    kept = await page.ask(SessionMemory, session_id=session_id, scope=timeline["scope"], limit=1)
    return page.render(
        "session.html",
        timeline=timeline,
        short_term=kept["short_term"],
        can_end=page.may(EndSession),
    )


@routes.post("/sessions/{session_id:path}/end")
async def end_session(page: PageOf, session_id: str) -> Response:
    """Ends a session."""
    scope = page.form.get("scope", "")
    answer = await page.ask(EndSession, session_id=session_id, scope=scope)
    notice = "It had ended before." if answer["status"] == "already" else "The session ended."
    return page.see(url(f"/sessions/{session_id}", scope=scope), notice)


# ---- documents, privacy, erasure ----
@routes.get("/documents")
async def documents(page: PageOf) -> Response:
    """The documents of a scope, or of all that the caller sees, with their progress."""
    found = await page.ask(Documents, **page.fields_of(Documents))
    most = page.service.settings.documents.max_bytes
    return page.render("documents.html", **found, can_add=page.may(AddDocument), most=most)


@routes.post("/documents")
async def add_document(page: PageOf) -> Response:
    """Adds a text or a URL."""
    given = {name: page.form.get(name) or None for name in ("text", "url", "title")}
    scope = page.form.get("scope", "")
    answer = await page.ask(AddDocument, **given, scope=scope)
    notice = "It was there already." if answer["deduped"] else "The document was added."
    return page.see(f"/documents/{answer['id']}", notice)


@routes.get("/documents/{document_id}")
async def document(page: PageOf, document_id: str) -> Response:
    """A document with its chunks."""
    shown = await page.ask(GetDocument, document_id=document_id)
    asked = page.fields_of(DocumentChunks, "cursor", "limit")
    chunks = await page.ask(DocumentChunks, document_id=document_id, **asked)
    can_delete = page.may(DeleteDocument)
    return page.render("document.html", document=shown, **chunks, can_delete=can_delete)


@routes.post("/documents/{document_id}/delete")
async def delete_document(page: PageOf, document_id: str) -> Response:
    """Forgets a document with its chunks."""
    reason = page.form.get("reason") or None
    answer = await page.ask(DeleteDocument, document_id=document_id, reason=reason)
    notice = f"{count(answer['forgotten'], 'chunk')} forgotten, {answer['kept']} kept."
    return page.see(f"/documents/{document_id}", notice)


@routes.get("/privacy")
async def privacy(page: PageOf) -> Response:
    """The privacy levels of a scope, and the erasure of all of it."""
    scope = await page.chosen_scope()
    found = await page.ask(Privacy, scope=scope)
    erasable = None
    if page.may(EraseScope):
        erasable = await page.ask(PreviewEraseScope, scope=scope)
    can_set = page.may(SetPrivacy)
    can_erase = page.may(Erase)
    return page.render(
        "privacy.html", **found, erasable=erasable, can_set=can_set, can_erase=can_erase
    )


@routes.post("/privacy")
async def set_privacy(page: PageOf) -> Response:
    """Sets the level of a person, in one scope or in all, or of the whole scope."""
    given = {name: page.form.get(name) or None for name in ("level", "person", "scope", "reason")}
    if page.form.get("all_scopes"):
        answer = await page.ask(SetPrivacy, **{**given, "scope": None}, all_scopes=True)
        notice = f"The level is {answer['level']} now in {count(len(answer['scopes']), 'scope')}."
    else:
        answer = await page.ask(SetPrivacy, **given)
        notice = f"The level is {answer['level']} now; it was {answer['before']}."
    if answer.get("offer"):
        notice += f" {count(answer['memories'], 'older memory', 'older memories')} stay."
    return page.see(url("/privacy", scope=given["scope"]), notice)


@routes.post("/privacy/erase")
async def erase(page: PageOf) -> Response:
    """Erases memories by their ids, or the whole scope by the token of its preview."""
    scope, reason = page.form.get("scope", ""), page.form.get("reason", "")
    token = page.form.get("confirm_token")
    if token:
        answer = await page.ask(
            EraseScope, scope=scope, reason=reason, confirm_token=token, mode="execute"
        )
    else:
        ids = page.form.get("ids", "").split()
        answer = await page.ask(
            Erase,
            memory_ids=ids,
            scope=scope,
            reason=reason,
            mode="execute",
            cascade=page.form.get("cascade") == "on",
        )
    return page.see(url(f"/erasures/{answer['command_id']}", scope=scope))


@routes.get("/erasures/{command_id}")
async def receipt(page: PageOf, command_id: str) -> Response:
    """The receipt of an erasure: what was erased, and where a text may remain."""
    found = await page.ask(CommandResult, command_id=command_id, scope=page.scope)
    return page.render("receipt.html", command_id=command_id, result=found)

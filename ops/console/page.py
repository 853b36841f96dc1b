"""What a view of the console works with: the caller's request, operations in the caller's name, and
templates."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader
from starlette.datastructures import MultiDict
from starlette.requests import HTTPConnection

from palimpsest.ops.console import showing
from palimpsest.ops.console.showing import url
from palimpsest.ops.http.gate import SIGN_IN, check_own_page
from palimpsest.ops.http.problems import KINDS, Problem, answer
from palimpsest.ops.http.service import Service, check_permission
from palimpsest.ops.http.tokens import LOCAL, Caller
from palimpsest.ops.operations.checking import checked
from palimpsest.ops.operations.dead_letters import DeadLetters
from palimpsest.ops.operations.documents import Documents
from palimpsest.ops.operations.graph import Entities
from palimpsest.ops.operations.lifecycle.health import Diagnose
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.lifecycle.simulation import Simulate
from palimpsest.ops.operations.memories import List, Recall
from palimpsest.ops.operations.operation import Json, Operation, Surface, parameters
from palimpsest.ops.operations.privacy import Privacy
from palimpsest.ops.operations.proposals import Proposals
from palimpsest.ops.operations.scopes import Scopes
from palimpsest.ops.replay.operations import Replays

Kind = type[Operation[Any]]
HERE: Final = Path(__file__).parent
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
"""Without a referrer, a browser would send forms with the origin `null`."""
NOTICE: Final = "palimpsest_notice"
"""The cookie that carries a notice over the redirect that follows a form."""
SEE_OTHER: Final = 303
MOST_NAMED: Final = 500
"""Maximum number of memories that are looked up for the links of a view."""


def router() -> APIRouter:
    """A router for views, which are no part of the API's document."""
    return APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@dataclass
class Page:
    """A request for a view. `query` has the parameters of its URL that are not empty, `form` the
    fields that were sent."""

    request: Request
    service: Service
    caller: Caller
    form: MultiDict = field(default_factory=MultiDict)

    @property
    def query(self) -> dict[str, str]:
        # Templates ask for parameters that may be absent.
        query = self.request.query_params
        return defaultdict(str, {name: value for name, value in query.items() if value})

    @property
    def scope(self) -> str | None:
        """The memory space that the URL names."""
        return self.query.get("scope")

    async def chosen_scope(self) -> str:
        """The memory space of a view of one: the URL's, else the most recently active one that the
        caller sees. Raises NotFoundError for one that is not the caller's."""
        if self.scope is None:
            scopes = (await self.ask(Scopes))["scopes"]
            if scopes:
                return str(scopes[0]["scope"])
        return self.caller.scope(self.scope)

    def check(self, surface: Surface) -> None:
        """Raises Problem if the caller lacks the permission."""
        check_permission(self.caller, surface)

    def may(self, what: Kind | Surface) -> bool:
        """Whether the caller may execute the operation; a view shows no button for others."""
        try:
            self.check(what if isinstance(what, Surface) else what.surface)
        except Problem:
            return False
        return True

    async def ask(self, kind: Kind, /, **values: Any) -> Json:
        """Executes an operation for the caller; fields that are None keep their defaults. Returns
        the answer as JSON. Raises Problem and RequestError, which become a page."""
        self.check(kind.surface)
        chosen = {name: value for name, value in values.items() if value is not None}
        return await self.service.perform(self.caller, checked(kind, chosen))

    def fields_of(self, kind: Kind, *names: str) -> dict[str, Any]:
        """The fields of the operation, or those named, that the URL sets: lists are split at
        commas, and a time without a zone is UTC."""
        known = {each.name: each for each in parameters(kind)}
        return {
            name: showing.typed(known[name], value)
            for name, value in self.query.items()
            if name in known and (not names or name in names)
        }

    async def memories(self, scope: str | None, ids: Iterable[str]) -> dict[str, Json]:
        """The memories with these ids that are not forgotten, by id; the first `MOST_NAMED`."""
        wanted = [*dict.fromkeys(ids)][:MOST_NAMED]
        if not wanted:
            return {}
        found = await self.ask(List, scope=scope, memory_ids=wanted, limit=MOST_NAMED)
        return {each["id"]: each for each in found["memories"]}

    def render(self, template: str, /, http_status: int = 200, **values: Any) -> Response:
        """Renders a template with the page as `page`."""
        shown = rendered(
            template, page=self, notice=unquote(self.request.cookies.get(NOTICE, "")), **values
        )
        response = HTMLResponse(shown, http_status, HEADERS)
        if NOTICE in self.request.cookies:
            response.delete_cookie(NOTICE, httponly=True, samesite="strict")
        return response

    def see(self, url: str, notice: str = "") -> Response:
        """Redirects to a view after a form, which shows the notice."""
        response = RedirectResponse(url, SEE_OTHER, HEADERS)
        if notice:
            response.set_cookie(
                NOTICE, quote(notice[:2_000]), max_age=60, httponly=True, samesite="strict"
            )
        return response

    @property
    def navigation(self) -> list[tuple[str, list[Link]]]:
        """The views that the caller may see, by heading."""
        shown = (
            (group, [each for each in links if self.may(each.needs)]) for group, links in NAVIGATION
        )
        return [(group, links) for group, links in shown if links]

    def here(self, **changed: Any) -> str:
        """The URL of this view with some parameters of its query changed, or removed by None."""
        return showing.url(self.request.url.path, **{**self.query, **changed})

    def start_of(self, rows: int) -> int:
        """The first row of the page that the URL asks for, of an answer with so many rows."""
        return min(showing.whole(self.query["from"], 0), max(0, rows - 1))

    def is_at(self, link: Link) -> bool:
        """Whether this view is that of the link, or lies below it."""
        now = f"{self.request.url.path}/"
        return any(now.startswith(f"{path}/") for path in (link.path, *link.below))

    @property
    def is_signed_in(self) -> bool:
        return self.caller is not LOCAL


async def _page(request: Request) -> Page:
    check_own_page(request.method, request.headers)
    page = Page(request, request.app.state.service, request.state.caller)
    if request.method == "POST":
        page.form = await form_of(request)
    return page


async def form_of(request: Request) -> MultiDict:
    """The fields of a form without files, as browsers send it by default."""
    sent = (await request.body()).decode(errors="replace")
    return MultiDict(parse_qsl(sent, keep_blank_values=True))


PageOf = Annotated[Page, Depends(_page)]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("palimpsest.ops.console"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= showing.FILTERS
    environment.globals |= {"url": showing.url, "static": static_url}
    return environment


def rendered(template: str, **values: Any) -> str:
    """The HTML of a template."""
    return _environment().get_template(template).render(values)


@cache
def static_files() -> Mapping[str, bytes]:
    """The scripts, styles and pictures, by name."""
    return {each.name: each.read_bytes() for each in sorted((HERE / "static").iterdir())}


@cache
def static_url(name: str) -> str:
    """The URL of a static file, another one whenever it changes."""
    digest = hashlib.sha256(static_files()[name]).hexdigest()[:12]
    return f"/static/{name}?{urlencode({'v': digest})}"


# ---- what the navigation lists ----
ANALYST: Final = Surface(permission="sql", sees_all=True)
"""The permission for SQL, which is no operation."""


@dataclass(frozen=True, slots=True)
class Link:
    """A view at `path`, for callers who may execute `needs`. `keeps_scope`: it shows one memory
    space, so a link to it keeps that of the current view. `below`: where it leads to."""

    path: str
    title: str
    needs: type[Operation[Any]] | Surface
    keeps_scope: bool = False
    below: tuple[str, ...] = ()


NAVIGATION: Final[tuple[tuple[str, tuple[Link, ...]], ...]] = (
    (
        "Memory",
        (
            Link("/recall", "Recall", Recall, keeps_scope=True),
            Link("/memories", "Memories", List, keeps_scope=True),
            Link("/review", "Review", Proposals, keeps_scope=True),
            Link("/graph", "Graph", Entities, keeps_scope=True, below=("/entities",)),
            Link("/scopes", "Scopes", Scopes, below=("/sessions",)),
            Link("/documents", "Documents", Documents, keeps_scope=True),
            Link("/privacy", "Privacy", Privacy, keeps_scope=True),
        ),
    ),
    (
        "Operate",
        (
            Link("/pipeline", "Pipeline", Status),
            Link("/diagnostics", "Health", Diagnose),
            Link("/dead-letters", "Dead letters", DeadLetters),
            Link("/replay", "Replay", Replays),
            Link("/simulation", "Simulation", Simulate, keeps_scope=True),
        ),
    ),
    ("Analyse", (Link("/sql", "SQL", ANALYST),)),
)


# ---- problems ----
FOR_PROGRAMS: Final = ("/api/", "/mcp", "/metrics", "/openapi.json", "/health", "/ready")


def shown(request: HTTPConnection, problem: Problem) -> Response:
    """The response to a request that ended in a problem: a page if a browser asks for one."""
    path = request.scope["path"]
    wants_page = "text/html" in request.headers.get("accept", "")
    if path.startswith(FOR_PROGRAMS) or not wants_page:
        return answer(problem)
    is_view = request.scope["method"] == "GET"
    if problem.code == "unauthorized":
        query = request.scope["query_string"].decode("latin-1")
        after = f"{path}?{query}" if query else path
        return RedirectResponse(url(SIGN_IN, next=after if is_view else None), SEE_OTHER, HEADERS)
    status, title = KINDS[problem.code]
    came_from = urlsplit(request.headers.get("referer", ""))
    back = f"{came_from.path}?{came_from.query}" if came_from.query else came_from.path
    text = rendered(
        "error.html", title=title, status=status, detail=problem.detail, back=back or "/"
    )
    return HTMLResponse(text, status, {**problem.headers, **HEADERS})

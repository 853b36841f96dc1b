"""The routes of the console: its views by subject, its static files, and signing in."""

from __future__ import annotations

import mimetypes
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from palimpsest.ops.console import health, memory, operating
from palimpsest.ops.console.page import (
    HEADERS,
    SEE_OTHER,
    Page,
    PageOf,
    form_of,
    rendered,
    router,
    static_files,
)
from palimpsest.ops.console.showing import own_path
from palimpsest.ops.http.gate import COOKIE, SIGN_IN, STATIC, check_own_page
from palimpsest.ops.http.problems import Problem

SECONDS_OF_TOKEN: Final = 30 * 24 * 3600
"""How long a browser keeps a token."""


def console_routes() -> APIRouter:
    """All routes of the console."""
    console = router()
    console.add_api_route("/", home, methods=["GET"])
    console.add_api_route(SIGN_IN, sign_in, methods=["GET"])
    console.add_api_route(SIGN_IN, signed_in, methods=["POST"])
    console.add_api_route("/sign-out", signed_out, methods=["POST"])
    console.add_api_route(f"{STATIC}{{name}}", static, methods=["GET"])
    for subject in (memory, operating, health):
        console.include_router(subject.routes)
    return console


async def home(page: PageOf) -> Response:
    """The first view that the caller may see."""
    if not page.navigation:
        raise Problem("forbidden", "this token may use none of the console's views")
    links = [link for _, group in page.navigation for link in group]
    first = next((link for link in links if link.path == "/pipeline"), links[0])
    return page.see(first.path)


async def static(name: str) -> Response:
    """A script, style or picture; its URL changes with its content."""
    found = static_files().get(name)
    if found is None:
        raise Problem("not_found", f"there is no file {name}")
    kind = mimetypes.guess_type(name)[0]
    return Response(found, 200, {"Cache-Control": "public, max-age=31536000, immutable"}, kind)


async def sign_in(request: Request) -> Response:
    """A form for the token."""
    return _sign_in_page(request.query_params.get("next", "/"))


def _sign_in_page(after: str, error: str = "", status: int = 200) -> Response:
    return HTMLResponse(rendered("sign_in.html", after=after, error=error), status, HEADERS)


async def signed_in(request: Request) -> Response:
    """Puts the token of the form into a cookie that no script can read."""
    check_own_page(request.method, request.headers)
    form = await form_of(request)
    secret, after = form.get("token", "").strip(), form.get("next", "/")
    if request.app.state.service.tokens.caller(secret) is None:
        return _sign_in_page(after, "This token is unknown, or it has expired.", 401)
    response = RedirectResponse(own_path(after), SEE_OTHER, HEADERS)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=SECONDS_OF_TOKEN,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def signed_out(page: PageOf) -> Response:
    """Removes the token from the browser."""
    response = Page.see(page, SIGN_IN)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response

"""``/`` and ``/console/``: the console's page and its files.

They hold nothing of the receiver, so they need no authentication. The page reads everything over
the REST API.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from receiver.api.authentication import CONSOLE_PREFIX
from receiver.api.background import in_background
from receiver.api.console.assets import Asset, console
from receiver.api.problems import ProblemError
from spark_streaming.scraping.negotiation import accepts_coding

#: Without ``unsafe-inline`` and other origins: a value that a client has chosen can't run anything.
POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

#: The files' folder has another name when any of them changes.
_FOREVER: Final = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_page(request: Request) -> Response:
    """Answer with the console's page."""
    return _response(request, (await in_background(console)).page, "no-cache")


@router.get(CONSOLE_PREFIX + "{build}/{name}")
async def show_file(request: Request, build: str, name: str) -> Response:
    """Answer with a file of the page; of another version's page there are none."""
    served = await in_background(console)
    file = served.files.get(name) if build == served.build else None
    if file is None:
        raise ProblemError(404, f"not found: {request.url.path}; load the console again")
    return _response(request, file, _FOREVER)


def _response(request: Request, asset: Asset, cache_control: str) -> Response:
    headers = {
        "cache-control": cache_control,
        "content-security-policy": POLICY,
        "etag": asset.tag,
        "vary": "accept-encoding",
    }
    if asset.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = asset.content
    if accepts_coding(request.headers.get("accept-encoding", ""), "gzip"):
        content = asset.compressed
        headers["content-encoding"] = "gzip"
    return Response(content, headers={**headers, "content-type": asset.media_type})

"""The OpenAPI document, with the parts missed by FastAPI: answers other than plain JSON."""

from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from danlu.api.answers import ProblemOut

_TEXT = {"schema": {"type": "string"}}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "What was wrong, and what would work", "content": _PROBLEM}
}
# For a browser: the page names the problem.
PAGES: dict[int | str, dict[str, Any]] = {
    "default": {"description": "What was wrong, on a page", "content": {"text/html": _TEXT, **_PROBLEM}}
}
REDIRECT: dict[int | str, dict[str, Any]] = {
    303: {"description": "The browser goes on", "headers": {"Location": {**_TEXT, "required": True}}}
}


class Frames(Response):
    """A job's life as frames; docs/api.md describes the frames."""

    media_type = "application/vnd.danlu.frames"


def body_as(media_type: str) -> dict[str, Any]:
    """A request body other than JSON."""
    return {"requestBody": {"content": {media_type: {"schema": {"type": "string"}}}, "required": True}}


def query_of(*names: str) -> dict[str, Any]:
    """Query parameters that a route reads by hand."""
    return {"parameters": [{"name": name, "in": "query", **_TEXT} for name in names]}


class Documented(FastAPI):
    """An application whose OpenAPI document also describes problems and the token header."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        parts = document.setdefault("components", {})
        parts.setdefault("schemas", {})["ProblemOut"] = ProblemOut.model_json_schema()
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}, {}]  # on the Unix socket the kernel identifies the client
        return document

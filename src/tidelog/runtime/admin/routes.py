"""The functions that respond to HTTP requests, by method and path.

A route matches a whole path, or all paths that begin with the route if the route ends with `/`. The
longest route wins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from tidelog.runtime.admin.http_messages import BadRequest, HttpRequest, HttpResponse

#: A function that responds to a request. The function runs on the event loop, so it must not block.
#: It may raise BadRequest.
Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]


class Routes:
    """The routes of one admin port."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Respond]] = {}

    def add(self, method: str, path: str, respond: Respond) -> None:
        """Add a route, whose requests `respond` answers; raise ValueError for an existing route.

        A route that ends with `/` also serves all longer paths. A route for GET also serves HEAD.
        """
        methods = self._found.setdefault(path, {})
        if not path.startswith("/") or method in methods:
            raise ValueError(f"route {method} {path}: a new one that begins with / expected")
        methods[method] = respond

    @property
    def paths(self) -> list[str]:
        """The paths of all routes, sorted."""
        return sorted(self._found)

    def find(self, request: HttpRequest) -> Respond:
        """Return the function for a request; raise BadRequest if there is none."""
        methods = self._found.get(request.path) or self._by_beginning(request.path)
        if methods is None:
            raise BadRequest(
                HTTPStatus.NOT_FOUND, f"nothing is at this path: {', '.join(self.paths)} expected"
            )
        found = methods.get("GET" if request.method == "HEAD" else request.method)
        if found is None:
            raise BadRequest(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{request.method} is not possible here: {', '.join(sorted(methods))} expected",
            )
        return found

    def _by_beginning(self, path: str) -> dict[str, Respond] | None:
        fitting = [each for each in self._found if each.endswith("/") and path.startswith(each)]
        return self._found[max(fitting, key=len)] if fitting else None

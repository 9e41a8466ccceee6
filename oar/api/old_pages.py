"""The addresses of Monika and DrawGantt, on which sites had them and people have bookmarks: they lead to our pages."""

import time
from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from oar.api.authentication import outer_path
from oar.api.legacy.old_links import drawgantt_place, monika_place
from oar.api.responses import Answer
from oar.api.routing import ApiRoute
from oar.api.service import service_of

router = APIRouter(include_in_schema=False, route_class=ApiRoute)

#: Where Monika was: as Debian has it, as a program by its name, below our own pages.
MONIKA = ("/monika", "/monika.cgi", "/cgi-bin/monika.cgi", "/ui/monika", "/ui/monika.cgi")
#: Where DrawGantt was, of both generations.
DRAWGANTT = (
    *(f"/drawgantt{form}{page}" for form in ("", "-svg") for page in ("", "/index.php", "/drawgantt.php")),
    *("/drawgantt/drawgantt-svg.php", "/drawgantt-svg/drawgantt-svg.php"),
    *("/drawgantt.cgi", "/drawgantt.php", "/cgi-bin/drawgantt.cgi"),
    *("/ui/drawgantt", "/ui/drawgantt.php", "/ui/drawgantt.cgi", "/ui/drawgantt-svg.php"),
)


def monika(request: Request) -> Answer:
    """Lead links of Monika to the pages that show the same."""
    return _moved(
        request, monika_place(request.query_params, request.query_params.getlist("props")), HTTPStatus.MOVED_PERMANENTLY
    )


def drawgantt(request: Request) -> Answer:
    """Lead links of DrawGantt to the view that they showed."""
    return _moved(request, drawgantt_place(request.query_params, int(time.time())), HTTPStatus.FOUND)


for _path in MONIKA:
    router.get(_path)(monika)
for _path in DRAWGANTT:
    router.get(_path)(drawgantt)


def _moved(request: Request, page: str, status: HTTPStatus) -> Answer:
    """Lead to one of our pages: below the prefix that is known, else from the address of the request on."""
    prefix = outer_path(request, service_of(request).runtime.config)
    above = f"{prefix}/" if prefix else "../" * (request.scope["raw_path"].count(b"/") - 1)
    return Response(status_code=status, headers={"Location": f"{above}ui/{page}"})

"""The audit log, for administrators."""

from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.parameters import LARGEST_ID, PRINTABLE
from oar.api.responses import EXPORT_PAGE, Answer, Export, accepts_lines
from oar.api.routing import Router
from oar.api.service import MAX_EXPORTS, Asking, asking, counted_client, service_of
from oar.lib.history import audit
from oar.lib.history.sql_audit import AuditFilter

router = Router("administration")


class AuditItem(TypedDict):
    id: int
    date: int
    person: str
    via: Literal["command", "api", "page", "file", "sql"]
    action: str
    object: str
    former_value: str
    new_value: str
    reason: str


AuditPage = TypedDict("AuditPage", {"items": list[AuditItem], "next": int | None})

LATEST_DATE = 2**53
Name = Annotated[str | None, Field(max_length=255, pattern=PRINTABLE)]


class AuditListing(BaseModel):
    """Which changes a page holds: all conditions hold together."""

    model_config = ConfigDict(extra="forbid")

    since: int | None = Field(None, ge=0, le=LATEST_DATE, description="Only changes since this date.")
    until: int | None = Field(None, ge=0, le=LATEST_DATE, description="Only changes until this date.")
    by: Name = Field(None, description="Person or account.")
    object: Name = Field(None, description="Kind (`queue`), name (`node-12`), or both (`job 4711`).")
    action: Name = Field(None, description="Action, such as `delete`.")
    before: int | None = Field(None, ge=1, le=LARGEST_ID, description="`next` of the previous page.")
    limit: int = Field(default=100, ge=1, le=1000, description="Page size.")


@router.get("/v1/audit", "audit", "List changes by administrators, newest first", exports=True)
def audit_log(request: Request, listing: AuditListing) -> AuditPage | Answer:
    """Return the rows of the audit log, as `oar-audit`. Administrators only.

    `next` is the `before` parameter of the next page, null on the last page. With the `Accept` header
    `application/x-ndjson` all rows are returned, one JSON object per line.
    """
    who = asking(request)
    who.caller.administering()
    if accepts_lines(request):
        exports = service_of(request).exports

        def pages(before: int | None) -> AuditPage:
            return _page(who, listing.model_copy(update={"limit": EXPORT_PAGE, "before": before or listing.before}))

        return Export(pages, exports.one_more(counted_client(request, who.caller), MAX_EXPORTS))
    return _page(who, listing)


def _page(who: Asking, listing: AuditListing) -> AuditPage:
    selected = AuditFilter(
        listing.since, listing.until, listing.by, listing.action, listing.object, before=listing.before
    )
    with who.database.snapshot() as tx:
        entries = audit.find(tx, selected, listing.limit + 1)
    shown = entries[: listing.limit]
    items = [cast("AuditItem", entry._asdict()) for entry in shown]
    return {"items": items, "next": shown[-1].id if len(entries) > len(shown) else None}

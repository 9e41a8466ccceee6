"""What programs need to know about the site."""

import time

from fastapi import APIRouter, Request

from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import asking, service_of
from oar.lib.facts.states import QueueState

router = APIRouter(tags=["general"], route_class=ApiRoute)


@router.get("/v1/site", operation_id="site", summary="Site configuration for clients")
def site(request: Request) -> Answer:
    """Return queues, resource properties, the time zone, submission templates and enabled features."""
    who = asking(request)
    config = who.config
    templates = service_of(request).site_file.choices(config.web_conf_file).templates
    with who.database.snapshot() as tx:
        record = {
            "queues": [queue.name for queue in tx.queues.all() if queue.state is not QueueState.ORPHANED],
            "properties": dict(sorted(tx.resources.columns().items())),
            "resources": dict(tx.resources.count_by_type()),
            "time_zone": time.tzname[0],
            "templates": templates,
            "features": {
                "passwords": config.api_basic_auth != "no",
                "anonymous_read": config.api_anonymous_read,
                "private_accounting": config.api_accounting_private,
                "walltime_changes": config.walltime_change_enabled,
            },
        }
    return answer_unless_known(request, record)

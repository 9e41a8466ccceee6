"""Pages of other origins use the API only where the site says so, and never by the cookie of its own pages."""

import httpx

from oar.lib.config.files import Config
from tests.api.conftest import Api

PORTAL = "https://portal.example.org"
ASKS = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization"}


def test_no_other_origin_is_named_where_none_is_configured(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/v1/version", headers={"Origin": PORTAL})
    assert "access-control-allow-origin" not in answer.headers
    assert anonymous.options("/v1/jobs/1", headers={"Origin": PORTAL, **ASKS}).status_code == 405


def test_a_page_of_a_configured_origin_reads_and_changes(api: Api, anonymous: httpx.Client) -> None:
    api.runtime.config = Config(api_cors_origins=(PORTAL, "*"), api_rate_read=0, api_rate_change=0)
    asked = anonymous.options("/v1/jobs/1", headers={"Origin": PORTAL, **ASKS})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, PORTAL)
    assert "PATCH" in asked.headers["access-control-allow-methods"]
    assert "authorization" in asked.headers["access-control-allow-headers"].lower()
    read = anonymous.get("/v1/jobs/999", headers={"Origin": PORTAL})
    assert (read.status_code, read.headers["access-control-allow-origin"]) == (404, PORTAL)
    assert "Origin" in read.headers["vary"]
    for answer in (asked, read):  # a browser sends no cookie then, or keeps the answer from the page
        assert "access-control-allow-credentials" not in answer.headers
    for origin in ("https://elsewhere.example.org", "null", f"{PORTAL}.evil.org"):
        assert "access-control-allow-origin" not in anonymous.get("/v1/version", headers={"Origin": origin}).headers


def test_each_answer_tells_how_much_more_may_be_asked(api: Api, anonymous: httpx.Client) -> None:
    api.service.runtime.config = Config(api_rate_read=1)
    api.service.set_rates()
    answers = [anonymous.get("/v1/queues") for _ in range(5)]
    assert [each.headers.get("ratelimit-limit") for each in answers[:4]] == ["4"] * 4
    assert int(answers[0].headers["ratelimit-remaining"]) == 3
    assert 1 <= int(answers[0].headers["ratelimit-reset"]) <= 4
    refused = next(each for each in [*answers, *(anonymous.get("/v1/queues") for _ in range(50))] if each.is_error)
    assert refused.status_code == 429
    assert refused.headers["ratelimit-remaining"] == "0"

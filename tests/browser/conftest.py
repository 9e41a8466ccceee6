"""A browser, a service to look at, and what a page may not do while somebody looks at it."""

import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from oar.api.authentication import COOKIE
from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.builders import add_job, add_resources

CHROMIUM = "/usr/bin/chromium"
USER = "nobody"  # every machine has this account
#: Root needs the first; nothing but the service may be reached.  With each window the browser loads pages of its own
#: behind the field for addresses, which nobody sees here: they take three times as long as one of ours.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxFullPopup,WebUIOmniboxAimPopup",
)
#: The pages, each with a text that it shows of the cluster below.
PAGES = {
    "": "The cluster testbed",
    "nodes": "4 resources on 2 nodes",
    "nodes?view=table": "node-1",
    "nodes/node-1": "rests",
    "jobs": "train",
    "jobs/{running}": "node-1",
    "jobs/{waiting}": "Why it waits",
    "jobs/{ended}": "post",
    "arrays/{running}": "ended",
    "gantt": "Jobs over time",
    "gantt?view=table&color=user": "rests",
    "submit": "When would a job start?",
    "apps": "Notebooks and editors",
    "usage": "Nothing is accounted in this time.",
    "fairshare?who=alice": "has the karma",
    "reservations": "There are no reservations here.",
    "reservations?view=all": "Advance reservations",
    "reservations/new": "New advance reservation",
    "queues": "besteffort",
    "events": "No answer from node node-2: no jobs start there",
    "help": "its nodes are being prepared",
    "login": "Log in",
    "nowhere": "There is no such page.",
}
#: How people look: their screen, their wishes.
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark and still": {"color_scheme": "dark", "reduced_motion": "reduce"},
    "on a telephone": {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True},
}
#: Counts what the policy of a page has forbidden, before any script of the page runs.
_COUNT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
    console.error(`policy: ${event.effectiveDirective} ${event.blockedURI} ${event.sample}`));
"""
#: Milliseconds that a page may take on a busy machine.
PATIENCE = 120_000


def is_scripted(path: str) -> bool:
    return path != "nowhere"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of this process."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=PATIENCE, env={**os.environ, "TZ": "UTC"}
        )
        yield browser
        browser.close()


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    """A service of a site as shipped."""
    made = Api(Runtime(Config(instance_name="testbed", estimate_timeout=120), database), tmp_path / "api.sock")
    made.start()
    yield made
    made.stop()


@dataclass
class Visitor:
    """Somebody who looks at pages, and what went wrong meanwhile."""

    context: BrowserContext
    base: str
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: str, *, scripted: bool = True) -> Page:
        """Open a page in a tab of its own, and wait until it shows its records."""
        tab = self.context.new_page()
        tab.goto(f"{self.base}/ui/{path}")
        if scripted:
            tab.wait_for_selector("html[data-ready]")
        return tab

    def open_whole(self, path: str, text: str) -> Page:
        """Open a page, and wait until it shows a text, and diagrams if it has some."""
        page = self.open(path)
        page.get_by_text(text).filter(visible=True).first.wait_for()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        if page.locator(".gantt-frame").count():
            page.wait_for_selector(".overview[role=slider]")
            expect(page.locator(".legend")).to_have_count(2)  # that of the jobs in sight follows
        return page

    def watch(self) -> None:
        """Write down what goes wrong from now on."""
        self.context.add_init_script(_COUNT_VIOLATIONS)
        self.context.on("console", self._hear)
        self.context.on("weberror", lambda error: self.errors.append(str(error.error)))
        self.context.on("request", self._see)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _see(self, request: Request) -> None:
        self.requests.append(request.url)

    @property
    def foreign_requests(self) -> list[str]:
        """Addresses of other hosts that were asked for."""
        return [url for url in self.requests if not url.startswith((self.base, "blob:", "data:"))]


@pytest.fixture
def visitor(chromium: Browser, api: Api) -> Iterator[Visitor]:
    """Somebody with a usual screen; at the end nothing may have gone wrong."""
    yield from visiting(chromium, api)


def visiting(chromium: Browser, api: Api, **choices: Any) -> Iterator[Visitor]:
    """Let somebody look; ``choices`` are those of a context of playwright."""
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en", **choices})
    context.set_default_timeout(PATIENCE)
    made = Visitor(context, f"http://127.0.0.1:{api.port}")
    made.watch()
    yield made
    context.close()
    assert made.errors == []
    assert made.foreign_requests == []


@pytest.fixture
def owner(chromium: Browser, api: Api, database: Database) -> Iterator[Visitor]:
    """Somebody who has logged in with a token of his."""
    yield from _logged_in(chromium, api, database, User(USER, 65534), "rw")


@pytest.fixture
def owner_by_password(chromium: Browser, api: Api, database: Database) -> Iterator[Visitor]:
    """Somebody who has logged in with a password: he may create tokens."""
    with database.begin() as tx:
        secret = tokens.begin_session(tx, User(USER, 65534), seconds=3600)
    visits = visiting(chromium, api)
    visitor = next(visits)
    visitor.context.add_cookies([{"name": COOKIE, "value": secret, "url": f"http://127.0.0.1:{api.port}"}])
    yield visitor
    next(visits, None)


@pytest.fixture
def administrator(chromium: Browser, api: Api, database: Database) -> Iterator[Visitor]:
    """An administrator who has logged in."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    yield from _logged_in(chromium, api, database, User(name, os.geteuid(), administers=True), "admin")


def _logged_in(chromium: Browser, api: Api, database: Database, user: User, scope: str) -> Iterator[Visitor]:
    with database.begin() as tx:
        _, token = tokens.create(tx, user, scope=scope)
    visits = visiting(chromium, api)
    visitor = next(visits)
    page = visitor.open("login")
    page.get_by_label("token", exact=True).fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/")
    expect(page.get_by_role("link", name=user.name)).to_be_visible()
    page.close()
    yield visitor
    next(visits, None)


@pytest.fixture
def jobs(database: Database) -> dict[str, int]:
    """A small cluster; its jobs by how they are."""
    return small_site(database)


def small_site(database: Database) -> dict[str, int]:
    """Make a cluster with a job that runs, one that waits, one that has ended, and a node that is suspected."""
    resources = add_resources(database)
    numbers = {
        "running": add_job(database, JobState.RUNNING, on=resources[:1], user="alice", name="rests"),
        "waiting": add_job(database, user="bob", name="train"),
        "ended": add_job(database, JobState.TERMINATED, on=resources[1:2], user="alice", name="post"),
    }
    with database.begin() as tx:
        state_changes.suspect(tx, ["node-2"], finaud=False)
        tx.events.add("PING_CHECKER_NODE_SUSPECTED", 0, "does not answer", hosts=["node-2"])
    return numbers

"""The form of a submission: scripts, arrays, dependencies, GPUs, and estimates in one line."""

import time
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Page, Route, expect

from oar.lib.accounts.records import Member, Project
from oar.lib.accounts.states import MemberRole
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import ProjectMode
from tests.api.conftest import Api
from tests.browser.conftest import USER, Visitor
from tests.browser.test_pages import faults
from tests.builders import add_resources


def sent(page: Page) -> dict[str, Any]:
    """Submit the form; return the body of its request, which gets no further."""
    page.route("**/v1/jobs", lambda route: route.fulfill(status=201, json={"id": 1}))
    with page.expect_request("**/v1/jobs") as request:
        page.get_by_role("button", name="submit").click()
    return cast("dict[str, Any]", request.value.post_data_json)


@pytest.fixture
def form(owner: Visitor, database: Database) -> Page:
    with database.begin() as tx:
        tx.execute("ALTER TABLE resources ADD COLUMN core integer, ADD COLUMN gpu integer")
    add_resources(database, core=1, gpu=1)
    owner.context.route("**/v1/estimates", lambda route: route.fulfill(json={"items": []}))
    return owner.open("submit")


def test_a_script_is_typed_and_sent_with_its_oar_lines(form: Page) -> None:
    form.get_by_role("button", name="script").click()
    expect(form.get_by_role("button", name="submit")).to_be_disabled()
    text = "#!/bin/bash\n#OAR -n night\nhostname\n"
    form.get_by_role("textbox", name="script").fill(text)
    expect(form.locator("pre").first).to_have_text("oarsub -S ./job.sh")
    assert faults(form) == []
    assert sent(form) == {"script": text, "scanscript": True}


def test_a_script_is_read_from_a_file(form: Page, tmp_path: Path) -> None:
    (tmp_path / "night run.sh").write_text("#!/bin/sh\r\ndate\r\n")
    form.get_by_role("button", name="script").click()
    form.locator("input[type=file]").set_input_files(tmp_path / "night run.sh")
    expect(form.get_by_role("textbox", name="script")).to_have_value("#!/bin/sh\ndate\n")
    expect(form.locator("pre").first).to_have_text("oarsub -S './night run.sh'")
    (tmp_path / "program").write_bytes(b"\x7fELF\0\0")
    form.locator("input[type=file]").set_input_files(tmp_path / "program")
    expect(form.get_by_role("alert")).to_have_text("The file is no text.")
    expect(form.get_by_role("button", name="submit")).to_be_disabled()


def test_arrays_dependencies_mail_directory_and_gpus_are_fields(form: Page) -> None:
    form.get_by_text("array, dependencies, mail, directory").click()
    fields = {
        "command": "./run.sh",
        "nodes": "2",
        "gpus": "1",
        "each": "4",
        "walltime": "2:00",
        "array": "50",
        "limit": "5",
        "after": "12, 13",
        "mail": "a@example.org",
        "directory": "/home/a",
    }
    for name, value in fields.items():
        form.locator(f"[name={name}]").fill(value)
    line = form.locator("pre").first
    expect(line).to_contain_text("-l /network_address=2/gpu=1/core=4,walltime=2:00 -d /home/a")
    expect(line).to_contain_text("--notify mail:a@example.org --array 50%5 -a 12 -a 13 ./run.sh")
    form.reload()  # all of it stands in the address
    expect(form.locator("[name=limit]")).to_have_value("5")
    assert sent(form) == {
        "command": "./run.sh",
        "resources": "/network_address=2/gpu=1/core=4,walltime=2:00",
        "directory": "/home/a",
        "dependencies": ["12", "13"],
        "notify": "mail:a@example.org",
        "array": 50,
        "array_limit": 5,
    }


def test_projects_are_choices_where_only_known_ones_count(owner: Visitor, api: Api, database: Database) -> None:
    with database.begin() as tx:
        tx.projects.create(Project("ml"))
        tx.projects.add(Member("ml", USER, MemberRole.MEMBER, 1))
    api.runtime.config = Config(projects=ProjectMode.MEMBERS)
    choice = owner.open("submit").locator("select[name=project]")
    expect(choice.locator("option")).to_have_text(["as usual", "ml"])


def test_one_line_says_that_everything_would_start_now(owner: Visitor, database: Database) -> None:
    add_resources(database)
    held: list[Route] = []

    def answer(route: Route) -> None:
        held.append(route)
        number = len(cast("dict[str, Any]", route.request.post_data_json)["alternatives"])
        item = {"start": int(time.time()), "hosts": ["node-1"], "feasible": True, "walltime": 7200, "warnings": []}
        route.fulfill(json={"items": [item] * number})

    owner.context.route("**/v1/estimates", answer)
    page = owner.open("submit?command=true&nodes=2&walltime=2:00")
    expect(page.locator("#when")).to_contain_text("It would start now, and so would each smaller or shorter one.")
    expect(page.locator("#when li").first).to_be_hidden()
    assert held

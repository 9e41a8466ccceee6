"""Programs with web pages: a person starts one on the page, and asks for its address."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import Visitor


def test_a_program_is_started_and_its_job_is_listed(owner: Visitor, jobs: dict[str, int]) -> None:
    page = owner.open("apps")
    expect(page.locator("main")).to_contain_text("None of your jobs runs such a program.")
    page.get_by_label("program").select_option("jupyter")
    page.get_by_label("cores").fill("1")
    page.get_by_label("walltime").fill("1:00")
    page.get_by_role("button", name="start").click()
    opening = page.get_by_role("button", name=re.compile(r"show the address \d+"))
    opening.click()
    expect(page.locator("main")).to_contain_text("is not ready yet")
    expect(page.locator("table")).to_contain_text("jupyter")


def test_without_a_login_the_programs_are_listed_and_nothing_is_started(visitor: Visitor, jobs: dict[str, int]) -> None:
    page = visitor.open("apps")
    expect(page.get_by_role("link", name="Log in to start a program.")).to_be_visible()
    assert page.locator("form.card").count() == 0

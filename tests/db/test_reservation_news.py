"""What happens to advance reservations is told: the end by mail, everything to the script of the site."""

import json
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from oar.lib.bus.messages import Effect, ReservationMail, ReservationNews
from oar.lib.config.files import Config
from oar.modules.runner.actions.context import ActionContext
from oar.modules.runner.actions.server_scripts import tell_site
from tests.builders import add_resources, execute_sql
from tests.db.reservation_site import ALICE, HOUR, NOW, Site


@pytest.fixture
def number(site: Site) -> int:
    """A reservation of a node with two cores, which begins in 100 s."""
    add_resources(site.database, nodes=1, cores=2)
    made = site.ask("/resource_id=2", NOW + 100, NOW + 200, name="night", mail_options="e", owner="alice")
    site.round()
    return made


def news(site: Site, sent: list[Effect]) -> list[tuple[str, str]]:
    """Return events and states of the lines that the site is notified of, and forget them."""
    lines = [effect.line for effect in sent if isinstance(effect, ReservationNews)]
    del sent[:]
    with site.database.begin() as tx:
        return [(line.event, line.state) for line in tx.reservation_logs.lines(lines)]


def test_the_site_is_notified_of_each_line_once(site: Site, sent: list[Effect], number: int) -> None:
    assert site.get(number).frame_id
    del sent[:]
    site.round(NOW + 100)
    assert news(site, sent) == [("START TIME REACHED", "r")]
    site.round(NOW + 200)
    assert news(site, sent) == [("END TIME REACHED", "x"), ("TERMINATED", "x")]


def test_whoever_ends_a_reservation_its_end_is_mailed_once(site: Site, sent: list[Effect], number: int) -> None:
    frame = site.get(number).frame_id
    site.delete(ALICE, number)
    (mail,) = [effect for effect in sent if isinstance(effect, ReservationMail)]
    assert (mail.frame_id, mail.recipients, mail.topic[:8]) == (frame, ("alice",), "[AR END]")
    assert "was deleted by alice.\nReserved 0, used 0" in mail.text


def test_a_mail_about_an_error_that_leaves_nothing_says_that_no_job_starts(site: Site, sent: list[Effect]) -> None:
    ids = add_resources(site.database, nodes=1, cores=2)
    site.ask("/resource_id=2", NOW, NOW + HOUR, mail_options="a", owner="alice")
    site.round()
    execute_sql(site.database, "UPDATE resources SET state = 'Absent' WHERE resource_id = ANY(%s)", list(ids))
    site.round(NOW + 1)
    (mail,) = [effect for effect in sent if isinstance(effect, ReservationMail)]
    assert "No job of it starts: none of its 2 slots is left (soft error handling)." in mail.text.splitlines()


def script(site: Site, directory: Path, text: str, **keys: Any) -> ActionContext:
    """Return the surroundings of an action on a site with a script."""
    path = directory / "tell"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    config = Config(reservation_event_exec_file=f"{path} site", **keys)
    return ActionContext(config, site.database, cast(Any, None), lambda _: False, cast(Any, None), cast(Any, None))


def test_the_script_gets_number_event_state_and_the_record(site: Site, number: int, tmp_path: Path) -> None:
    context = script(site, tmp_path, f'printf "%s\\n" "$@" > {tmp_path}/words; cat > {tmp_path}/record')
    tell_site(context, ("7", str(number), "12", "START TIME REACHED", "r"))
    assert (tmp_path / "words").read_text().splitlines() == ["site", "12", "START TIME REACHED", "r"]
    record = json.loads((tmp_path / "record").read_text())
    assert (record["ar_name"], record["owner"], record["state"]) == ("night", "alice", "w")
    tell_site(context, ("7", "0", "12", "TERMINATED", "d"))
    assert json.loads((tmp_path / "record").read_text()) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [("echo broken; exit 3", "broken"), ("exit 3", "exit code 3"), ("sleep 1000", "it did not end in time")],
)
def test_a_script_that_fails_or_hangs_is_noted_and_nothing_else(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, why: str
) -> None:
    context = script(site, tmp_path, text, server_prologue_epilogue_timeout=1 if text == "sleep 1000" else 60)
    with caplog.at_level(logging.WARNING):
        tell_site(context, ("7", "1", "1", "IDLE", "x"))
    assert f"1 IDLE x failed: {why}" in caplog.text


def test_a_site_without_script_runs_none(site: Site, number: int) -> None:
    context = ActionContext(Config(), site.database, cast(Any, None), lambda _: False, cast(Any, None), cast(Any, None))
    tell_site(context, ("7", str(number), "12", "IDLE", "x"))


def test_what_is_lost_at_once_is_one_mail_and_what_comes_back_is_none(site: Site, sent: list[Effect]) -> None:
    ids = add_resources(site.database, nodes=4, cores=1)
    number = site.ask("/resource_id=3", NOW + 100, NOW + HOUR, mail_options="a", owner="alice")
    site.round()

    def errors(date: int, state: str, *lost: int) -> int:
        """The mails of a round before which some resources have changed their state."""
        execute_sql(site.database, "UPDATE resources SET state = %s WHERE resource_id = ANY(%s)", state, list(lost))
        del sent[:]
        site.round(date)
        return len([effect for effect in sent if isinstance(effect, ReservationMail)])

    assert errors(NOW + 10, "Suspected", ids[0]) == 0
    assert errors(NOW + 100, "Suspected", ids[1]) == 1
    assert site.events(number) == ["CREATED", "RESOURCES UNSATISFIED", "START TIME REACHED"]
    assert errors(NOW + 101, "Alive", ids[0]) == 0
    assert site.events(number)[-1] == "RESOURCES UNSATISFIED"
    assert errors(NOW + 102, "Suspected", ids[0], ids[2]) == 1

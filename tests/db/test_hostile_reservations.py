"""Hostile texts in every option of the commands of advance reservations: no internal error, nothing gets through."""

import json
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from oar.cli import oaralter, oarstat, oarsub, oaruserset, qralter, qrdel, qrstat, qrsub
from oar.cli.common.command import Command, CommandResult
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.reservations.records import AccessEntry
from tests.builders import add_job, add_resources
from tests.db.reservation_site import HOUR, NOW, Site
from tests.frontend import ALICE, Frontend, add_rules

pytestmark = pytest.mark.slow

TEXTS = (
    "'; DROP TABLE reservations; --",
    '<x>&amp;"]]>',
    "a\nb\x1b[31mred\x07\x9b2J",
    "%s%(x)s{0}{x}\\",
    "$(touch /tmp/x)`id`",
    "../../etc/passwd",
    "\udcff\udcfe",
    "\u202ereversed\u0301\U0001f600",
    "-1",
    "99999999999999999999999999",
    "[a-",
    "((((((((((a+)+)+)+)+)+)+)+)+)+$",
    "@,!,%,,*",
    "x" * 70_000,
    "",
)
#: Stands for the hostile text, and for the number of the reservation.
TEXT, AR = "TEXT", "AR"
WANTED = ("-d", "60", "-a", "+1h", "-w", "v")
ONE_WORD = [
    "-a",
    "-d",
    "-e",
    "-N",
    "-A",
    "-l",
    "-q",
    "-h",
    "-p",
    "-ckpt",
    "-masterq",
    "-now",
    "-u",
    "-he",
    "-m",
    "-M",
    "-w",
    "-replace",
    "-idle",
    "-flex",
    "-window",
    "-project",
    "-rrule",
]
ALTERED = ["-a", "-d", "-e", "-N", "-A", "-he", "-m", "-M", "-u", "-replace", "-idle", "-l", "-q", "-p", "-w"]

#: The commands, each with its words.
LINES: Sequence[tuple[Command, Sequence[str]]] = (
    *((qrsub.main, (*WANTED, option, TEXT)) for option in ONE_WORD),
    (qrsub.main, (*WANTED, "-owner", TEXT)),
    (qrsub.main, (*WANTED, "-pe", TEXT, "2")),
    (qrsub.main, (*WANTED, "-pe", "slots", TEXT)),
    (qrsub.main, (*WANTED, "-alloc", TEXT, "2")),
    (qrsub.main, (*WANTED, "-alloc", "2", TEXT)),
    *((qrsub.main, (*WANTED, "-rrule", "FREQ=DAILY", option, TEXT)) for option in ("-depth", "-conflict")),
    (qrsub.main, (*WANTED, TEXT)),
    *((qralter.main, (option, TEXT, AR)) for option in ALTERED),
    *((qralter.main, (option, TEXT, "2", AR)) for option in ("-pe", "-alloc")),
    (qralter.main, ("-pe", "slots", TEXT, AR)),
    (qralter.main, ("-alloc", "1", TEXT, AR)),
    *((qralter.main, ("-series", option, TEXT, AR)) for option in ("-d", "-l", "-u")),
    (qralter.main, ("-N", "x", TEXT)),
    *((qrstat.main, (option, TEXT)) for option in ("-ar", "-u", "-s")),
    (qrdel.main, (TEXT,)),
    (qrdel.main, ("-u", TEXT, AR)),
    (oaruserset.main, ("-s", TEXT)),
    *((oaruserset.main, (option, TEXT, "team")) for option in ("-a", "-d")),
    *((oaruserset.main, (option, "bob", TEXT)) for option in ("-a", "-d")),
    (oaruserset.main, ("-D", TEXT)),
    (oarsub.main, ("--ar", TEXT, "true")),
    (oarstat.main, ("--ar", TEXT)),
    (oarstat.main, ("--accounting", "2027-01-01, 2027-02-01", "--ar", TEXT)),
    (oaralter.main, ("--ar", TEXT, "JOB")),
)
#: What would move the cursor of a terminal.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
INTERNAL = 3
ROOT = User("root", 0)


@pytest.fixture
def frontend(site: Site) -> Frontend:
    """Two nodes, a reservation of alice's tomorrow, and a waiting job of hers; nobody answers for long."""
    add_resources(site.database, nodes=2, cores=2)
    add_rules(site.database)
    with site.database.begin() as tx:
        tx.access.add_to_userset("arusers", ["alice"])
        tx.access.create_userset("team")
    number = site.ask("/resource_id=1", NOW + HOUR, NOW + 2 * HOUR)
    site.round()
    assert site.get(number).state == "w"
    add_job(site.database, user="alice")
    config = Config(job_resource_manager_property_db_field="cpuset", reservation_answer_timeout=1)
    return Frontend(site.database, config)


def number_of(database: Database) -> int:
    with database.begin() as tx:
        return tx.reservations.live()[0].number


@pytest.mark.parametrize(
    ("command", "words"), LINES, ids=lambda part: getattr(part, "name", "") or " ".join(map(str, part))
)
def test_no_option_breaks_on_a_hostile_text(frontend: Frontend, command: Command, words: Sequence[str]) -> None:
    number, job = number_of(frontend.database), frontend.jobs()[-1].id
    before = frontend.count("jobs"), frontend.count("reservations")
    for text in TEXTS:
        known = {TEXT: text, AR: str(number), "JOB": str(job)}
        user = ROOT if command is oaruserset.main or "-owner" in words else ALICE
        result: CommandResult = frontend.type(command, *(known.get(word, word) for word in words), user=user)
        shown = f"{words} {text[:40]!r}: {result}"
        assert result.exit != INTERNAL, shown
        assert "internal error" not in result.err.lower(), shown
        assert "Traceback" not in result.err, shown
        assert not CONTROL.search(result.out + result.err), shown
        assert len(result.err) < 2000 or text in result.err, shown
    assert (frontend.count("jobs"), frontend.count("reservations")) == before


def test_what_is_stored_is_shown_as_text(frontend: Frontend) -> None:
    """Whatever another program has written: it cannot leave its element, its line or its cell."""
    number = number_of(frontend.database)
    for text in TEXTS[:5]:
        with frontend.database.begin() as tx:
            tx.reservations.update(number, ar_name=text, account=text, message=text, mail_list=text)
            tx.reservations.set_access(number, [AccessEntry(text)])
        xml = frontend.type(qrstat.main, "-xml", "-ar", number)
        assert xml.exit == 0, xml
        (name,) = ElementTree.fromstring(xml.out).iterfind("ar_summary/name")
        assert name.text is not None
        for words in ((), ("-ar", str(number)), ("-explain",), ("-log",)):
            shown = frontend.type(qrstat.main, *words)
            assert shown.exit == 0, shown
            assert not CONTROL.search(shown.out), shown
        (record,) = json.loads(frontend.type(qrstat.main, "-J").out).values()
        assert record["account"] == text

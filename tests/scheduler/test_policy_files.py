"""Which files of quotas a round obeys, and what ALL means in them."""

from dataclasses import replace
from pathlib import Path

import pytest

from oar.kao.facts.snapshot import Snapshot
from oar.kao.rounds.reading.policy_files import PolicyFiles
from oar.lib.accounts.quota_records import QuotaRule, Quotas
from oar.lib.bus.messages import Mail
from oar.lib.config.files import Config
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import QueueState
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import Cluster

OLD_POLICY = "oar_sched_gantt_with_timesharing_and_fairsharing_and_quotas"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "quotas.json").write_text('{"quotas": {"*,*,*,/": ["ALL", 2, 3]}}')
    (tmp_path / "old.conf").write_text("$Gantt_quotas->{'*'}->{'*'}->{'*'}->{'/'} = [7, -1, 1.5] ;\n")
    return tmp_path


def situation(policy: str, *, quotas: bool) -> Snapshot:
    cluster = Cluster(4, 1, has_quotas=quotas)
    cluster.state(ResourceState.SUSPECTED, 1).state(ResourceState.ABSENT, 2).state(ResourceState.DEAD, 3)
    cluster.queues = (Queue("default", 2, policy, QueueState.ACTIVE),)
    return cluster.snapshot()


def rules(read: Quotas | None) -> tuple[QuotaRule, ...] | None:
    return read.rules[0] if read else None


def read(
    directory: Path, policy: str, *, quotas: bool = False, json: str = "quotas.json", mode: str = ""
) -> Quotas | None:
    config = Config(quotas=quotas, quotas_conf_file=str(directory / json))
    if mode:
        config = config.replace(quotas_all_nb_resources_mode=mode)
    mails: list[Mail] = []
    found = PolicyFiles(config, old_quotas=str(directory / "old.conf")).quotas(situation(policy, quotas=quotas), mails)
    assert mails == []
    return found


def test_quotas_hold_where_the_key_and_the_policy_say_so(directory: Path) -> None:
    assert rules(read(directory, "kamelot", quotas=True)) == (QuotaRule("*", "*", "*", "/", 3, 2, 3 * 3600),)
    assert read(directory, "kamelot") is None
    assert read(directory, "oar_sched_gantt_with_timesharing", quotas=True) is None


def test_the_quota_scheduler_reads_its_old_file_where_there_is_no_other(directory: Path) -> None:
    old = (QuotaRule("*", "*", "*", "/", 7, -1, 5400),)
    assert rules(read(directory, OLD_POLICY, json="none.json")) == old
    assert rules(read(directory, OLD_POLICY)) == (QuotaRule("*", "*", "*", "/", 3, 2, 3 * 3600),)


def test_all_means_the_resources_that_are_not_dead_or_those_that_are_there_or_asleep(directory: Path) -> None:
    found = rules(read(directory, "kamelot", quotas=True, mode="default_not_dead"))
    assert found is not None
    assert found[0].resources == 3
    found = rules(read(directory, "kamelot", quotas=True, mode="all"))
    assert found is not None
    assert found[0].resources == 2


def test_a_file_of_either_form_may_be_named(directory: Path) -> None:
    assert rules(read(directory, "kamelot", quotas=True, json="old.conf")) == (
        QuotaRule("*", "*", "*", "/", 7, -1, 5400),
    )


def test_a_file_is_read_again_when_it_changes_and_a_bad_one_leaves_the_old_rules(directory: Path) -> None:
    file = directory / "quotas.json"
    files = PolicyFiles(Config(quotas=True, quotas_conf_file=str(file)))
    snapshot, mails = situation("kamelot", quotas=True), list[Mail]()
    assert rules(files.quotas(snapshot, mails)) == (QuotaRule("*", "*", "*", "/", 3, 2, 3 * 3600),)
    file.write_text('{"quotas": {\n"*,*,*,/": 5,\n"x": 1}}')
    assert rules(files.quotas(snapshot, mails)) == (QuotaRule("*", "*", "*", "/", 3, 2, 3 * 3600),)
    assert rules(files.quotas(snapshot, mails)) is not None
    assert [mail.text for mail in mails] == [
        f'cannot read the quotas: {file}: line 3: "x" is not <queue>,<project>,<type>,<user>.'
        " The scheduler uses the former content. Correct the file."
    ]
    file.write_text('{"quotas": {"*,*,*,/": 6}}')
    assert rules(files.quotas(snapshot, mails)) == (QuotaRule("*", "*", "*", "/", 6),)
    file.unlink()
    assert rules(files.quotas(replace(snapshot), mails)) == (QuotaRule("*", "*", "*", "/", 6),)
    assert len(mails) == 2


def test_a_file_that_was_never_read_well_is_said_to_be_without_effect(directory: Path) -> None:
    file = directory / "quotas.json"
    file.write_text('{"quotas": {')
    files = PolicyFiles(Config(quotas=True, quotas_conf_file=str(file)))
    mails = list[Mail]()
    assert rules(files.quotas(situation("kamelot", quotas=True), mails)) == ()
    assert mails[0].text.endswith(". The scheduler treats the file as empty. Correct the file.")

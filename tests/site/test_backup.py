"""A site whose database is lost goes back to the dump of yesterday, as the chapter "Backup" tells it."""

from __future__ import annotations

from machines.site import Site, wait_until

from tests.site.steps import all_alive, back_up, begun, ends_well, restore, state, submit, wait_for


def test_nothing_is_mended_by_hand_after_a_dump_of_yesterday(site: Site) -> None:
    of_yesterday = begun(site)
    held = submit(site, "--hold -l core=1,walltime=0:30 'echo run >>runs; while [ -e go ]; do sleep 0.2; done'")
    back_up(site)
    site["frontend"].run(f"oarresume {held}", user="alice")
    wait_for(site, held, "Running")
    since = submit(site, "-l core=1,walltime=0:30 'exec sleep 1000'")
    wait_for(site, since, "Running")
    pid = "pgrep --uid alice --full 'sleep 1000'"
    wait_until(lambda: any(site[node].attempt(pid).code == 0 for node in ("node-1", "node-2")))
    restore(site)
    assert state(site, of_yesterday) == "Running"
    wait_for(site, held, "Running")  # its nodes run it since the dump
    ends_well(site, of_yesterday)
    wait_for(site, held, "Terminated")
    assert site["frontend"].run("cat runs", user="alice") == "run\n"
    wait_until(lambda: all_alive(site["frontend"]))
    wait_until(lambda: all(site[node].attempt(pid).code == 1 for node in ("node-1", "node-2")))
    following = submit(site, "-l nodes=2,walltime=0:5 true")
    assert int(following) > int(since)
    wait_for(site, following, "Terminated")
    assert site["frontend"].attempt(f"oarstat -j {since}", user="alice").out == ""
    site["server"].run("oar-database --check --deep")


def test_an_older_database_is_noticed_by_the_server_that_is_started_with_it(site: Site) -> None:
    back_up(site)
    since = submit(site, "-l core=1,walltime=0:05 true")
    wait_for(site, since, "Terminated")
    server = site["server"]
    wait_until(lambda: server.run("cat /run/oar/newest_job").strip() == since)
    restore(site, without="--after-restore")
    wait_until(lambda: all_alive(site["frontend"]))
    following = submit(site, "-l core=1,walltime=0:05 true")
    assert int(following) > int(since) + 1  # the numbers have jumped ahead
    wait_for(site, following, "Terminated")

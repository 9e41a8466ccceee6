"""A site installed by the chapter: jobs run, services stop and come back, machines reboot or lose their power."""

from __future__ import annotations

from machines.site import Site, wait_until

from tests.site.conftest import SOURCES
from tests.site.steps import all_alive, begun, ends_well, reconfigured, runs_a_container, state, submit, wait_for


def test_a_job_runs_on_both_nodes(site: Site) -> None:
    job = submit(site, "-l nodes=2,walltime=0:5 'uniq $OAR_NODEFILE'")
    wait_for(site, job, "Terminated")
    assert set(site["frontend"].run(f"cat OAR.{job}.stdout", user="alice").split()) == {"node-1", "node-2"}


def test_users_of_a_frontend_read_what_administrators_decide(site: Site) -> None:
    frontend = site["frontend"]
    assert "RULE #1" in frontend.run("oaradmissionrules -S", user="alice")
    assert "state = Active" in frontend.run("oarqueue -l", user="alice")
    assert "cpuset" in frontend.run("oarproperty -l", user="alice")
    assert frontend.run("oarnodesetting --last-property-value=cpuset", user="alice") != ""
    assert frontend.attempt("oaradmissionrules -d 1", user="alice").code != 0


def test_the_server_is_restarted_while_a_job_runs(site: Site) -> None:
    job = begun(site)
    site["server"].run("systemctl restart oar-server.service")
    assert site["server"].run("systemctl is-active oar-server.service") == "active\n"
    ends_well(site, job)


def test_the_journal_finds_the_lines_of_a_job_by_its_number_and_its_node(site: Site) -> None:
    server = site["server"]
    with reconfigured(server, 'LOG_FILE=":journal:"\n'):
        server.run("systemctl reload oar-server.service")
        # Each module reads the file before its next pass; Sarko tells the lives of jobs.
        wait_until(lambda: "read again" in server.run("journalctl --output=cat MODULE=Sarko"))
        job = submit(site, "-l core=1 true")
        wait_for(site, job, "Terminated")
        wait_until(lambda: "ended" in server.run(f"journalctl --output=cat JOB={job}"))
        (node,) = (
            site["frontend"].run(f"oarstat -p {job}", user="alice").partition("network_address = '")[2].split("'")[:1]
        )
        assert "started" in server.run(f"journalctl --output=cat JOB={job} NODE={node} QUEUE=default")


def test_the_database_is_away_for_a_while(site: Site) -> None:
    job = begun(site)
    site["server"].run("systemctl stop postgresql")
    site["server"].run("systemctl start postgresql")
    ends_well(site, job)
    assert site["server"].run("systemctl is-active oar-server.service") == "active\n"


def test_the_database_comes_up_later_than_the_server(site: Site) -> None:
    job = begun(site)
    site["server"].run("systemctl stop oar-server.service postgresql")
    site["server"].run("systemctl start oar-server.service")  # which nothing keeps waiting
    status = "systemctl show --property StatusText --value oar-server.service"
    assert "waiting for the database at" in site["server"].run(status)
    site["server"].run("systemctl start postgresql")
    wait_until(lambda: "waiting" not in site["server"].run(status))
    ends_well(site, job)


def test_a_frontend_reboots_and_users_go_on(site: Site) -> None:
    job = begun(site)
    site["frontend"].run("systemctl enable --now oar-commands.socket")
    site["frontend"].reboot()
    assert state(site, job) == "Running"
    wait_until(lambda: site["frontend"].run("systemctl is-active oar-commands.service") == "active\n")
    ends_well(site, job)


def test_the_server_reboots_and_all_comes_back_by_itself(site: Site) -> None:
    job = begun(site)
    site["server"].reboot()
    wait_until(lambda: site["server"].run("systemctl is-active oar-server.service") == "active\n")
    ends_well(site, job)


def test_a_node_that_lost_its_power_is_back_when_it_answers(site: Site) -> None:
    site["node-2"].pull_plug()
    site["node-2"].boot()
    wait_until(lambda: runs_on_both(site))  # the launch that finds its old connection dead may fail
    wait_until(lambda: all_alive(site["frontend"]))


def test_a_node_reboots_in_order_and_its_jobs_end_as_after_a_crash(site: Site) -> None:
    on_the_node = """-l core=1,walltime=0:30 -p "network_address='node-1'" """
    once = "'if [ -e again ]; then rm again; else touch again; sleep 1000; fi'"
    plain = submit(site, f"{on_the_node} 'touch plain; sleep 1000'")
    idempotent = submit(site, f"{on_the_node} -t idempotent {once}")
    for job in (plain, idempotent):
        wait_for(site, job, "Running")
    wait_until(lambda: {"again", "plain"} <= {*files_of_alice(site)})
    site["node-1"].reboot()
    wait_until(lambda: site["node-1"].run("systemctl is-active oar-node-script") == "active\n")
    for job in (plain, idempotent):
        wait_for(site, job, "Error")
        explained = site["frontend"].run(f"oarstat --explain {job}", user="alice")
        assert "node-1 was shut down, or rebooted in order, while the job was there." in explained
    wait_until(lambda: all_alive(site["frontend"]))
    wait_until(lambda: "again" not in files_of_alice(site))
    events = site["server"].run("oarnodes --events 'last 100' node-1")
    assert "node-1 said that it goes" in events
    assert "node-1 said that it is back" in events
    assert "CPUSET_CLEAN_ERROR" not in events


def test_the_key_of_the_nodes_opens_nothing_but_the_node_s_own_state(site: Site) -> None:
    ssh = "sudo -u oar ssh -i /var/lib/oar/.ssh/oarnodesetting_ssh.key -oIdentitiesOnly=yes -oBatchMode=yes oar@server"
    refused = site["node-2"].attempt(f"{ssh} id")
    assert (refused.code, refused.err) == (1, "oarnodesetting_ssh: say alive or absent\n")
    assert site["node-2"].run(f"{ssh} absent") == "node-2 --> Absent\n"
    wait_until(lambda: not all_alive(site["frontend"]))
    assert site["node-2"].run(f"{ssh} alive") == "node-2 --> Alive\n"
    wait_until(lambda: all_alive(site["frontend"]))


def files_of_alice(site: Site) -> list[str]:
    return site["frontend"].run("ls", user="alice").split()


def runs_on_both(site: Site) -> bool:
    """Submit a job for both nodes; whether it ends well."""
    job = submit(site, "-l nodes=2,walltime=0:5 true")
    wait_for(site, job, "Terminated", "Error")
    return state(site, job) == "Terminated"


def test_a_site_without_packages_is_installed_upgraded_removed_and_installed_again(site_from_sources: Site) -> None:
    server = site_from_sources["server"]
    job = begun(site_from_sources)
    server.run(f"echo '# another release' >> {SOURCES}/oar/lib/base/version.py")
    before = server.run("head -1 /usr/lib/oar/oar-almighty")
    server.run("systemctl stop oar-server.service")
    server.run(f"cd {SOURCES} && make PREFIX=/usr server-install user-install")
    assert server.run("head -1 /usr/lib/oar/oar-almighty") != before
    server.run("systemctl daemon-reload && oar-database --setup && systemctl start oar-server.service")
    ends_well(site_from_sources, job)
    wait_for(site_from_sources, submit(site_from_sources, "true"), "Terminated")
    runs_a_container(site_from_sources)
    is_removed_and_comes_back(site_from_sources)


def is_removed_and_comes_back(site: Site) -> None:
    """Take OAR away from the server while a job runs, and put it there again."""
    server, job = site["server"], begun(site)
    make, units = f"cd {SOURCES} && make PREFIX=/usr", "oar-server.service oar-accounting.timer oar-purge.timer"
    server.run("systemctl enable --now oar-commands.socket")
    assert "Removed. Kept: /etc/oar" in server.run(f"{make} uninstall")
    assert server.run("systemctl list-units --all --no-legend 'oar*'; pgrep -u oar; true") == ""
    assert server.run("find /etc/systemd /usr/lib/systemd -name '*oar*'") == ""
    server.run(f"{make} server-install user-install && systemctl daemon-reload && systemctl enable --now {units}")
    ends_well(site, job)

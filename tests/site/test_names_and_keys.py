"""A node gets another name, and the server another key, while jobs run: as the administrator's guide tells it."""

from __future__ import annotations

from machines.site import Site, wait_until

from tests.site.steps import all_alive, begun, block, ends_well, submit, wait_for

_SSH = "/var/lib/oar/.ssh"
_KNOWN = f"{_SSH}/known_hosts"
_ALLOWED = f"{_SSH}/authorized_keys"
_NODES = ("node-1", "node-2")


def test_a_node_gets_another_name_while_a_job_runs_there(site: Site) -> None:
    server, machines = site["server"], site.machines.values()
    command = block("another name of a node").strip().removeprefix("server# ").replace("node-9", "node-2")
    new = command.rpartition("=")[2]
    job = begun(site, """-p "network_address='node-2'" """)
    for machine in machines:
        machine.run(f"cp -a /etc/hosts /root/hosts && sed -i '/ node-2$/s/$/ {new}/' /etc/hosts")
        machine.run(f"cp -a {_KNOWN} /root/known && sed -n 's/node-2/{new}/p' {_KNOWN} > more && cat more >> {_KNOWN}")
    try:
        server.run(command)
        ends_well(site, job)
        following = submit(site, f"""-l core=1,walltime=0:05 -p "network_address='{new}'" 'uniq $OAR_NODEFILE'""")
        wait_for(site, following, "Terminated")
        assert site["frontend"].run(f"cat OAR.{following}.stdout", user="alice") == f"{new}\n"
        assert all_alive(site["frontend"])
    finally:
        server.run(f"oarnodesetting -h {new} -p network_address=node-2 -p host=node-2")
        for machine in machines:
            machine.run(f"cp -a /root/hosts /etc/hosts && cp -a /root/known {_KNOWN}")


def test_the_server_gets_a_new_key_while_a_job_runs(site: Site) -> None:
    server = site["server"]
    job = begun(site)
    server.run("rm -f /root/new /root/new.pub; ssh-keygen -q -t ed25519 -N '' -f /root/new")
    public = server.run("cut -d ' ' -f 1,2 /root/new.pub").strip()
    for node in _NODES:
        site[node].run(f"""echo 'environment="OAR_KEY=1" {public}' >> {_ALLOWED}""")
    server.run(f"install -o oar -g oar -m 600 /root/new {_SSH}/id_ed25519")
    server.run(f"install -o oar -g oar -m 644 /root/new.pub {_SSH}/id_ed25519.pub")
    server.run("systemctl restart oar-server.service")
    for node in _NODES:
        site[node].run(f"sed -i '0,/OAR_KEY=1/{{/OAR_KEY=1/d}}' {_ALLOWED}")
        assert site[node].run(f"grep -c OAR_KEY=1 {_ALLOWED}") == "1\n"
    ends_well(site, job)
    wait_for(site, submit(site, "-l nodes=2,walltime=0:05 true"), "Terminated")
    assert all_alive(site["frontend"])


def test_a_key_that_was_lost_is_named_until_the_nodes_have_the_new_one(site: Site) -> None:
    server = site["server"]
    server.run(f"systemctl stop oar-server.service && rm {_SSH}/id_ed25519 {_SSH}/id_ed25519.pub")
    server.run("systemctl start oar-server.service")
    lost = submit(site, "-l nodes=1,walltime=0:05 true")
    wait_for(site, lost, "Error")
    wait_until(lambda: "Suspected" in server.run("oarnodes -s"))
    wait_until(lambda: f"its sshd refuses the key {_SSH}/id_ed25519" in server.run("cat /var/log/oar.log"))
    public = server.run(f"cut -d ' ' -f 1,2 {_SSH}/id_ed25519.pub").strip()
    for node in _NODES:
        site[node].run(f'sed -i \'s|^environment="OAR_KEY=1" .*|environment="OAR_KEY=1" {public}|\' {_ALLOWED}')
    wait_until(lambda: all_alive(site["frontend"]))
    wait_for(site, submit(site, "-l nodes=2,walltime=0:05 true"), "Terminated")

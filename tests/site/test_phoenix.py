"""Broken nodes are really rebooted: in order, and by their power where that is of no use."""

from __future__ import annotations

from machines.site import Site, wait_until

from tests.site.steps import all_alive, block, state, submit

_CONF = "/etc/oar/oar.conf"
_KEYS = "/var/lib/oar/.ssh"
#: What the site's own program was asked for that switches the power.
_ASKED = "/var/lib/oar/asked"


def test_broken_nodes_are_rebooted_in_order_and_then_by_their_power(site: Site) -> None:
    server, node = site["server"], site["node-2"]
    server.run(f"cp -a {_CONF} /root/oar.conf && cat >> {_CONF}", stdin=block("reboots"))
    server.run(f"echo 'PHOENIX_SOFT_TIMEOUT=\"1\"' >> {_CONF} && cp -a {_KEYS}/known_hosts /root/known_hosts")
    server.run(block("host keys for reboots").strip().removeprefix("server# "))
    server.write("/usr/local/sbin/power_cycle", f"#!/bin/sh\necho $1 >> {_ASKED}\n")
    server.run("chmod 755 /usr/local/sbin/power_cycle")
    node.run("mkdir -pm 700 .ssh && cat > .ssh/authorized_keys", stdin=server.run(f"cat {_KEYS}/id_ed25519.pub"))
    try:
        before = site.pid("node-2")
        node.run("systemctl kill oar-node.service")  # it answers, and starts no job
        lost = submit(site, """-p "network_address='node-2'" -l core=1,walltime=0:05 true""")
        wait_until(lambda: "Suspected" in server.run("oarnodes -s node-2") and state(site, lost) == "Error")
        server.run("systemctl start oar-phoenix.service")
        wait_until(lambda: site.pid("node-2") != before)
        node.wait_until_up()
        wait_until(lambda: all_alive(site["frontend"]))
        node.pull_plug()
        wait_until(lambda: asks_for_power(site))
        node.boot()
        wait_until(lambda: all_alive(site["frontend"]))
    finally:
        server.run(f"mv /root/oar.conf {_CONF}; mv /root/known_hosts {_KEYS}; rm -f {_ASKED}")


def asks_for_power(site: Site) -> bool:
    """Have broken nodes rebooted; whether the power of the one was to be switched."""
    site["server"].attempt("systemctl start oar-phoenix.service")  # it fails while the node does not answer to ssh
    return site["server"].attempt(f"cat {_ASKED}").out == "node-2\n"

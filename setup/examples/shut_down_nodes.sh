#!/bin/sh
# Example for SCHEDULER_NODE_MANAGER_SLEEP_CMD and ENERGY_SAVING_NODE_MANAGER_SLEEP_CMD: switches nodes off, all at a time.
# Their names come on standard input, one on each line. It is run by the account oar, whose key opens the nodes.
shut_down() {
    ssh -p 6667 -oBatchMode=yes -oConnectTimeout=10 -- "$1" sudo -n systemctl --no-block poweroff </dev/null && return
    echo "shut_down_nodes: '$1' was not reached" >&2
    return 1
}

asked=
while read -r node; do
    shut_down "$node" &
    asked="$asked $!"
done
failed=0
for pid in $asked; do
    wait "$pid" || failed=1
done
exit $failed

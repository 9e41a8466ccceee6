#!/bin/sh
# Example for SCHEDULER_NODE_MANAGER_WAKE_UP_CMD and ENERGY_SAVING_NODE_MANAGER_WAKE_UP_CMD: wakes nodes over the network.
# Their names come on standard input, one on each line; their addresses are in /etc/ethers, as "00:11:22:33:44:55 node-1".
failed=0
while read -r node; do
    address=$(awk -v node="$node" '$1 !~ /^#/ && $2 == node { print $1; exit }' "${ETHERS:-/etc/ethers}")
    if [ -z "$address" ]; then
        echo "wake_up_nodes: /etc/ethers has no line for '$node'" >&2
        failed=1
    elif ! wakeonlan "$address" </dev/null; then
        failed=1
    fi
done
exit $failed

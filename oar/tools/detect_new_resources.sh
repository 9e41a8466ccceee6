#!/bin/sh
# Prints what declares this computer, from /proc and /sys alone: a piece of shell for the server that adds one resource per
# core. cpu and core are numbers of the whole cluster: they go on behind those that are there when it runs.
host=$(hostname)
memory=$((($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) + 1048575) / 1048576))
system=/sys/devices/system/cpu

# One line per thread: package, core, number of the processor. The first thread of a core gives it its number.
threads() {
    for directory in "$system"/cpu[0-9]*; do
        [ ! -e "$directory/online" ] || [ "$(cat "$directory/online")" = 1 ] || continue
        number=${directory##*/cpu}
        if [ -r "$directory/topology/core_id" ]; then
            echo "$(cat "$directory/topology/physical_package_id") $(cat "$directory/topology/core_id") $number"
        else
            echo "0 $number $number"
        fi
    done | sort -n -k1,1 -k2,2 -k3,3
}

echo "for name in 'host -c' cpu core mem; do oarproperty -a \$name >/dev/null 2>&1; done"
for name in cpu core; do
    echo "$name=\$(oarnodesetting --last-property-value $name 2>/dev/null)"
done
threads | {
    last= package= cpuset= cpu=0 core=0
    show() {
        [ -z "$cpuset" ] || echo "oarnodesetting -a -h '$host' -p host='$host' -p cpu=\$((cpu + $cpu)) -p core=\$((core + $core)) -p cpuset=$cpuset -p mem=$memory"
    }
    while read -r socket identifier number; do
        if [ "$socket $identifier" = "$last" ]; then
            cpuset=$cpuset,$number
        else
            show
            [ "$socket" = "$package" ] || cpu=$((cpu + 1))
            last="$socket $identifier" package=$socket cpuset=$number core=$((core + 1))
        fi
    done
    show
}

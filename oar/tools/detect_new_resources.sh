#!/bin/sh
# Prints the oarnodesetting lines that declare this computer: one resource per core, from /proc and /sys alone.
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

threads | {
    last= cpuset= cpu= core=
    show() {
        [ -z "$cpuset" ] || echo "oarnodesetting -a -h '$host' -p host='$host' -p cpu=$cpu -p core=$core -p cpuset=$cpuset -p mem=$memory"
    }
    while read -r package identifier number; do
        if [ "$package $identifier" = "$last" ]; then
            cpuset=$cpuset,$number
        else
            show
            last="$package $identifier" cpuset=$number cpu=$package core=$number
        fi
    done
    show
}

#!/bin/sh
# Describes this computer, from /proc, /sys and /dev alone, in lines that oar_resources_init reads:
#   memory KIBIBYTES
#   thread PACKAGE CORE NUMBER
#   gpu NUMBER
system=/sys/devices/system/cpu
echo "memory $(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
for directory in "$system"/cpu[0-9]*; do
    [ ! -e "$directory/online" ] || [ "$(cat "$directory/online")" = 1 ] || continue
    number=${directory##*/cpu}
    if [ -r "$directory/topology/core_id" ]; then
        echo "thread $(cat "$directory/topology/physical_package_id") $(cat "$directory/topology/core_id") $number"
    else
        echo "thread 0 $number $number"
    fi
done
for device in /dev/nvidia[0-9]*; do
    [ ! -c "$device" ] || echo "gpu ${device#/dev/nvidia}"
done

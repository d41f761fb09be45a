#!/bin/sh
# IOPS per second of server CPU: serve_mem against nbdkit's memory plugin, under fio's nbd engine, taking turns.
#
#   cargo build --release -p wattle-export --example serve_mem
#   crates/export/examples/compare.sh TARGET_DIR/release/examples/serve_mem [SECONDS [ROUNDS [DEPTH]]]
set -eu
serve_mem=$1 seconds=${2:-10} rounds=${3:-3} depth=${4:-64}
directory=$(mktemp -d)
trap 'kill "$ours" "$theirs" 2>/dev/null || true; rm -rf "$directory"' EXIT

"$serve_mem" "nbd=unix:$directory/ours" 256 1 & ours=$!
nbdkit -f -U "$directory/theirs" memory 256M & theirs=$!
while [ ! -S "$directory/ours" ] || [ ! -S "$directory/theirs" ]; do sleep 0.1; done

ticks() { # user and system time of a process
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}

run() { # name, pid, workload
    before=$(ticks "$2")
    iops=$(fio --name=x --ioengine=nbd --uri="nbd+unix:///?socket=$directory/$1" --rw="$3" --bs=4k --iodepth="$depth" \
        --size=256M --time_based --runtime="$seconds" --output-format=terse --terse-version=3 |
        awk -F';' 'END { print $8 + $49 }')
    used=$(($(ticks "$2") - before))
    awk -v n="$1" -v w="$3" -v i="$iops" -v u="$used" -v s="$seconds" -v hz="$(getconf CLK_TCK)" 'BEGIN {
        printf "%-7s %-10s %8d IOPS  %5.2f s CPU  %8d IOPS per CPU-second\n", n, w, i, u / hz, i * s * hz / u }'
}

for round in $(seq "$rounds"); do
    for workload in randread randwrite; do
        run ours "$ours" "$workload"
        run theirs "$theirs" "$workload"
    done
done

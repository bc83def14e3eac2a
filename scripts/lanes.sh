#!/usr/bin/env bash
# Commands side by side, each with a GPU and a share of the cores of its own, until they end or SECONDS are over:
#
#     scripts/run bash scripts/lanes.sh SECONDS FOLDER COMMAND [COMMAND ...]
#
# What the first prints is FOLDER/lane-0.txt, and so on; at the end a line says how each ended. More commands for one
# GPU are one argument: "first; second". Figures that say nothing of a host that does other work, such as seconds from
# nothing to a winner, are measured alone instead.
set -euo pipefail
seconds=$1 folder=$2
shift 2
mkdir -p "$folder"
gpus=$(nvidia-smi -L | wc -l)
((0 < $# && $# <= gpus)) || { echo "lanes.sh: $# commands for $gpus GPUs" >&2; exit 2; }
mapfile -t cores < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
share=$((${#cores[@]} / $#))
lanes=()
# timeout gives each a process group of its own, which Ctrl-C does not reach.
trap 'kill "${lanes[@]}"; exit 130' INT TERM
for ((i = 0; i < $#; ++i)); do
    mine=$(IFS=,; echo "${cores[*]:i * share:share}")
    command=${*:i + 1:1}
    CUDA_VISIBLE_DEVICES=$i timeout --signal INT --kill-after 10 "$seconds" \
        taskset --cpu-list "$mine" bash -ec "$command" >"$folder/lane-$i.txt" 2>&1 </dev/null &
    lanes+=($!)
done
for i in "${!lanes[@]}"; do
    status=0
    wait "${lanes[i]}" || status=$?
    echo "lane $i: exit status $status; $(tail -n 1 "$folder/lane-$i.txt")"
done

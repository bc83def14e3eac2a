#!/usr/bin/env bash
# The figures in the README and in docs, measured on the GPU of this machine:
#
#     scripts/run bash scripts/figures.sh results/evidence
#
# Cold caches: the cubin cache and the database are new. What it prints is kept as figures.txt. The comparison at the end
# with torch needs torch in the same environment.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME="$scratch/cache"
db=tuning.db
cd "$scratch"

timed() {
    echo "\$ tune $*"
    local TIMEFORMAT='[%1R s from start to the confirmed winner]'
    time python3 -m tuner "$@" --db "$db"
    echo
}

{
    python3 -m tuner doctor | grep -E ' (tune|NVRTC|GPU|timing|fit) ' || true
    echo
    timed --kernel gemm --trials 200
    echo "# Once more with an empty database: what is compiled and calibrated is there, and every trial is measured again"
    db=again.db timed --kernel gemm --trials 200
    db=short.db timed --kernel gemm --time 5
    timed --kernel gemm --trials 200 --dtype float32
    timed --kernel vector_add --trials 200
    timed --kernel vector_add --trials 200 --size 'n=2**28'
    timed --kernel saxpy --trials 200 --size 'n=2**28'
    timed --kernel gemm --trials 100 --dtype float32,float16,bfloat16 --max-error 1e-3
    echo '$ tune bench --against torch --against default --check'
    python3 -m tuner bench --db "$db" --against torch --against default --check
} 2>&1 | tee "$out/figures.txt"

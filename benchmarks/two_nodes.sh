#!/usr/bin/env bash
# Two torchrun nodes on one machine, over loopback, against one process: the same buckets.
# Usage: benchmarks/two_nodes.sh DATA [options of sebra rank]
set -euo pipefail
data=$1
shift
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMP_NUM_THREADS=1
port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

node() {
  torchrun --nnodes 2 --node_rank "$1" --nproc_per_node 1 \
    --master_addr 127.0.0.1 --master_port "$port" \
    -m sebra rank "$data" --out "$out/two" "${@:2}"
}

node 1 "$@" > "$out/node1.log" 2>&1 &
node 0 "$@"
wait
python -m sebra rank "$data" --out "$out/one" "$@" > /dev/null
python - "$out" <<'PY'
import sys

import pandas as pd

one, two = (pd.read_parquet(f"{sys.argv[1]}/{name}/ranking.parquet") for name in ("one", "two"))
print(f"{len(one)} samples, {int((one.bucket != two.bucket).sum())} in another bucket, "
      f"largest difference of rank {int((one['rank'] - two['rank']).abs().max())}")
PY

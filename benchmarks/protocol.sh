#!/usr/bin/env bash
# Both tables of docs/protocol.md, as far as they get in LIMIT seconds; started again with the same
# RUN it goes on. Pictures are fine-tuned on the GPU; Colored MNIST takes the CPU's last cores
# meanwhile. The most important methods come first.
#
#   DATA=folder of urbancars, celeba, bar, mnist and weights  RUN=folder for rows  \
#   LIMIT=540 JOBS=7 PYTHON=python3  benchmarks/protocol.sh
#
# SICK needs a text encoder, in a command of its own:
#   sebra bench sick:$DATA/sick --backbone FOLDER --mode features --device cpu --protocol both …
set -u
cd "$(dirname "$0")/.."
: "${DATA:?a folder of data sets}" "${RUN:?a folder for rows}"
export PYTHON=${PYTHON:-python3} LIMIT=${LIMIT:-540} JOBS=${JOBS:-7} DEVICE=${DEVICE:-cuda}
export METHODS=${METHODS:-"erm,auto,stages,sebra,xrm,jtt,groupdro,dfr,dfr[on=patterns],ccdb,afr,cbllr,dpe,lff,resample,lle,debian"}
SETS=${SETS:-"urbancars:$DATA/urbancars celeba:$DATA/celeba bar:$DATA/bar"}
WEIGHTS=${WEIGHTS:-$DATA/weights/resnet18_imagenet_backbone_fp16.safetensors}
export PYTHONPATH=src PYTHONUNBUFFERED=1 SEBRA_OFFLINE=1
mkdir -p "$RUN"

bench() {
  "$PYTHON" -m sebra bench "$@" --protocol both --seeds "${SEEDS:-4}" --methods "$METHODS" \
    --deadline "$LIMIT"
}

if [ -d "$DATA/mnist" ]; then
  cores=$(nproc)
  first=$((cores > 2 ? cores - cores / 2 + 1 : 0))
  CUDA_VISIBLE_DEVICES='' taskset -c "$first-$((cores - 1))" bash -c "$(declare -f bench); bench \
    'cmnist:$DATA/mnist?n=10000' --mode features --device cpu --jobs $((cores > 2 ? 6 : 1)) \
    --out '$RUN/cmnist'" > "$RUN/cmnist.log" 2>&1 &
fi
# shellcheck disable=SC2086
bench $SETS --weights "$WEIGHTS" --mode finetune --device "$DEVICE" --jobs "$JOBS" \
  --out "$RUN/pictures" > "$RUN/pictures.log" 2>&1
status=$?
wait
cat "$RUN"/*/rows.jsonl > "$RUN/protocol.jsonl"
tail -n 5 "$RUN/pictures.log"
wc -l "$RUN/protocol.jsonl"
exit $status

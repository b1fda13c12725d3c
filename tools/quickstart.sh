#!/usr/bin/env bash
# From a bare machine to a table of scores at every active budget: sets up, builds, trains a small Flexible
# Stepped MoE on the corpus in examples/, evaluates it and shows the result. A finished part is not repeated;
# remove runs/quickstart to start over.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
elapsed() { printf '    (%d min %02d s since the start)\n' $((SECONDS / 60)) $((SECONDS % 60)); }

say "Set-up and build"
tools/build.sh release smoe-data smoe-train smoe-eval smoe-plot smoe-params
elapsed

bin=build/release/bin
run=runs/quickstart
domains=(stories novels textbook_science tech_docs news_government code_python)
mkdir -p "$run/tokens/train" "$run/tokens/validation"

if [ ! -f "$run/tokenizer.model" ]; then
  say "Tokenizer: SentencePiece, 4096 pieces, trained on the example corpus"
  "$bin/smoe-data" train-tokenizer --input examples/corpus/train/*.jsonl --vocab-size 4096 --out "$run/tokenizer.model"
fi
for split in train validation; do
  for domain in "${domains[@]}"; do
    if [ ! -f "$run/tokens/$split/$domain.json" ]; then
      "$bin/smoe-data" tokenize --input "examples/corpus/$split/$domain.jsonl" --tokenizer "$run/tokenizer.model" \
        --out "$run/tokens/$split/$domain"
    fi
  done
done
elapsed

say "Training: one model, four active budgets (configs/quickstart/flexible.yaml)"
resume=()
[ -f "$run/flexible/checkpoints/latest" ] && resume=(--resume)
"$bin/smoe-train" configs/quickstart/flexible.yaml "${resume[@]}"
elapsed

say "Evaluation: a sample of six benchmarks and held-out text, at every budget"
if [ ! -f "$run/results.json" ]; then
  "$bin/smoe-eval" --checkpoint "$run/flexible" --data examples/benchmarks \
    --tasks lambada_openai,arc_easy,arc_challenge,hellaswag,winogrande,piqa --text examples/corpus/validation/stories.jsonl \
    --bos eos --out "$run/results.json"
else
  cat "$run/results.md"
fi
"$bin/smoe-plot" "$run/flexible" --out "$run/loss.svg"
elapsed

say "Done"
cat <<EOF
  $run/results.json        scores, errors and everything needed to reproduce them
  $run/loss.svg            loss of each budget over the tokens seen
  $run/flexible            config, metrics, log and checkpoints of the run

A model of this size trained for minutes is near chance on the benchmarks; its loss tells more. Next:
  $bin/smoe-train --print-config                     every key with its default and meaning
  $bin/smoe-params configs/paper/flexible_12b.yaml   parameters, FLOPs and memory at every budget
  $bin/smoe-train configs/quickstart/flexible.yaml --set run_folder=runs/s8 --set model.routing.segment_length=8
  tools/build.sh release smoe-tools                  build the other tools: generation, export, judges, inspection
  docs/data.md                                       train on your own text
EOF

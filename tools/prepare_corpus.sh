#!/usr/bin/env bash
# Trains a tokenizer on a corpus and turns the corpus into token stores:
#
#   tools/prepare_corpus.sh CORPUS OUT [VOCAB_SIZE]
#
# CORPUS/train/*.jsonl[.zst] becomes OUT/tokens/train, one store, and each file of CORPUS/validation a store of
# its own, OUT/tokens/validation/NAME. A finished part is not repeated; remove OUT to start over.
set -euo pipefail

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  echo "usage: tools/prepare_corpus.sh CORPUS OUT [VOCAB_SIZE]" >&2
  exit 2
fi
corpus=$1
out=$2
vocabulary=${3:-4096}
bin=$(dirname "${BASH_SOURCE[0]}")/../build/release/bin
if [ ! -x "$bin/smoe-data" ]; then
  echo "$bin/smoe-data is not built; run tools/build.sh release smoe-tools" >&2
  exit 1
fi
shopt -s nullglob
train=("$corpus"/train/*.jsonl "$corpus"/train/*.jsonl.zst)
validation=("$corpus"/validation/*.jsonl "$corpus"/validation/*.jsonl.zst)
if [ ${#train[@]} -eq 0 ] || [ ${#validation[@]} -eq 0 ]; then
  echo "$corpus: needs train/*.jsonl and validation/*.jsonl (or .jsonl.zst), each line an object with \`text\`" >&2
  exit 1
fi

mkdir -p "$out/tokens/validation"
if [ ! -f "$out/tokenizer.model" ]; then
  "$bin/smoe-data" train-tokenizer --input "${train[@]}" --vocab-size "$vocabulary" --out "$out/tokenizer.model"
fi
if [ ! -f "$out/tokens/train.json" ]; then
  "$bin/smoe-data" tokenize --input "${train[@]}" --tokenizer "$out/tokenizer.model" --out "$out/tokens/train"
fi
for file in "${validation[@]}"; do
  name=$(basename "$file")
  name=${name%.zst}
  name=${name%.jsonl}
  if [ ! -f "$out/tokens/validation/$name.json" ]; then
    "$bin/smoe-data" tokenize --input "$file" --tokenizer "$out/tokenizer.model" --out "$out/tokens/validation/$name"
  fi
done

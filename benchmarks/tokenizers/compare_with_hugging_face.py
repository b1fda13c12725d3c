"""Speed of tokenizing against Hugging Face `tokenizers` and SentencePiece: the same text, vocabularies and threads.

Set-up (in a virtual environment outside the source tree):
    pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
Run:
    python compare_with_hugging_face.py --smoe-bench build/release/bin/smoe-bench

Vocabularies are trained on the text first: two of byte-level BPE (the patterns of GPT-2 and Llama 3), two of SentencePiece
(BPE and unigram). For the latter the public libraries are SentencePiece's own Python module, and the same model as a
tokenizer.json. All contestants take turns, each in a process of its own, with the documents in memory and a tokenizer that
was just loaded, after one unmeasured round. The fastest call of each library is timed: `encode_batch_fast` with
RAYON_NUM_THREADS, and `encode` with `num_threads`. Every library must give the same number of tokens, or the comparison
says so.

Prints a table and one JSON line a row: seconds on the wall and in cores (medians), and how many times those of smoe they
are.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")
KINDS = ("gpt2", "llama3", "sentencepiece_bpe", "sentencepiece_unigram")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoe-bench", type=pathlib.Path, default=ROOT / "build/release/bin/smoe-bench")
    parser.add_argument("--input", type=pathlib.Path, nargs="+",
                        default=sorted((ROOT / "examples/corpus/train").glob("*.jsonl")), help="JSONL with the key `text`")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--vocab-size", type=int, default=16384)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, len(os.sched_getaffinity(0))}))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="for the vocabularies, which are kept and found again")
    parser.add_argument("--out", type=pathlib.Path, help="the JSON lines, also to this file")
    parser.add_argument("--measure", nargs=3, metavar=("LIBRARY", "FILE", "THREADS"), help=argparse.SUPPRESS)
    return parser.parse_args()


def read_documents(files):
    return [json.loads(line)["text"] for file in files for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def train_byte_level(kind, documents, vocab_size, path):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if kind == "gpt2" else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.save(str(path))


def train_sentencepiece(model_type, documents, vocab_size, path):
    import io
    import sentencepiece
    model = io.BytesIO()
    lines = (line for document in documents for line in document.split("\n") if line)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, model_type=model_type, vocab_size=vocab_size, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, character_coverage=0.9995,
        allow_whitespace_only_pieces=True, max_sentence_length=1 << 20, minloglevel=2)
    path.write_bytes(model.getvalue())


def as_hugging_face(model_type, model, path):
    """The same pieces and scores as a tokenizer.json, in the way public Llama and T5 models are converted."""
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Tokenizer, models, normalizers
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.read_bytes())
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    if model_type == "unigram":
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=proto.trainer_spec.unk_id, byte_fallback=True))
    else:
        ids = {piece: index for index, (piece, _) in enumerate(pieces)}
        merges = []
        for piece, score in pieces:
            halves = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
            known = [(left, right) for left, right in halves if left in ids and right in ids]
            merges += [(score, pair) for pair in sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
        merges.sort(key=lambda merge: merge[0], reverse=True)
        tokenizer = Tokenizer(models.BPE(ids, [pair for _, pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.save(str(path))


def make_vocabularies(arguments, documents, folder):
    """Per kind: the file that smoe reads, and the file of each library."""
    files = {}
    for kind in arguments.kinds:
        if kind.startswith("sentencepiece"):
            model_type = kind.removeprefix("sentencepiece_")
            model, converted = folder / f"{kind}.model", folder / f"{kind}.json"
            if not model.exists():
                train_sentencepiece(model_type, documents, arguments.vocab_size, model)
            if not converted.exists():
                as_hugging_face(model_type, model, converted)
            files[kind] = (model, {"sentencepiece": model, "tokenizers": converted})
        else:
            path = folder / kind / "tokenizer.json"
            path.parent.mkdir(exist_ok=True)
            if not path.exists():
                train_byte_level(kind, documents, arguments.vocab_size, path)
            files[kind] = (path, {"tokenizers": path})
    return files


def measure_library(library, path, threads, documents):
    """One unmeasured and one measured round, each with a tokenizer that was just loaded."""
    for _ in range(2):
        if library == "tokenizers":
            from tokenizers import Tokenizer
            tokenizer = Tokenizer.from_file(path)
            encode = lambda: sum(len(encoding) for encoding in tokenizer.encode_batch_fast(documents, add_special_tokens=False))
        else:
            import sentencepiece
            processor = sentencepiece.SentencePieceProcessor(model_file=path)
            encode = lambda: sum(map(len, processor.encode(documents, num_threads=threads)))
        wall, core = time.perf_counter(), time.process_time()
        tokens = encode()
        wall, core = time.perf_counter() - wall, time.process_time() - core
    return {"wall_s": wall, "core_s": core, "tokens": tokens}


def run_library(arguments, library, path, threads):
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="true")
    command = [sys.executable, __file__, "--input", *map(str, arguments.input), "--measure", library, str(path), str(threads)]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def run_smoe(arguments, path, threads, folder):
    out = folder / "smoe.jsonl"
    subprocess.run([arguments.smoe_bench, "data", "--input", *arguments.input, "--tokenizer", path, "--threads", str(threads),
                    "--repetitions", "1", "--json", out], check=True, stdout=subprocess.DEVNULL)
    row = json.loads(out.read_text())
    return {"wall_s": row["median_wall_s"], "core_s": row["median_core_s"], "tokens": row["unique_tokens"]}


def compare(arguments, folder, documents):
    text_bytes = sum(len(document.encode()) for document in documents)
    rows = []
    for kind, (ours, libraries) in make_vocabularies(arguments, documents, folder).items():
        for threads in arguments.threads:
            runs = {name: [] for name in ("smoe", *libraries)}
            for _ in range(arguments.repetitions):
                runs["smoe"].append(run_smoe(arguments, ours, threads, folder))
                for name, path in libraries.items():
                    runs[name].append(run_library(arguments, name, path, threads))
            median = {name: {key: statistics.median(run[key] for run in all_runs) for key in ("wall_s", "core_s", "tokens")}
                      for name, all_runs in runs.items()}
            for name, values in median.items():
                rows.append({"kind": kind, "threads": threads, "library": name, "text_bytes": text_bytes, **values,
                             "times_smoe_wall": values["wall_s"] / median["smoe"]["wall_s"],
                             "times_smoe_core": values["core_s"] / median["smoe"]["core_s"],
                             "same_tokens": values["tokens"] == median["smoe"]["tokens"]})
    return rows


def print_rows(rows):
    print(f"{'vocabulary':22} {'threads':>7} {'library':>14} {'MB/s':>7} {'Mtok/s':>7} {'MB/core s':>9} {'time x smoe':>11} "
          f"{'core x smoe':>11}  tokens")
    for row in rows:
        note = "" if row["same_tokens"] else "  (not those of smoe)"
        print(f"{row['kind']:22} {row['threads']:7} {row['library']:>14} {row['text_bytes'] / row['wall_s'] / 1e6:7.2f} "
              f"{row['tokens'] / row['wall_s'] / 1e6:7.2f} {row['text_bytes'] / row['core_s'] / 1e6:9.2f} "
              f"{row['times_smoe_wall']:11.2f} {row['times_smoe_core']:11.2f}  {row['tokens']:.0f}{note}")


def main():
    arguments = parse_arguments()
    arguments.input = [pathlib.Path(file) for file in arguments.input]
    documents = read_documents(arguments.input)
    if arguments.measure:
        library, path, threads = arguments.measure
        print(json.dumps(measure_library(library, path, int(threads), documents)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        rows = compare(arguments, folder, documents)
    print_rows(rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    print(lines, end="")
    if arguments.out:
        arguments.out.write_text(lines)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the tokenizer files in this folder and the ids that the public libraries give for them.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3
    /tmp/golden/bin/python tests/golden/tokenizers/make_golden.py

The training text is Python's own documentation of its syntax (module pydoc_data.topics) and the lines below.
Another Python version gives other vocabularies, and then other ids; both are written together.
"""
import copy
import json
import pathlib
from pydoc_data import topics

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers

assert tokenizers.__version__ == "0.23.3" and sentencepiece.__version__ == "0.2.3"
FOLDER = pathlib.Path(__file__).parent

MULTILINGUAL = [
    "Die Größe der Straße überrascht mich; où êtes-vous né, à Orléans? El niño comió piñas.",
    "Съешь ещё этих мягких французских булок, да выпей чаю. Ελληνικά γράμματα και λέξεις.",
    "今日は天気がいいですね。東京に行きましょう。自然语言处理是人工智能的一个重要方向。한국어 문장입니다.",
    "هذا نص عربي قصير للتجربة. שלום עולם. हिन्दी में एक वाक्य है। ภาษาไทยไม่มีช่องว่าง",
    "Smile 😀 and wave 👋🏽, a family 👨‍👩‍👧‍👦 and a flag 🇫🇷. x² + y² = z², ½ of 10 000 €.",
] * 12

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
O200K_PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                 r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
                 r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+")

STRINGS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t x", " \n ", "  \n\n  \n", "a", " a", "a ", "  a  ",
    "Hello world", " Hello  world ", "Hello\nworld\n", "Hello\r\n\r\nworld\r", "tab\tseparated\tvalues\n",
    "def f(x):\n    return x ** 2\n\n\nclass A:\n\tpass\n", "if (a != b) { c[i] += 1; } // done",
    "It's we've I'M THEY'LL he'd can't 'tis '' 'S", "don’t “quoted” text… — dash", "'\u017F and 'ſt \u212Aelvin",
    "0 12 123 1234 12345678901234567890", "3.14159e-10 1,000,000 0xFF ½ ² Ⅻ ٣٤٥ 一二三",
    "caf\u00e9", "cafe\u0301", "A\u030a \u00c5 \u212b", "\u1100\u1161\u11a8 \uac01", "e\u0301\u0302\u0323 stacked",
    "ﬁ ligature, ﬀ, Ĳ, ǅ", "😀", "👨‍👩‍👧‍👦 👋🏽 🇫🇷🇩🇪 ☺️", "a😀b 😀😀", "今日は。東京 12時", "自然语言处理", "한국어 문장",
    "هذا نص عربي", "ِبِسْمِ ٱللَّهِ", "שלום, עולם!", "हिन्दी में", "ภาษาไทย", "Съешь ещё этих", "Ελληνικά",
    "𝒳 mathematical 𝟙𝟚𝟛", "\u00a0nbsp\u00a0\u00a0x\u2003em\u3000ideographic", "\u180ex\u180e \u200b zero\u200dwidth\ufeff",
    "line\u2028sep\u2029par\u0085nel\x0bvt\x0cff", "nul\x00inside\x00", "\x00", "\x01\x02\x1b[31m\x7f\u0080\u009f",
    "\ufffd\ufffd replacement", "\uffff\U0010ffff noncharacters", "\ue000 private \U000f0000",
    "<|begin_of_text|>Hello<|eot_id|>", "x<|im_end|>\n<|im_start|>user\nhi<|im_end|>", "<|endoftext|><|endoftext|> a",
    "<|im_end", "<|<|im_end|>|>", "<s>a</s>", "<tool_call>{}</tool_call>", "a <mask> b  <mask>\n<mask>c",
    "zebra zebras a.zebra zebra\u0301 zebra_ _zebra", "x <sep>   y <sep>\n\n<sep>", "a  b   c    d",
    "http://example.org/a?b=c&d=%20#e", "snake_case camelCase SCREAMING_CASE kebab-case", "!!!???...;;;---___===",
    "word " * 30, "supercalifragilisticexpialidocious" * 12, "a" * 500, " " * 100, "\n" * 50 + "x", "ab" * 300, "12" * 200,
    "- item\n  - sub item\n\n| a | b |\n|---|---|\n", "‘single’ «guillemets» ¿qué? ¡sí!", "\u2581already\u2581there",
]


def text_lines():
    documentation = "".join(topics.topics[name] for name in sorted(topics.topics))
    return documentation.splitlines(keepends=True) + MULTILINGUAL


def train(pre_tokenizer, normalizer, special_tokens, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special_tokens, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(text_lines(), trainer)
    return tokenizer


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama3_kind():
    tokenizer = train(split_then_bytes(LLAMA3_PATTERN), None, [], 1800)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                  "<|eot_id|>"])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[
            ("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])])
    document = json.loads(tokenizer.to_str())
    # Words that no merge reaches are only found because merges are ignored for words of the vocabulary.
    document["model"]["ignore_merges"] = True
    document["model"]["merges"] = document["model"]["merges"][:-60]
    return document


def qwen2_kind():
    tokenizer = train(split_then_bytes(QWEN2_PATTERN), normalizers.NFC(), [], 1800)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False),
                          AddedToken("</tool_call>", special=False, normalized=False),
                          AddedToken("A\u030a", special=False, normalized=True)])
    document = json.loads(tokenizer.to_str())
    # The older spelling of merges.
    document["model"]["merges"] = [" ".join(merge) for merge in document["model"]["merges"]]
    return document


def olmo_kind():
    tokenizer = train(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), normalizers.NFC(),
                      ["<|endoftext|>", "<|padding|>"], 1800)
    tokenizer.add_tokens([AddedToken(" " * n, special=False, normalized=True) for n in range(12, 1, -1)])
    tokenizer.add_tokens([AddedToken("zebra", single_word=True, special=False, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<sep>", rstrip=True)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return json.loads(tokenizer.to_str())


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def pre_tokenizer_variants():
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    gpt2 = dict(bytes_only, use_regex=True)
    steps = {
        "prefix_space": [dict(gpt2, add_prefix_space=True)],
        "o200k": [split({"Regex": O200K_PATTERN}, "Isolated"), bytes_only],
        "digits": [{"type": "Digits", "individual_digits": True}, gpt2],
        "digit_runs": [{"type": "Digits", "individual_digits": False}, gpt2],
        "removed": [split({"Regex": r"\s+"}, "Removed"), gpt2],
        "removed_inverted": [split({"Regex": LLAMA3_PATTERN}, "Removed", True), bytes_only],
        "string_previous": [split({"String": "."}, "MergedWithPrevious"), bytes_only],
        "string_next": [split({"String": " "}, "MergedWithNext"), bytes_only],
        "contiguous": [split({"Regex": r"\w"}, "Contiguous"), bytes_only],
        "previous_inverted": [split({"Regex": r"\p{P}"}, "MergedWithPrevious", True), bytes_only],
        "cjk_then_rest": [split({"Regex": r"\p{N}{1,3}"}, "Isolated"),
                          split({"Regex": "[一-龥\u3040-ゟ゠-ヿ]+"}, "Isolated"), gpt2],
        "lookahead_words": [split({"Regex": r"[A-Z][a-z]*(?=[A-Z ])|^\S+|\S+$"}, "Isolated"), bytes_only],
    }
    return {name: {"type": "Sequence", "pretokenizers": items} for name, items in steps.items()}


def cases(document, strings):
    tokenizer = Tokenizer.from_str(json.dumps(document))
    added = {token["id"] for token in document["added_tokens"]}
    result = []
    for text in strings:
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        special = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": plain, "ids_with_special_tokens": special}
        # The library decodes an added token outside ASCII as if its letters spelled bytes, and so loses it.
        if all(tokenizer.id_to_token(token).isascii() for token in special if token in added):
            case["decoded"] = tokenizer.decode(special, skip_special_tokens=True)
        result.append(case)
    return result


def save(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def make_byte_level():
    for name, document in (("llama3", llama3_kind()), ("qwen2", qwen2_kind()), ("olmo", olmo_kind())):
        (FOLDER / name).mkdir(exist_ok=True)
        save(FOLDER / name / "tokenizer.json", document)
        save(FOLDER / f"{name}_ids.json", cases(document, STRINGS))
        if name == "olmo":
            variants = []
            for variant, pre_tokenizer in pre_tokenizer_variants().items():
                changed = copy.deepcopy(document)
                changed["pre_tokenizer"] = pre_tokenizer
                kept = [{"text": case["text"], "ids": case["ids"]} for case in cases(changed, STRINGS)
                        if len(case["text"]) < 100]
                variants.append({"name": variant, "pre_tokenizer": pre_tokenizer, "cases": kept})
            save(FOLDER / "pre_tokenizer_ids.json", variants)


def make_sentencepiece():
    lines = [line.rstrip("\n") for line in text_lines() if line.strip() and "\t" not in line]
    common = dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                  character_coverage=0.98, split_digits=True, allow_whitespace_only_pieces=True, minloglevel=2,
                  control_symbols=["<|im_start|>", "<|im_end|>"])
    for name, options in (("unigram", dict(model_type="unigram", vocab_size=900, add_dummy_prefix=True)),
                          ("bpe", dict(model_type="bpe", vocab_size=900, add_dummy_prefix=False,
                                       user_defined_symbols=["<tool_call>", "\n"]))):
        path = FOLDER / f"sentencepiece_{name}.model"
        with open(path, "wb") as file:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, **common, **options)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        result = []
        for text in STRINGS:
            ids = processor.encode(text)
            result.append({"text": text, "ids": ids, "decoded": processor.decode(ids)})
        save(FOLDER / f"sentencepiece_{name}_ids.json", result)


if __name__ == "__main__":
    make_byte_level()
    make_sentencepiece()

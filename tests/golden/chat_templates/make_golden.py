#!/usr/bin/env python3
"""Writes expected.json: the ids that transformers gives for dialogues under the ChatML and Llama 3 templates.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install transformers==5.24.0 jinja2
    /tmp/golden/bin/python tests/golden/chat_templates/make_golden.py

The templates are the public ones, in Jinja: ChatML as in its description, Llama 3 Instruct without its date and
tool parts. The tokenizers are the small ones of tests/golden/tokenizers, whose chat tokens are those of Qwen 2 and
Llama 3. Contents here begin and end with a letter or a mark: white space at the border to the template would be
one piece for transformers and is two for us.
"""
import json
import pathlib

import transformers
from transformers import PreTrainedTokenizerFast

FOLDER = pathlib.Path(__file__).parent

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
          "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA3 = ("{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
          "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")

DIALOGUES = [
    [("user", "What is 2 + 2?"), ("assistant", "It is 4.")],
    [("system", "You are a careful assistant."), ("user", "Name three colours, one a line."),
     ("assistant", "Red\nGreen\nBlue"), ("user", "Größe? 今日は 😀"), ("assistant", "def f(x):\n    return x * 2")],
]


def render(tokenizer, template, dialogue):
    messages = [{"role": role, "content": content} for role, content in dialogue]

    def ids(part, prompt):
        text = tokenizer.apply_chat_template(part, chat_template=template, tokenize=False, add_generation_prompt=prompt)
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    return {"messages": messages, "ids": ids(messages, False), "prompt": ids(messages[:-1], True)}


def main():
    result = {"transformers": transformers.__version__}
    for name, tokenizer, template in [("chatml", "qwen2", CHATML), ("llama3", "llama3", LLAMA3)]:
        path = FOLDER.parent / "tokenizers" / tokenizer / "tokenizer.json"
        loaded = PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<|begin_of_text|>" if name == "llama3" else None)
        result[name] = [render(loaded, template, dialogue) for dialogue in DIALOGUES]
    (FOLDER / "expected.json").write_text(json.dumps(result, ensure_ascii=False) + "\n", encoding="utf-8")


main()

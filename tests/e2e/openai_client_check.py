#!/usr/bin/env python3
"""Talks to smoe-serve with the `openai` package from PyPI.

Usage: openai_client_check.py BIN_FOLDER SOURCE_FOLDER

Exit status 77 (skipped) where the package is not installed: pip install openai.
"""

import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile

try:
    import openai
except ImportError:
    print("skipped: the Python package `openai` is not installed (pip install openai)")
    sys.exit(77)

KEY = "a-key-for-this-test"


def start(bin_folder, source_folder, *options):
    """A server on a free port, and its address."""
    command = [f"{bin_folder}/smoe-serve", "--checkpoint", f"{source_folder}/tests/golden/eval/tiny_llama",
               "--name", "llama", "--port", "0", "--api-key-env", "CHECK_KEY", *options]
    environment = dict(os.environ, CHECK_KEY=KEY)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    line = process.stdout.readline()
    match = re.match(r"listening on (http://\S+)", line)
    assert match, f"no address in {line!r}"
    return process, match.group(1) + "/v1"


def expect(error_type, call, *words):
    try:
        call()
    except error_type as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return
    raise AssertionError(f"no {error_type.__name__}")


def check_completions(client):
    asked = dict(model="llama", prompt="The capital of France is", max_tokens=24, temperature=0)
    whole = client.completions.create(**asked, logprobs=0)
    assert whole.usage.completion_tokens <= 24 and whole.usage.prompt_tokens > 0
    assert len(whole.choices[0].logprobs.token_logprobs) == whole.usage.completion_tokens
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].text, (text, whole.choices[0].text)
    assert chunks[-1].usage == whole.usage
    sampled = [client.completions.create(model="llama", prompt="Once", max_tokens=16, seed=seed, temperature=1.5,
                                         extra_body={"top_k": 50, "min_p": 0.0}).choices[0].text
               for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2], sampled
    return whole.choices[0].text


def check_chat(client):
    asked = dict(model="llama", messages=[{"role": "system", "content": "Be brief."},
                                          {"role": "user", "content": "Hello"}],
                 max_completion_tokens=16, temperature=0)
    whole = client.chat.completions.create(**asked, logprobs=True)
    assert whole.choices[0].message.role == "assistant"
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def check_errors(client, url):
    complete = client.completions.create
    expect(openai.NotFoundError, lambda: complete(model="none", prompt="x"), "none", "llama")
    expect(openai.BadRequestError, lambda: complete(model="llama", prompt="x", n=2), "n:")
    expect(openai.BadRequestError, lambda: complete(model="llama", prompt="x", temperature=-1), "temperature")
    expect(openai.BadRequestError, lambda: complete(model="llama", prompt="x", max_tokens=10000), "max_tokens")
    stranger = openai.OpenAI(base_url=url, api_key="wrong", max_retries=0)
    expect(openai.AuthenticationError, stranger.models.list, "API key")


def check_no_template(client):
    expect(openai.BadRequestError,
           lambda: client.chat.completions.create(model="llama", messages=[{"role": "user", "content": "x"}]),
           "no chat template")


def check_concurrency(client, expected):
    def ask(_):
        return client.completions.create(model="llama", prompt="The capital of France is", max_tokens=24,
                                         temperature=0).choices[0].text
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(24))) == {expected}


def main():
    bin_folder, source_folder = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "plain_words.yaml")
        with open(template, "w", encoding="utf-8") as file:
            file.write("name: plain words\nsystem: {prefix: '', suffix: \"\\n\"}\nuser: {prefix: 'Q: ', suffix: \"\\n\"}\n"
                       "assistant: {prefix: 'A:', end: \"\\n\", suffix: ''}\n")
        process, url = start(bin_folder, source_folder, "--template", template)
        client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
        try:
            assert [model.id for model in client.models.list()] == ["llama"]
            expected = check_completions(client)
            check_chat(client)
            check_errors(client, url)
            check_concurrency(client, expected)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    process, url = start(bin_folder, source_folder)
    try:
        check_no_template(openai.OpenAI(base_url=url, api_key=KEY, max_retries=0))
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    print(f"openai {openai.__version__}: completions, chats, streams, errors and concurrent requests are as expected")


if __name__ == "__main__":
    main()

"""The official SDKs of OpenAI, Anthropic and Ollama against `longshore ai gateway` and the fake provider.

Called by `run` with the directory of the binaries. Every check is a function; the first failure ends the run.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import anthropic
import ollama
import openai

BIN = Path(sys.argv[1]).resolve()
TOKEN = "sdk-check-token-0123456789"
WORDS = "once upon a time"


class Port:
    """A store with profiles, the fake provider, and a gateway in front of it."""

    def __init__(self, home):
        self.home = home
        self.fake_process = self.start(BIN / "examples" / "fake_ai")
        self.fake = self.fake_process.stdout.readline().strip()
        self.longshore("key", "init")
        self.longshore("key", "add", "k", stdin="sk-fake-key")
        self.longshore("profile", "add", "parrot", "--provider", "echo", "--model", "parrot")
        for wire in ("openai", "anthropic", "ollama"):
            endpoint = ["--endpoint", self.fake]
            key = [] if wire == "ollama" else ["--key", "k"]
            self.longshore("profile", "add", wire, "--provider", wire, "--model", "m", *endpoint, *key)
        token = Path(home) / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        args = ["ai", "gateway", "--listen", "127.0.0.1:0", "--token-file", str(token)]
        self.gateway_process = self.start(BIN / "longshore", *args, "--json")
        told = json.loads(self.gateway_process.stdout.readline())
        self.gateway = "http://" + told["listen"]

    def start(self, *args):
        pipe = subprocess.PIPE
        return subprocess.Popen(args, cwd=self.home, env=plain(), stdin=pipe, stdout=pipe, text=True)

    def longshore(self, *args, stdin=""):
        done = subprocess.run(
            [BIN / "longshore", *args], cwd=self.home, env=plain(), input=stdin, text=True,
            capture_output=True, timeout=30,
        )
        assert done.returncode == 0, f"{args}: {done.stderr}"
        return done.stdout

    def close(self):
        self.gateway_process.terminate()
        assert self.gateway_process.wait(10) == 0, "the gateway ends in good order"
        self.fake_process.stdin.close()
        self.fake_process.wait(10)


def plain():
    """The environment without settings of ours or of the SDKs."""
    ours = re.compile("LONGSHORE_|OPENAI_|ANTHROPIC_|OLLAMA_")
    return {name: value for name, value in os.environ.items() if not ours.match(name)}


def user(text=WORDS):
    return [{"role": "user", "content": text}]


def openai_client(port, key=TOKEN):
    return openai.OpenAI(base_url=port.gateway + "/v1", api_key=key, max_retries=0, timeout=20)


def openai_answers(port):
    client = openai_client(port)
    for model in ("parrot", "openai", "anthropic", "ollama"):
        done = client.chat.completions.create(model=model, messages=user())
        choice = done.choices[0]
        assert WORDS in choice.message.content, (model, choice)
        assert choice.finish_reason == "stop", (model, choice)
        assert done.usage.completion_tokens > 0, (model, done.usage)


def openai_streams(port):
    client = openai_client(port)
    for model in ("parrot", "openai", "anthropic", "ollama"):
        text, usage = "", None
        options = {"include_usage": True}
        chunks = client.chat.completions.create(
            model=model, messages=user(), stream=True, stream_options=options
        )
        for chunk in chunks:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
        assert WORDS in text, (model, text)
        assert usage and usage.completion_tokens > 0, (model, usage)
        # The helper demands more of every chunk than the plain stream.
        with client.chat.completions.stream(model=model, messages=user()) as stream:
            final = stream.get_final_completion()
        assert WORDS in final.choices[0].message.content, (model, final)


def openai_lists_models(port):
    ids = {model.id for model in openai_client(port).models.list()}
    assert {"parrot", "openai", "anthropic", "ollama"} <= ids, ids


def openai_understands_errors(port):
    fails(openai.AuthenticationError, lambda: openai_client(port, "wrong").models.list())
    ask = openai_client(port).chat.completions.create
    fails(openai.NotFoundError, lambda: ask(model="none", messages=user()))
    fails(openai.BadRequestError, lambda: ask(model="parrot", messages=[]))


def anthropic_client(port, **how):
    how = how or {"api_key": TOKEN}
    return anthropic.Anthropic(base_url=port.gateway, max_retries=0, timeout=20, **how)


def anthropic_answers(port):
    for client in (anthropic_client(port), anthropic_client(port, auth_token=TOKEN)):
        for model in ("parrot", "openai", "anthropic", "ollama"):
            done = client.messages.create(model=model, max_tokens=100, messages=user())
            assert WORDS in done.content[0].text, (model, done)
            assert done.stop_reason == "end_turn", (model, done)
            assert done.usage.output_tokens > 0, (model, done)


def anthropic_streams(port):
    client = anthropic_client(port)
    for model in ("parrot", "openai", "anthropic", "ollama"):
        with client.messages.stream(model=model, max_tokens=100, messages=user()) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert WORDS in text and final.content[0].text == text, (model, text, final)
        assert final.stop_reason == "end_turn" and final.usage.output_tokens > 0, (model, final)


def anthropic_understands_errors(port):
    ask = anthropic_client(port).messages.create
    fails(anthropic.NotFoundError, lambda: ask(model="none", max_tokens=1, messages=user()))
    wrong = anthropic_client(port, api_key="wrong").messages.create
    fails(
        anthropic.AuthenticationError, lambda: wrong(model="parrot", max_tokens=1, messages=user())
    )


def ollama_reads_what_the_fake_says(port):
    client = ollama.Client(host=port.fake, timeout=20)
    done = client.chat(model="m", messages=user())
    assert WORDS in done.message.content and done.done, done
    assert done.eval_count > 0 and done.prompt_eval_count > 0, done
    parts = list(client.chat(model="m", messages=user(), stream=True))
    assert WORDS in "".join(part.message.content for part in parts), parts
    assert parts[-1].done, parts[-1]


def everything_is_in_the_books(port):
    total = json.loads(port.longshore("usage", "--json"))["total"]
    # Answers: 4 plain and 8 streamed by one SDK, 8 and 4 by the other. Refusals may be there as well.
    assert total["calls"] - total["errors"] == 24, total
    assert total["maybe_billed"] == 0, total


def fails(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


CHECKS = [
    openai_answers,
    openai_streams,
    openai_lists_models,
    openai_understands_errors,
    anthropic_answers,
    anthropic_streams,
    anthropic_understands_errors,
    ollama_reads_what_the_fake_says,
]


def main():
    for name in [name for name in os.environ if re.match("OPENAI_|ANTHROPIC_|OLLAMA_|.*_PROXY", name, re.I)]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as home:
        port = Port(home)
        try:
            for check in CHECKS:
                check(port)
                print("good:", check.__name__.replace("_", " "))
        finally:
            port.close()
        everything_is_in_the_books(port)
        print("good: everything is in the books")


main()

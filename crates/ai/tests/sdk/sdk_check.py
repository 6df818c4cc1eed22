"""The official SDKs of OpenAI and Anthropic against a running gateway.

    sdk_check.py BASE_URL TOKEN

The gateway should have the profiles that the example `gateway` has; what needs one that is not
there is skipped, and said to be. Prints one line per check, and ends with `N passed, N failed`.
"""

import asyncio
import json
import sys
import traceback

import anthropic
import openai
from pydantic import BaseModel

BASE, TOKEN = sys.argv[1].rstrip("/"), sys.argv[2]
SAID = [{"role": "user", "content": "How are you?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OPENAI_TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
ANTHROPIC_TOOL = {"name": "weather", "input_schema": PARAMETERS}
CHECKS = []


class Person(BaseModel):
    """What the profile `json` answers."""

    name: str
    age: int


def check(profile):
    """A check that needs a profile."""

    def keep(function):
        CHECKS.append((profile, function))
        return function

    return keep


def o(**more):
    return openai.OpenAI(**{"base_url": BASE + "/v1", "api_key": TOKEN, "max_retries": 0, **more})


def a(**more):
    return anthropic.Anthropic(**{"base_url": BASE, "api_key": TOKEN, "max_retries": 0, **more})


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def ask(client, model, **more):
    return client.chat.completions.create(model=model, messages=SAID, **more)


def tell(client, model, **more):
    return client.messages.create(**{"model": model, "max_tokens": 50, "messages": SAID, **more})


@check("plain")
def openai_whole():
    answer = ask(o(), "plain")
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("How are you?", "stop")
    assert answer.object == "chat.completion" and answer.model and answer.created > 1e9
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0


@check("plain")
def openai_headers():
    raw = o().chat.completions.with_raw_response.create(
        model="plain", messages=SAID, extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.request_id == "mine-1" and raw.parse().id == "chatcmpl-mine-1"


@check("plain")
def openai_stream():
    chunks = list(ask(o(), "plain", stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "How are you?" and len(chunks) > 3
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)


@check("plain")
def openai_stream_with_usage():
    chunks = list(ask(o(), "plain", stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens > 0


@check("plain")
def openai_stream_helper():
    with o().chat.completions.stream(model="plain", messages=SAID) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert final.choices[0].message.content == "How are you?"


@check("plain")
def openai_async_stream():
    async def run():
        client = openai.AsyncOpenAI(base_url=BASE + "/v1", api_key=TOKEN, max_retries=0)
        stream = await client.chat.completions.create(model="plain", messages=SAID, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(run()) == "How are you?"


@check("tools")
def openai_tools():
    first = ask(o(), "tools", tools=[OPENAI_TOOL]).choices[0]
    assert first.finish_reason == "tool_calls"
    call = first.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Oslo"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    second = o().chat.completions.create(
        model="tools", tools=[OPENAI_TOOL], messages=[*SAID, first.message, result]
    )
    assert second.choices[0].message.content == "It says rain."


@check("tools")
def openai_tools_streamed():
    with o().chat.completions.stream(model="tools", messages=SAID, tools=[OPENAI_TOOL]) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [json.loads(event.arguments) for event in done] == [{"city": "Oslo"}]
    assert final.finish_reason == "tool_calls" and final.message.tool_calls[0].id


@check("json")
def openai_parse():
    answer = o().chat.completions.parse(model="json", messages=SAID, response_format=Person)
    assert answer.choices[0].message.parsed == Person(name="Ann", age=7)


@check("cut")
def openai_parse_of_what_was_cut():
    parse = o().chat.completions.parse
    fails(
        openai.LengthFinishReasonError,
        lambda: parse(model="cut", messages=SAID, response_format=Person),
    )


@check("plain")
def openai_models():
    models = o().models.list()
    assert "plain" in [model.id for model in models]
    assert o().models.retrieve("plain").id == "plain"
    fails(openai.NotFoundError, lambda: o().models.retrieve("nobody"))


@check("plain")
def openai_wrong_key():
    error = fails(openai.AuthenticationError, lambda: ask(o(api_key="wrong"), "plain"))
    assert error.code == "invalid_api_key" and error.request_id


@check("plain")
def openai_unknown_model():
    error = fails(openai.NotFoundError, lambda: ask(o(), "nobody"))
    assert (error.code, error.param) == ("model_not_found", "model")


@check("plain")
def openai_bad_request():
    error = fails(openai.BadRequestError, lambda: ask(o(), "plain", n=2))
    assert "`n`" in error.message


@check("error")
def openai_rate_limit():
    error = fails(openai.RateLimitError, lambda: ask(o(), "error/RATE_LIMITED-soon"))
    assert error.response.headers["retry-after"] == "2"


@check("error")
def openai_does_not_try_again_where_it_means_money():
    for code, kind in [("TIMEOUT", openai.InternalServerError), ("OVER_BUDGET", openai.RateLimitError)]:
        error = fails(kind, lambda: ask(o(max_retries=2), f"error/{code}"))
        assert error.request.headers["x-stainless-retry-count"] == "0", code


@check("error")
def openai_tries_again_where_that_helps():
    error = fails(openai.InternalServerError, lambda: ask(o(max_retries=1), "error/PROVIDER_ERROR-soon"))
    assert error.request.headers["x-stainless-retry-count"] == "1"


@check("broken")
def openai_error_in_the_middle():
    error = fails(openai.APIError, lambda: list(ask(o(), "broken", stream=True)))
    assert "hung up" in error.message


@check("stuck")
def openai_leaves_in_the_middle():
    stream = ask(o(), "stuck", stream=True)
    assert next(iter(stream)).choices
    stream.close()


@check("plain")
def anthropic_whole():
    answer = tell(a(), "plain")
    assert (answer.content[0].text, answer.stop_reason) == ("How are you?", "end_turn")
    assert answer.type == "message" and answer.usage.output_tokens > 0
    assert answer._request_id


@check("plain")
def anthropic_both_keys_and_versions():
    for key in [{"x-api-key": TOKEN}, {"authorization": f"Bearer {TOKEN}"}]:
        for version in ["2023-06-01", "2026-10-21"]:
            client = a(default_headers={**key, "anthropic-version": version})
            assert tell(client, "plain").content[0].text == "How are you?"


@check("plain")
def anthropic_events():
    kinds = [event.type for event in tell(a(), "plain", stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds


@check("plain")
def anthropic_stream_helper():
    with a().messages.stream(model="plain", max_tokens=50, messages=SAID) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == "How are you?"
    assert final.stop_reason == "end_turn" and final.usage.output_tokens > 0


@check("tools")
def anthropic_tools():
    first = tell(a(), "tools", tools=[ANTHROPIC_TOOL])
    use = first.content[-1]
    assert (first.stop_reason, use.name, use.input) == ("tool_use", "weather", {"city": "Oslo"})
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "rain"}
    turns = [*SAID, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = tell(a(), "tools", messages=turns, tools=[ANTHROPIC_TOOL])
    assert second.content[0].text == "It says rain."


@check("tools")
def anthropic_tools_streamed():
    with a().messages.stream(
        model="tools", max_tokens=50, messages=SAID, tools=[ANTHROPIC_TOOL]
    ) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == {"city": "Oslo"} and final.stop_reason == "tool_use"


@check("json")
def anthropic_parse():
    answer = a().messages.parse(model="json", max_tokens=50, messages=SAID, output_format=Person)
    assert answer.parsed_output == Person(name="Ann", age=7)


@check("plain")
def anthropic_counts():
    count = a().messages.count_tokens(model="plain", messages=SAID, system="Be kind.")
    assert count.input_tokens > 0


@check("plain")
def anthropic_models():
    assert "plain" in [model.id for model in a().models.list()]
    assert a().models.retrieve("plain").type == "model"


@check("plain")
def anthropic_refusals():
    fails(anthropic.AuthenticationError, lambda: tell(a(api_key="wrong"), "plain"))
    error = fails(anthropic.NotFoundError, lambda: tell(a(), "nobody"))
    assert error.body["error"]["type"] == "not_found_error" and error.request_id
    fails(anthropic.BadRequestError, lambda: tell(a(), "plain", extra_body={"top_k": 3}))


@check("error")
def anthropic_rate_limit():
    error = fails(anthropic.RateLimitError, lambda: tell(a(), "error/RATE_LIMITED-soon"))
    assert error.response.headers["retry-after"] == "2"


@check("broken")
def anthropic_error_in_the_middle():
    error = fails(anthropic.APIStatusError, lambda: list(tell(a(), "broken", stream=True)))
    assert "hung up" in str(error)


def main():
    there = {model.id for model in o().models.list()}
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for profile, function in CHECKS:
        outcome = "passed"
        if profile not in there:
            outcome = "skipped"
        else:
            try:
                function()
            except Exception:
                traceback.print_exc()
                outcome = "failed"
        count[outcome] += 1
        print(f"{outcome}: {function.__name__}")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())

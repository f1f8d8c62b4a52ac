"""Requests that schemathesis makes of /openapi.json: whatever comes, the answer is one that the document promises."""
import json
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("TESSERA_SCHEMA_EXAMPLES", "25"))  # of each operation
KEY = {"Authorization": "Bearer a-secret-of-tests"}


# A request that the document allows may still be refused: fields can contradict each other, and a token id may be none of
# the model's. A body of far too many items may be too large before anybody counts them.
CHECKS = {"positive_data_acceptance": {"enabled": False}, "negative_data_rejection": {"expected-statuses": [400, 404, 413, 415, 422]}}
OPTIONS = {"max_examples": EXAMPLES, "deadline": None, "derandomize": True, "phases": [Phase.explicit, Phase.generate], "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def api(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=schemathesis.Config.from_dict({"checks": CHECKS}))


@pytest.fixture(scope="module")
def chat_server(start, chat_model):
    return start("schema-chat", "--model", str(chat_model), "--api-key", "a-secret-of-tests")


@pytest.fixture(scope="module")
def guarded_api(chat_server):
    """Of a model that takes messages, behind a key: each operation that wants one is asked without it too."""
    return schemathesis.openapi.from_url(f"{chat_server.url}/openapi.json", config=schemathesis.Config.from_dict({"checks": CHECKS, "headers": KEY}))


@schemathesis.hook
def before_call(context, case, kwargs):
    """Requests may ask for a million tokens; the tests have no time for them."""
    body = case.body
    if isinstance(body, dict):
        for name, most in (("max_tokens", 4), ("max_completion_tokens", 4), ("n", 3)):
            if isinstance(body.get(name), int) and not isinstance(body[name], bool) and most < body[name] <= 1000000:
                body[name] = most
        if "messages" in body and body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
            body["max_tokens"] = 2


@schemathesis.pytest.from_fixture("api").parametrize()
@settings(**OPTIONS)
def test_answers_are_as_the_document_says(case, server):
    case.call_and_validate(timeout=60)
    assert server.is_alive()


statuses: list[int] = []  # of chats


@schemathesis.pytest.from_fixture("guarded_api").include(path_regex="^/v1/(chat|models)").parametrize()
@settings(**OPTIONS)
def test_answers_of_a_model_that_takes_messages(case, chat_server):
    answer = case.call_and_validate(timeout=60)
    if case.operation.path == "/v1/chat/completions":
        statuses.append(answer.status_code)
    assert chat_server.is_alive()


def test_some_of_the_chats_were_answered():
    """Not all were refused for what they say."""
    assert statuses.count(200) >= EXAMPLES // 5, statuses


def test_the_document_says_which_operations_want_a_key(server, chat_server):
    assert b'"security"' not in server.get("/openapi.json"), "this server has none"
    paths = json.loads(chat_server.get("/openapi.json"))["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            status, _, _ = chat_server.request(method.upper(), path, {} if method == "post" else None)
            assert (status == 401) == ("security" in operation), path

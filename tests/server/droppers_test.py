"""Clients that leave at any moment: nothing of theirs stays, and the next answer is right."""
import concurrent.futures
import random
import time

from served import Server, post, reset

AT_ONCE = 24


def drop(server: Server, seed: int) -> int:
    """Asks for a long answer and leaves somewhere on the way. Returns how many bytes came."""
    rng = random.Random(seed)
    asked = {"prompt": "Once upon a time " * rng.randrange(1, 40), "max_tokens": rng.choice([5, 300, 100000]), "stream": rng.random() < 0.7, "n": rng.choice([1, 1, 2, 4]),
             "ignore_eos": True, "seed": seed}
    if asked["max_tokens"] == 100000 or rng.random() < 0.4:
        asked |= {"attention_sinks": 4, "window": 60}
    data = post("/v1/completions", asked, "Connection: close")
    connection = server.connect(timeout=60)
    came = 0
    try:
        is_whole = rng.random() > 0.2
        connection.sendall(data if is_whole else data[: rng.randrange(len(data))])
        wanted = rng.choice([0, 0, 1, 500, 3000])
        if asked["stream"] and is_whole:
            while came < wanted:
                part = connection.recv(4096)
                if not part:
                    break
                came += len(part)
        else:
            time.sleep(rng.random() * 0.05)
    except OSError:
        pass  # it had refused the half of a request
    reset(connection) if rng.random() < 0.5 else connection.close()
    return came


def test_nothing_is_left_of_clients_that_leave(server, request):
    count = request.config.getoption("--droppers")
    expected = server.greedy()
    before, held = server.wait_until_idle(), server.descriptors()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        came = list(pool.map(lambda seed: drop(server, seed), range(count)))
    after = server.wait_until_idle(120)
    assert after["tessera_kv_pages_used"] == 0
    assert after["tessera_answers_cancelled_total"] > before["tessera_answers_cancelled_total"]
    assert sum(n > 0 for n in came) > count / 10, "too few had got anything to test much"
    assert server.descriptors() <= held + 2
    assert server.greedy() == expected

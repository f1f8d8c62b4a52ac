"""Writes a trace of requests for bench_engine: when each arrives, and how long its prompt and answer are.

    make_trace.py > arrivals-64.jsonl
    make_trace.py --rate 0 > together-64.jsonl

The same options give the same trace. Every fourth request begins with a prefix that others share, as system prompts do.
"""
import argparse
import json
import random


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rate", type=float, default=8, help="requests per second; 0: all at once")
    parser.add_argument("--prompt", type=int, nargs=2, default=(32, 512), help="least and most tokens")
    parser.add_argument("--answer", type=int, nargs=2, default=(32, 256), help="least and most tokens")
    options = parser.parse_args()
    source = random.Random(options.seed)
    at = 0.0
    for i in range(options.requests):
        prompt = source.randint(*options.prompt)
        prefix = min(128, prompt // 2) if i % 4 == 0 else 0
        print(json.dumps({"at": round(at, 4), "prefix": prefix, "prompt": prompt, "answer": source.randint(*options.answer)}))
        if options.rate > 0:
            at += source.expovariate(options.rate)


if __name__ == "__main__":
    main()

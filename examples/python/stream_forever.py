"""Text without an end, in constant memory: attention sinks and a rolling window.

python examples/python/stream_forever.py [--tokens N] [--model DIR]
"""

import argparse
import time

import tessera


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="folder of a checkpoint; without it, the bundled story model")
    parser.add_argument("--tokens", type=int, default=-1, help="stop after this many; without it, Ctrl-C ends it")
    parser.add_argument("--sinks", type=int, default=4)
    parser.add_argument("--window", type=int, default=60)
    options = parser.parse_args()

    llm = tessera.LLM(options.model, streaming=(options.sinks, options.window), max_sequences=1, context=256)
    params = tessera.SamplingParams(max_tokens=options.tokens, ignore_eos=True, seed=1)
    start, count = time.monotonic(), 0
    try:
        for piece in llm.stream("Once upon a time", params):
            print(piece.text, end="", flush=True)
            count += piece.token_id is not None
    except KeyboardInterrupt:
        pass
    seconds = time.monotonic() - start
    print(f"\n{count} tokens, {count / seconds:.0f} a second; {llm.stats().pages_peak} pages of keys at the most")


if __name__ == "__main__":
    main()

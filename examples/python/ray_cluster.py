"""Replicas of a model behind one OpenAI endpoint, on Ray: on this machine, or on the cluster that it belongs to.

python examples/python/ray_cluster.py [--model DIR] [--replicas N] [--port P]

On several machines: `ray start --head` on one, `ray start --address=HEAD:6379` on the others, then this on any of
them with --address auto (docs/CLUSTER.md).
"""

import argparse
import signal

import ray
from ray import serve

import tessera
import tessera.ray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(tessera.default_model()), help="folder of a checkpoint, on each machine")
    parser.add_argument("--replicas", type=int, default=2, help="the most replicas; there is always at least one")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--address", help="of a running cluster, or auto; without it, a new one on this machine")
    options = parser.parse_args()

    ray.init(address=options.address, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": options.port})
    serve.run(tessera.ray.deployment(options.model, max_replicas=options.replicas), route_prefix="/")
    url = f"http://127.0.0.1:{options.port}"
    tessera.ray.wait_until_ready(url)
    print(f"OpenAI endpoint: {url}/v1 (Ctrl-C ends it)", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    serve.shutdown()


if __name__ == "__main__":
    main()

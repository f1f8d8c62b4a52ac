"""Writes the templates of tests/model/chat/features.py as seeds: chat_seeds.py FOLDER"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "model" / "chat"))
from features import CONVERSATIONS, GROUPS  # behind the path


def main() -> None:
    folder = Path(sys.argv[1])
    for name, templates in GROUPS.items():
        for i, source in enumerate(templates):
            given = CONVERSATIONS[i % len(CONVERSATIONS)]
            chat = {"messages": given["messages"]} | given.get("variables", {})
            seed = source.encode() + b"\0" + json.dumps(chat, ensure_ascii=False).encode()
            (folder / f"{name.replace(' ', '_')}_{i}").write_bytes(seed)


if __name__ == "__main__":
    main()

"""A judge as a process of its own, which gives longer answers more: python judge_process.py PORT"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from rule_based_judge import serve


def judge(request: dict[str, Any]) -> str:
    """Scores by the length of what the assistant said, against 20 characters."""
    document = json.loads(request["messages"][1]["content"])
    entries = [
        {"trajectory_id": t["id"], "explanation": "its length", "score": min(1.0, length(t) / 20)}
        for t in document["trajectories"]
    ]
    return json.dumps({"scores": entries})


def length(trajectory: dict[str, Any]) -> int:
    """Of the assistant's words."""
    return sum(len(m["content"]) for m in trajectory["messages"] if m["role"] == "assistant")


if __name__ == "__main__":
    serve(judge, int(sys.argv[1])).serve_forever()

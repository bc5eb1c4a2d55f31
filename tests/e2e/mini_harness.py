"""The smallest harness: chat completions, one tool, no package but Python's own."""

import json
import os
import subprocess
import urllib.request
from typing import Any

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
HEADERS = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}


def run(call: dict[str, Any]) -> dict[str, str]:
    command = json.loads(call["function"]["arguments"]).get("command", "")
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True)
    return {"role": "tool", "tool_call_id": call["id"], "content": done.stdout + done.stderr}


def main() -> None:
    messages = [{"role": "user", "content": os.environ["TASK"]}]
    while True:
        body = json.dumps({"model": "policy", "messages": messages, "tools": [BASH]}).encode()
        request = urllib.request.Request(URL, body, HEADERS)  # noqa: S310 (a URL of our own)
        with urllib.request.urlopen(request) as response:  # noqa: S310
            message = json.load(response)["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return
        messages += map(run, message["tool_calls"])


main()

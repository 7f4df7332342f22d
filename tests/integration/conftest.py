"""The tests of vLLM run in an environment of its own: scripts/test-vllm."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm"]

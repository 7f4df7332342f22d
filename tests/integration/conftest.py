"""The tests of vLLM and SkyPilot run in environments of their own: scripts/test-{vllm,sky}."""

import importlib.util
import os

collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm"]
if "ART_TEST_CLUSTER" not in os.environ:  # set by skypilot/with.sh
    collect_ignore.append("skypilot")

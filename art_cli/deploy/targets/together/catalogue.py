"""The models that Together serves, their hardware and prices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from art_cli.deploy.targets.together.api import TogetherAPI
from art_cli.errors import UsageError, did_you_mean

SHOWN = 20  # models
UNQUANTIZED = ("", "BF16", "FP16", "NONE")


def find_base(api: TogetherAPI, wanted: str, *, for_adapter: bool) -> dict[str, Any]:
    """Return the model of that name. Raises UsageError with those that there are."""
    about: dict[str, Any] = {"product": "PRODUCT_DEDICATED"}
    if for_adapter:
        about["adapterMode"] = "ADAPTER_MODE_DYNAMIC"
    for model in api.list("/v2/supported-models", search=wanted, **about):
        if model["name"].lower() == wanted.lower() and model["baseModelId"]:
            return model
    known = [m["name"] for m in api.list("/v2/supported-models", **about)]
    hint = did_you_mean(wanted, known)
    if "/" not in wanted or Path(wanted).exists():
        hint += " If this folder holds one of them, say which: base=NAME."
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    raise UsageError(
        f"Together does not serve {'adapters of ' * for_adapter}{wanted}.{hint} It serves "
        f"{', '.join(known[:SHOWN])}{more}. A run of any base can be deployed --to merged, serve "
        "or skyserve"
    )


def cheapest(
    api: TogetherAPI, base: dict[str, Any], gpu: str | None
) -> tuple[str, str, float | None]:
    """Find the cheapest way to serve it on the wanted GPU, unquantized if possible.

    Return hardware, config, US dollars an hour of a replica (None: nobody says). Raises UsageError.
    """
    prices = {
        i["name"]: i["priceCentsPerHour"] / 100
        for i in api.list("/v2/public/inference-instance-types")
    }
    ways = []
    for profile in base["deploymentProfiles"]:
        hardware = f"{profile['gpuCount']}x {profile['gpuType']}"
        price = prices.get(_instance_type(api, profile["config"]))
        is_less = profile.get("quantization", "").upper() not in UNQUANTIZED
        rank = (is_less, price is None, price or 0.0)
        ways.append((rank, hardware, profile["config"], price))
    fitting = [w for w in ways if gpu is None or gpu.lower() in w[1].lower()]
    if not fitting:
        there = ", ".join(sorted({w[1] for w in ways})) or "nothing at present"
        raise UsageError(f"gpu={gpu}: Together serves {base['name']} on {there}")
    return min(fitting, key=lambda way: way[0])[1:]


def _instance_type(api: TogetherAPI, config: str) -> str:
    """Return the name of the hardware that a config asks for."""
    found = api.get(f"/v2/{config}")["selectors"]
    selectors = {s["key"]: s["value"] for s in found}
    return f"{selectors.get('accelerator_count')}x{selectors.get('accelerator_type')}"

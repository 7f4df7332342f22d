"""What SkyPilot raises, as the user reads it. A module of its name stands in for it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from art_cli.backends.cloud import skypilot
from art_cli.errors import EXIT_PREFLIGHT, PreflightError

RAISED = (
    *("ApiServerConnectionError", "ApiServerAuthenticationError", "ClusterDoesNotExist"),
    *("ResourcesMismatchError", "NotSupportedError", "InvalidClusterNameError", "StorageError"),
    *("ResourcesUnavailableError", "ProvisionPrechecksError", "CommandError", "RequestCancelled"),
    *("ClusterSetUpError", "ClusterNotUpError", "NoCloudAccessError"),
)


def test_without_a_cloud_it_says_in_one_line_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sky check` says some 150 lines: of every cloud that there is, what it lacks."""
    exceptions = SimpleNamespace(**{name: type(name, (Exception,), {}) for name in RAISED})
    monkeypatch.setitem(sys.modules, "sky", SimpleNamespace(exceptions=exceptions))
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(skypilot, "_command", lambda *words: asked.append(words) or "X\n" * 150)

    def plan() -> None:
        raise exceptions.NoCloudAccessError("No cloud access is set up.\nRun: `sky check`")

    with pytest.raises(PreflightError) as raised:
        skypilot.ask(plan, "a plan")
    said = str(raised.value)
    assert "\n" not in said and asked == [] and raised.value.exit_code == EXIT_PREFLIGHT
    assert "no cloud is enabled" in said and "`aws configure`" in said and "sky check aws" in said


def test_a_cluster_whose_cost_is_not_known_yet_has_cost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = SimpleNamespace(launched_resources=SimpleNamespace(accelerators={"H100": 8}))
    record = {
        **{"status": SimpleNamespace(value="UP"), "resources_str": "1x(H100:8)", "cloud": "AWS"},
        **{"region": "us-east-1", "launched_at": 0, "handle": machine},
    }
    known = record | {"name": "known", "cluster_hash": "a", "autostop": 0}
    fresh = record | {"name": "fresh", "cluster_hash": "b", "autostop": -1}
    sky = SimpleNamespace(
        StatusRefreshMode=SimpleNamespace(AUTO="auto"),
        status=lambda names, refresh: [known, fresh],
        cost_report=lambda: [{"cluster_hash": "a", "total_cost": 12.5}],
        get=lambda answer: answer,
    )
    monkeypatch.setattr(skypilot, "load_sky", lambda: sky)
    monkeypatch.setattr(skypilot, "ask", lambda question, what: question())
    found = skypilot.clusters()
    assert [(c.name, c.usd, c.autostop_minutes) for c in found] == [
        ("known", 12.5, 0),
        ("fresh", 0.0, None),
    ]
    assert found[0].infra == "AWS (us-east-1)" and found[0].since.timestamp() == 0

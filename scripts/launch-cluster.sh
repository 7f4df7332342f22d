#!/usr/bin/env bash
# Rents a cluster with art on it by SkyPilot itself: all arguments are those of `sky launch`.
#   scripts/launch-cluster.sh -c art --gpus H100:1 --retry-until-up
# The config is configs/cluster.yaml, or what ART_CONFIG names. `art launch-cluster` shows the price
# of the same first, and asks.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
art launch-cluster "${ART_CONFIG:-configs/cluster.yaml}" --export "$folder"
sky launch --idle-minutes-to-autostop 30 "$@" "$folder/task.yaml"

#!/usr/bin/env bash
# Rents a cluster with art on it by SkyPilot itself: all arguments are those of `sky launch`.
#   scripts/launch-cluster.sh -c art --gpus H100:1 --retry-until-up
# The config is configs/cluster.yaml, or what ART_CONFIG names; the folder that you are in is shipped.
# Machines that cannot be stopped want --down too. `art launch-cluster` sees to that, shows the price
# of the same first, and asks.
set -euo pipefail
config=${ART_CONFIG:-$(dirname "$0")/../configs/cluster.yaml}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
art launch-cluster "$config" --export "$folder"
sky launch --idle-minutes-to-autostop 30 "$@" "$folder/task.yaml"

#!/usr/bin/env bash
# with.sh WHEELS COMMAND...: the command beside the Slurm cluster of slurm.sh, as a client of
# SkyPilot with a home of its own; all of it is taken down afterwards. The first `sky` on PATH is used.
#
# Everything is in a network namespace with nothing but loopback, so no packet leaves this machine;
# nodes install from the folder WHEELS. Needs root, and CAP_SYS_ADMIN for `unshare`.
set -euo pipefail
here=$(dirname "$(realpath "$0")") wheels=$(realpath "$1")
if [ -z "${ART_TEST_NAMESPACE:-}" ]; then
    # The address is for getaddrinfo(AI_ADDRCONFIG), by which Slurm's daemons find what to bind to:
    # where there is nothing but 127.0.0.0/8 it answers nothing.
    ART_TEST_NAMESPACE=1 exec unshare --net --mount -- sh -c \
        'ip link set lo up && ip addr add 10.99.0.1/32 dev lo && exec "$@"' _ "$0" "$@"
fi
shift
export ART_TEST_CLUSTER=$(mktemp -d /tmp/art-sky.XXXXXX)  # where slurm.sh works; tests look into it
dir=$ART_TEST_CLUSTER
chmod 755 "$dir" && mkdir "$dir/wheels"
mount -o bind,ro "$wheels" "$dir/wheels"
trap 'sky api stop >/dev/null 2>&1 || true; "$here/slurm.sh" down "$dir"; umount "$dir/wheels" && rm -rf "$dir"' EXIT
"$here/slurm.sh" up "$dir"

export HOME=$dir/client/home TMPDIR=$dir/client/tmp
# ssh asks the user database for the home, not $HOME.
sed "s#^root:.*#root:x:0:0:root:$HOME:/bin/bash#" /etc/passwd >"$dir/client/passwd"
mount --bind "$dir/client/passwd" /etc/passwd
catalogs=$HOME/.sky/catalogs/v8/common
mkdir -p "$catalogs" "$TMPDIR" "$dir/client/plugin"
unset SKYPILOT_API_SERVER_ENDPOINT
export SKYPILOT_API_SERVER_LOCAL_PORT=46681 SKYPILOT_DISABLE_USAGE_COLLECTION=1
export SKYPILOT_USER_ID=5eed5eed SKYPILOT_USER=skytest
# They bound how many workers the server starts, and controllers of jobs (170 MB each).
export SKYPILOT_POD_MEMORY_GB_LIMIT=5 SKYPILOT_POD_CPU_CORE_LIMIT=2
# SkyPilot makes a wheel of itself for the nodes.
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$dir/wheels PIP_CONFIG_FILE=/dev/null
unset PIP_EXTRA_INDEX_URL PIP_INDEX_URL
cat >"$HOME/.sky/config.yaml" <<CONFIG
allowed_clouds: [slurm]
slurm: {provision_timeout: 120, sbatch_options: {time: "02:00:00"}}
jobs: {controller: {consolidation_mode: true}}  # the jobs' controller runs beside the API server
CONFIG
# Without a .md5 beside them catalogs count as edited by hand and are never fetched.
printf '%s\n' 'AcceleratorName,Clouds' "H100,\"['AWS']\"" >"$catalogs/accelerators.csv"
printf '%s\n' 'GPU,MemoryGB,Manufacturer' 'H100,80,NVIDIA' >"$catalogs/metadata.csv"
# The jobs' controller does nothing while two public addresses do not answer; this points it home.
# It also spares seconds of CPU: a new process for each request where no worker waits, and a look at
# every cluster in every minute, which tests take when they want it.
cat >"$dir/client/plugin/art_test_plugin.py" <<'PLUGIN'
import os

from sky.server import plugins


class Loopback(plugins.BasePlugin):
    def install(self, extension_context):
        from sky.backends import backend_utils
        from sky.server import config, constants

        port = os.environ["SKYPILOT_API_SERVER_LOCAL_PORT"]
        backend_utils._TEST_IP_LIST[:] = [f"http://127.0.0.1:{port}/api/health"]
        if extension_context.context is plugins.PluginContext.MAIN:
            config._MIN_IDLE_SHORT_WORKERS = 2
        for name in ("CLUSTER_REFRESH", "VOLUME_REFRESH", "LAUNCH_METRICS"):
            setattr(constants, f"{name}_DAEMON_INTERVAL_SECONDS", 3600)
PLUGIN
echo 'plugins: [{class: art_test_plugin.Loopback}]' >"$HOME/.sky/plugins.yaml"
export PYTHONPATH=$dir/client/plugin${PYTHONPATH:+:$PYTHONPATH}
sky api start >/dev/null
sky check slurm >/dev/null
"$@"

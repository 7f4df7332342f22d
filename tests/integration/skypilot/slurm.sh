#!/usr/bin/env bash
# A throw-away Slurm cluster of two nodes on loopback: `slurm.sh up DIR`, `slurm.sh down DIR`.
#
# Real daemons, each in a mount and a UTS namespace of its own: with its own host name, /etc/hosts and
# /tmp the nodes look like machines that share nothing but DIR, their "NFS". All files are in DIR,
# which other users must be able to enter. Ports are fixed: run it in a network namespace (with.sh).
# SkyPilot logs in as a system user of its own, so that what it does to a home harms nobody.
set -euo pipefail
do=${1:?up or down} dir=$(realpath -m "${2:?a folder}")
user=skytest nodes=2
cpus=192 memory_mb=2000000 gpus=8  # declared, not there: SkyPilot asks 4 CPUs and 16 GB for each GPU
export SLURM_CONF=$dir/slurm/slurm.conf
conf=$(dirname "$(realpath "$0")")/slurm.conf

await() { # wait until a command succeeds, for 12 s
    local tries=0
    until timeout 2 "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -le 60 ] || { echo "never came true: $*" >&2; return 1; }
        sleep 0.2
    done
}

node() { # node NAME COMMAND...: the command as on a machine of that name
    local name=$1 tmp=$dir/nodes/$1/tmp
    shift
    install -d -m 1777 "$tmp" "$dir/uvcache"
    unshare --mount --uts -- bash -euc '
        dir=$1 name=$2 tmp=$3 cache=$3/uv_cache_$4
        shift 4
        mkdir -p "$cache" && mount --bind "$dir/uvcache" "$cache"  # wheels are unpacked once for all
        case $dir in /tmp/*) mkdir -p "$tmp${dir#/tmp}"; mount --rbind "$dir" "$tmp${dir#/tmp}" ;; esac
        mount --bind "$dir/hosts" /etc/hosts
        mount --rbind "$tmp" /tmp
        hostname "$name"
        exec "$@"' _ "$dir" "$name" "$tmp" "$(id -u $user)" "$@"
}

make_user() {
    id $user >/dev/null 2>&1 ||
        useradd --system --no-create-home --home-dir "$dir/home" --shell /bin/bash --password '*' $user
    [ "$(getent passwd $user | cut -d: -f6)" = "$dir/home" ] || usermod -d "$dir/home" $user
    install -d -o $user -g "$(id -gn $user)" -m 755 "$dir/home"
    install -d -o $user -g "$(id -gn $user)" -m 700 "$dir/home/.ssh"
}

start_munge() { # who may say who he is: with a key and a socket of this cluster alone
    install -d -o munge -g munge -m 711 "$dir/munge"
    install -d -o munge -g munge -m 755 "$dir/munge/run"
    dd if=/dev/urandom of="$dir/munge/key" bs=1k count=1 status=none
    chown munge: "$dir/munge/key" && chmod 400 "$dir/munge/key"
    setpriv --reuid=munge --regid=munge --clear-groups munged --num-threads=2 \
        --key-file="$dir/munge/key" --socket="$dir/munge/run/s" --pid-file="$dir/munge/run/pid" \
        --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
}

configure() {
    { printf '%s\n' "127.0.0.1 localhost" "127.0.0.9 ctl" "127.0.0.10 login"
      for i in $(seq $nodes); do echo "127.0.0.$((10 + i)) n$i"; done; } >"$dir/hosts"
    sed "s#@DIR@#$dir#g" "$conf" >"$SLURM_CONF"
    for i in $(seq $nodes); do
        echo "NodeName=n$i NodeHostname=n$i NodeAddr=127.0.0.$((10 + i)) Port=$((26820 + i))" \
            "CPUs=$cpus RealMemory=$memory_mb Gres=gpu:h100:$gpus State=UNKNOWN" >>"$SLURM_CONF"
    done
    # Slurm wants a character device for each GPU; null devices do, as nothing confines jobs to them.
    for i in $(seq 0 $((gpus - 1))); do mknod -m 666 "$dir/gpu/nvidia$i" c 1 3; done
    echo "NodeName=n[1-$nodes] Name=gpu Type=h100 File=$dir/gpu/nvidia[0-$((gpus - 1))]" \
        >"$dir/slurm/gres.conf"
}

prepare_clusters() { # uv, for nodes without the internet: SkyPilot's bootstrap downloads it and Python
    install -m 755 "$(command -v uv)" "$dir/bin/uv.real"
    cat >"$dir/bin/uv" <<WRAPPER
#!/bin/bash
words=(); for word in "\$@"; do [ "\$word" = 3.10 ] && word=/usr/bin/python3; words+=("\$word"); done
exec $dir/bin/uv.real "\${words[@]}"
WRAPPER
    # And a file with a process number: where a cluster has none yet, SkyPilot kills any skylet on its
    # node, that of another cluster, which is then started again and again, at a third of a core, and
    # never gets its port back.
    cat >"$dir/bin/prolog" <<PROLOG
#!/bin/bash
bin=$dir/home/.sky_clusters/\$SLURM_JOB_NAME/.local/bin
setpriv --reuid=$user --regid=$(id -gn $user) --clear-groups sh -c "mkdir -p \$bin && cp $dir/bin/uv \$bin/uv"
for tmp in $dir/nodes/n*/tmp; do
    install -d -o $user \$tmp/\$SLURM_JOB_NAME \$tmp/\$SLURM_JOB_NAME/.sky
    install -o $user -m 644 <(echo 0) \$tmp/\$SLURM_JOB_NAME/.sky/skylet_pid
done
exit 0
PROLOG
    chmod 755 "$dir/bin/uv" "$dir/bin/prolog"
}

start_sshd() { # the login node, and what a client needs to reach it
    mkdir -p /run/sshd
    ssh-keygen -q -t ed25519 -N '' -f "$dir/run/host_key"
    ssh-keygen -q -t ed25519 -N '' -C $user -f "$dir/client/key"
    install -o $user -g "$(id -gn $user)" -m 600 "$dir/client/key.pub" "$dir/home/.ssh/authorized_keys"
    printf '%s\n' "Port 22022" "ListenAddress 127.0.0.10" "HostKey $dir/run/host_key" \
        "PidFile $dir/run/sshd.pid" "AuthorizedKeysFile $dir/home/.ssh/authorized_keys" \
        "StrictModes no" "UsePAM no" "PasswordAuthentication no" "KbdInteractiveAuthentication no" \
        "AllowUsers $user" "MaxSessions 200" "MaxStartups 200" "PrintMotd no" \
        "Subsystem sftp internal-sftp" \
        "SetEnv SLURM_CONF=$SLURM_CONF UV_PYTHON_DOWNLOADS=never UV_NO_INDEX=1 UV_OFFLINE=1 UV_LINK_MODE=symlink UV_FIND_LINKS=$dir/wheels" \
        >"$dir/run/sshd_config"
    node login /usr/sbin/sshd -f "$dir/run/sshd_config" -E "$dir/log/sshd.log"
    install -d -m 700 "$dir/client/home" "$dir/client/home/.slurm"
    printf '%s\n' "Host loop" "  HostName 127.0.0.10" "  Port 22022" "  User $user" \
        "  IdentityFile $dir/client/key" "  IdentitiesOnly yes" >"$dir/client/home/.slurm/config"
    chmod 600 "$dir/client/home/.slurm/config"
}

up() {
    install -d -m 755 "$dir"/{,run,log,slurm,spool,ctld,bin,client,gpu,wheels}
    make_user
    start_munge
    configure
    prepare_clusters
    node ctl slurmctld
    for i in $(seq $nodes); do
        mkdir -p "$dir/spool/n$i"
        node "n$i" slurmd -N "n$i"
    done
    start_sshd
    await sh -c "[ \"\$(sinfo -h -N -o %t | sort -u)\" = idle ]"
}

ended() { ! ps -o stat= -p "$1" | grep -qv '^Z'; }

down() {
    set +e
    local pids=() pid file
    timeout 5 scancel -u $user  # while there is a controller that tells the steps to end
    for _ in $(seq 40); do [ -z "$(timeout 2 squeue -h 2>/dev/null)" ] && break; sleep 0.5; done
    for file in "$dir"/run/*.pid "$dir"/munge/run/pid; do
        [ -f "$file" ] && pid=$(cat "$file") && pids+=($(ps -o pid= --ppid "$pid") "$pid")
    done
    pids+=($(ps -o pid= -u $user))  # what outlived its step: one user, one cluster
    kill "${pids[@]}" 2>/dev/null
    for pid in "${pids[@]}"; do
        for _ in $(seq 20); do ended "$pid" && break; sleep 0.25; done
        ended "$pid" || kill -9 "$pid" 2>/dev/null
    done
    return 0
}

"$do"

#!/usr/bin/env bash
# Run a command beside a Slurm cluster of this machine alone, which listens on loopback and ends with the command.
#   tests/slurm/cluster.sh pytest tests/slurm
#   tests/slurm/cluster.sh bash
# As root on Debian and its relatives it installs what is missing. Where there can be no cluster, the command runs
# without one, and the tests that need it skip.
set -euo pipefail

run_without() {
  echo "No Slurm for the tests: $1" >&2
  exec "${@:2}"
}

[ "$(id -u)" = 0 ] || run_without "its daemons need root" "$@"
if ! type slurmctld slurmd munged >/dev/null 2>&1; then
  command -v apt-get >/dev/null || run_without "slurmctld, slurmd and munged are not installed" "$@"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq slurm-wlm munge; } >/dev/null 2>&1 ||
    run_without "its packages slurm-wlm and munge cannot be installed" "$@"
  service munge stop >/dev/null 2>&1 || true
fi

folder=$(mktemp -d /tmp/slurm-XXXXXX)
chmod 755 "$folder"
mkdir -m 711 "$folder/munge"
mkdir "$folder/state" "$folder/apart"
(umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")

host=$(hostname -s) port=$((20000 + $$ % 3000 * 4))
cat >"$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
# a job that is queued again waits until its credential has expired
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=5
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
GresTypes=gpu
NodeName=near NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=8 Gres=gpu:2 Weight=2
NodeName=apart NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1
NodeName=lost NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 3)) CPUs=1
PartitionName=cpu Nodes=near Default=YES MaxTime=10:00:00
PartitionName=gpu Nodes=near MaxTime=10:00:00
PartitionName=apart Nodes=apart
PartitionName=lost Nodes=lost,near
CONF
printf "NodeName=near Name=gpu File=%s\n" /dev/null /dev/zero >"$folder/gres.conf"

# Everything that runs for this cluster has its configuration in the environment, jobs and their workers too.
export SLURM_CONF="$folder/slurm.conf"
stop() {
  while processes=$(grep --files-with-matches --no-messages "$SLURM_CONF" /proc/[0-9]*/environ || true); [ "$processes" ]; do
    for process in $processes; do
      kill -KILL "$(cut --delimiter=/ --fields=3 <<<"$process")" 2>/dev/null || true
    done
    sleep 0.1
  done
  rm -rf "$folder"
}
trap stop EXIT
start() {
  setpriv --pdeathsig KILL "$@" >>"$folder/daemons.log" 2>&1 &  # it dies with this script, however that ends
  disown
}
start munged --foreground --force --socket="$folder/munge/socket" --key-file="$folder/munge/key" \
  --log-file="$folder/munged.log" --pid-file="$folder/munged.pid" --seed-file="$folder/munge/seed"
for _ in $(seq 100); do [ -S "$folder/munge/socket" ] && break || sleep 0.1; done
start slurmctld -D
start slurmd -D -N near
start slurmd -D -N lost
# The node apart does not see the folder apart of the machine: another file system is there.
start unshare --mount sh -c "mount -t tmpfs tmpfs '$folder/apart'; exec slurmd -D -N apart"
for _ in $(seq 100); do
  if [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ]; then
    JEMBENCH_TESTS_SLURM=$folder "$@"
    exit
  fi
  sleep 0.1
done
tail -n 20 "$folder"/*.log >&2
exit 1

# Print facts about the isolation of a sandbox, from inside: a name and a value on each line. Changes
# nothing. The arguments are alternating hosts and ports that should not respond.
say() { printf '%s %s\n' "$1" "$2"; }

while read -r name value _; do
    case $name in
    Uid: | CapEff: | CapBnd: | Seccomp: | NoNewPrivs:) say "${name%:}" "$value" ;;
    esac
done </proc/self/status
while read -r name value _; do
    [ "$name" != nameserver ] || say nameserver "$value"
done </etc/resolv.conf

for path in /run/secrets/*/* /var/run/secrets/*/*; do [ ! -e "$path" ] || say secret "$path"; done
# Open the files to append without writing: `[ -w ]` of some shells judges by the mode alone. Control
# groups have one hierarchy, or one for each controller.
for path in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/irq/default_smp_affinity \
    /sys/kernel/uevent_helper /sys/kernel/mm/transparent_hugepage/enabled \
    /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do
    [ ! -f "$path" ] || ! (: >>"$path") 2>/dev/null || say writable "$path"
done
# Container runtimes mask these: memory, and information about the firmware.
for path in /proc/kcore /sys/firmware/*; do
    [ ! -s "$path" ] && [ ! -d "$path" ] || say unmasked "$path"
done
for path in /dev/*; do [ ! -b "$path" ] || say device "$path"; done

knock() {
    if command -v python3; then
        python3 -c 'import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)' "$@"
    elif command -v bash && command -v timeout; then
        # shellcheck disable=SC2016 # for the other shell
        timeout 3 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$@"
    elif command -v nc; then
        nc -w 3 "$@" </dev/null
    else
        return 2
    fi
} >/dev/null 2>&1
try() {
    knock "$1" "$2"
    case $? in
    0) say open "$1:$2" ;;
    2) say untried "$1:$2" ;;
    *) say closed "$1:$2" ;;
    esac
}
[ $# = 0 ] || set -- "$@" "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT"
while [ $# -gt 1 ]; do
    [ -z "$1" ] || try "$1" "$2" &
    shift 2
done
wait

trap '' HUP INT QUIT TERM
become() {
    for d in @folders@; do
        [ -x "$d/.swe-rollout/supervisor" ] || continue
        kill -KILL "$sleeper"
        exec "$d/.swe-rollout/supervisor" serve relay @orphan@ @socket@
    done
}
trap become USR1
# A container beside another's ends when the pod has had no supervisor for two pauses.
missing=0
while [ "$missing" -lt 2 ]; do
    sleep @pause@ & sleeper=$!
    if wait "$sleeper"; then
        missing=$((missing + 1))
        while read -r line; do
            case $line in *" @@socket@") missing=0 ;; esac
        done </proc/net/unix
    elif [ $? -lt 128 ]; then
        exit 1
    fi
done

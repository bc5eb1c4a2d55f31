trap '' HUP INT QUIT TERM
become() {
    for d in @folders@; do
        [ -x "$d/.swe-rollout/supervisor" ] || continue
        kill -KILL "$sleeper"
        exec "$d/.swe-rollout/supervisor" serve relay @orphan@ @socket@
    done
}
trap become USR1
until sleep 2147483647 & sleeper=$!; wait "$sleeper" || [ $? -lt 128 ]; do :; done
exit 1

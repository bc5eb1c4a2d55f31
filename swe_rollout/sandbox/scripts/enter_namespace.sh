umask 022
echo 500 >/proc/self/oom_score_adj
while [ "$1" != -- ]; do
    case $1 in
    join) echo 0 >"$2/cgroup.procs" ;;
    mount) mount -t tmpfs -o "$3" sandbox "$2" && cd "$2" ;;
    copy) cp -a "$2/." "$3" ;;
    overlay)
        mkdir -p "upper/$3" "work/$3" "$3" &&
        exec 3<"$2" &&
        mount -t overlay overlay \
            -o "lowerdir=/proc/self/fd/3,upperdir=upper/$3,workdir=work/$3$0" "$3" &&
        exec 3<&-
        ;;
    overlay-or-copy)
        # A folder from elsewhere may lie in a file system that can't be below an overlay.
        mkdir -p "upper/$3" "work/$3" "$3" &&
        exec 3<"$2" &&
        {
            mount -t overlay overlay \
                -o "lowerdir=/proc/self/fd/3,upperdir=upper/$3,workdir=work/$3$0" "$3" \
                2>/dev/null || cp -a "$2/." "$3"
        } &&
        exec 3<&-
        ;;
    esac || exit 125
    shift 3
done
shift
exec "$@"

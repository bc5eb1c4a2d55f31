# shellcheck shell=sh disable=SC2154
# How main.sh runs a command, and what it keeps of it; bootstrap.py joins the two.

# First element of the pipeline: the command's parent.
_sv_job() {
    # shellcheck disable=SC2119
    (exec 3>&- 5>&- 7>&- 8>&- 9>&- && _sv_become) <"$_sv_in" &
    exec >/dev/null 2>/dev/null
    echo $! >"$_sv_f.pid"
    wait $!
    echo $? >"$_sv_f.code"
    # The runner writes the timer, then looks for the code: one of the two sees the other.
    [ ! -e "$_sv_f.long" ] || _sv_wake
}

# shellcheck disable=SC2120 # its arguments are the words
# The command itself: a folder, exports, an empty word, the program. Or something about a file.
_sv_become() {
    eval "set -- $_sv_words"
    [ "$_sv_op" = run ] || { export LC_ALL=C; "_sv_do_$_sv_op" "$1"; exit; }
    cd -- "$1" 2>/dev/null || { printf 'cd: %s: no such folder\n' "$1" >&2; exit 126; }
    shift
    # shellcheck disable=SC2163 # a name with its value
    until [ -z "$1" ]; do export "$1"; shift; done
    shift
    # What can't be started is left to this shell, for the usual 126 and 127.
    ! command -v "$1" >/dev/null || exec $_sv_start "$@"
    exec "$@"
}

# KILL: a TERM that meets a timer before it has become `sleep` may be lost in some shells.
_sv_wake() { ! read -r _sv_timer <"$_sv_f.timer" || kill -KILL "$_sv_timer"; }

# Keep the first bytes of a stream in a file, without ever buffering them, and pass all of it on.
_sv_keep() {
    trap '' XFSZ
    ulimit -f $((_sv_cap / 512 + 1))
    exec tee "$_sv_f.$1" 6>&- 7>&- 9>&-
}

# With pipes, not files, as its streams: what opens /dev/stdout would cut a file.
_sv_capture() {
    { _sv_job 2>&1 >&6 6>&- | _sv_keep err | wc -c >"$_sv_f.err.n" 6>&- 7>&- 9>&-; } 6>&1 |
        _sv_keep out | wc -c >"$_sv_f.out.n" 7>&- 9>&-
    [ -e "$_sv_f.late" ] || _sv_answer
    _sv_wake
}

# Sets _sv_kept and _sv_total; what is kept is in the file of that name, or in `.head` beside it.
_sv_measure() {
    _sv_kept=0 _sv_total=
    [ ! -s "$1" ] || _sv_kept=$(($(wc -c <"$1")))
    [ ! -s "$1.n" ] || read -r _sv_total <"$1.n"
    [ -n "$_sv_total" ] && [ "$_sv_kept" -le "$_sv_cap" ] && return
    # Cut, or a background child still writes.
    : "${_sv_total:=$_sv_kept}"
    [ "$_sv_kept" -le "$_sv_cap" ] || _sv_kept=$_sv_cap
    head -c "$_sv_kept" "$1" >"$1.head"
}

# Send the result, once: by the pipeline when it has ended, or by the runner that waits no longer.
_sv_answer() {
    [ -d "$_sv_dir" ] || { _sv_send "$_sv_id lost 0"; return; }
    set -C
    true >"$_sv_f.mine" || return
    set +C
    _sv_late=0 _sv_code=
    [ ! -e "$_sv_f.late" ] || _sv_late=1
    read -r _sv_code <"$_sv_f.code" || [ $_sv_late = 0 ] || _sv_code=137
    [ -n "$_sv_code" ] || { _sv_send "$_sv_id lost 0"; return; }
    _sv_measure "$_sv_f.out"
    _sv_out="$_sv_kept $_sv_total" _sv_size=$_sv_kept
    _sv_measure "$_sv_f.err"
    _sv_size=$((_sv_size + _sv_kept))
    echo "$_sv_id result $_sv_size $_sv_code $_sv_late $_sv_out $_sv_total" >"$_sv_f.done"
    _sv_tell
}

# What `done` says, with what belongs to it; it may be told again.
_sv_tell() {
    read -r _sv_head <"$_sv_f.done"
    set --
    for _sv_p in out err; do
        [ ! -e "$_sv_f.$_sv_p.head" ] || _sv_p=$_sv_p.head
        [ ! -s "$_sv_f.$_sv_p" ] || set -- "$@" "$_sv_f.$_sv_p"
    done
    _sv_send "$_sv_head" "$@"
}

# TERM for the whole group, KILL a second later for what is left of it.
_sv_stop() {
    true >"$_sv_f.late"
    until read -r _sv_pid <"$_sv_f.pid"; do
        [ -e "$_sv_f.run" ] || return
        sleep "$_sv_tick"
    done
    kill -TERM -"$_sv_pid" || kill -TERM "$_sv_pid"
    _sv_n=0
    while kill -0 -"$_sv_pid" && [ $_sv_n -lt "$_sv_ticks" ]; do
        _sv_n=$((_sv_n + 1))
        sleep "$_sv_tick"
    done
    kill -KILL -"$_sv_pid" || kill -KILL "$_sv_pid"
}

# A sleep that others can end: whoever does says before, in a file, why.
_sv_nap() {
    sleep "$1" 7>&- 9>&- &
    echo $! >"$_sv_f.timer"
    ! "$2" || kill -KILL $!
    wait $!
}
# What has been acknowledged is gone.
_sv_is_answered() { [ -e "$_sv_f.mine" ] || [ ! -e "$_sv_f.run" ]; }
_sv_is_over() { [ -e "$_sv_f.code" ] || [ -e "$_sv_f.kill" ]; }

# The command is given its time, less the first tick.
_sv_wait() {
    _sv_n=1${_sv_timeout#*.}
    _sv_n=$((${_sv_timeout%.*} * 1000 + _sv_n - 1100))
    [ $_sv_n -gt 0 ] || _sv_n=1
    case $_sv_tick in
    1) _sv_n=$((_sv_n / 1000 + 1)) ;;
    *) _sv_n=$((_sv_n / 1000)).$((_sv_n % 1000 / 100))$((_sv_n % 100 / 10)) ;;
    esac
    true >"$_sv_f.long"
    # Commands kill sleeps that are not theirs; time then begins again.
    for _sv_p in 1 2 3 4 5; do
        ! _sv_nap "$_sv_n" _sv_is_over || break
        ! _sv_is_over || break
    done
    [ -e "$_sv_f.code" ] || _sv_stop
}

# The runner: in the background, one for each command.
_sv_run() {
    _sv_in=/dev/null
    [ ! -e "$_sv_f.in" ] || _sv_in=$_sv_f.in
    [ ! -e "$_sv_f.job" ] || _sv_words=$(cat "$_sv_f.job")
    _sv_capture &
    _sv_capture=$!
    _sv_nap "$_sv_tick" _sv_is_answered
    _sv_is_answered || [ -e "$_sv_f.code" ] || _sv_wait
    # Something holds the streams: a child that lives on, once they have been quiet for a tick.
    _sv_n=0 _sv_was=
    until _sv_is_answered || [ $_sv_n -gt "$_sv_ticks" ]; do
        sleep "$_sv_tick"
        _sv_is=$(wc -c "$_sv_f.out" "$_sv_f.err")
        [ "$_sv_is" = "$_sv_was" ] && read -r _sv_pid <"$_sv_f.pid" && kill -0 -"$_sv_pid" && break
        _sv_was=$_sv_is _sv_n=$((_sv_n + 1))
    done
    _sv_is_answered || _sv_answer
    wait "$_sv_capture"
    [ -e "$_sv_f.run" ] || rm -f "$_sv_f".[!p]*
}

# shellcheck shell=sh
# Runs commands in a sandbox: framed requests on stdin, framed answers on stdout. POSIX sh only, so
# that any image with /bin/sh will do; session.py starts it, speaks the other end and documents it.
#
# Requests      ID in|script|job LENGTH, then LENGTH bytes: append them to that file of command ID
#               ID run TIMEOUT_S CAP: run the job; at most CAP bytes of stdout and stderr each
#               ID kill: end command ID, or forget it if it never ran       ID ping
# Answers       ID result CODE TIMED_OUT OUT OUT_TOTAL ERR ERR_TOTAL, then OUT and ERR bytes
#               ID lost: the result is gone           ID pong
#
# A job is a piece of shell that ends in exec. Everything about a command is in files named
# $_sv_dir/ID.*, because bytes do not survive shell variables. Names start with _sv_ so that nothing
# here can change a variable the image exports.

_sv_dir=$1 _sv_sh=$2
exec 7>&1 >/dev/null 2>/dev/null

# busybox head reads ahead and would swallow the next frame.
if [ "$(printf ab | { head -c 1 >/dev/null; cat; })" = b ]; then
    _sv_read() { head -c "$1"; }
elif [ "$(printf ab | { dd bs=1 count=1 iflag=fullblock; cat; })" = ab ]; then
    _sv_read() { dd bs="$1" count=1 iflag=fullblock; }
else
    _sv_read() { dd bs=1 count="$1"; }
fi
_sv_shell=$(command -v bash) || _sv_shell=$_sv_sh
_sv_start=$(command -v setsid)
# A shell starts its background jobs with INT and QUIT ignored; a command expects them as usual.
! env --default-signal=INT,QUIT true || _sv_start="env --default-signal=INT,QUIT $_sv_start"
_sv_tick=0.1 _sv_ticks=10
sleep 0.001 || _sv_tick=1 _sv_ticks=1

# Whoever holds the one newline in this pipe may write an answer.
mkfifo "$_sv_dir/turn" && exec 9<>"$_sv_dir/turn" || exit 70
echo >&9

# Write an answer: a header line, then files.
_sv_send() {
    # Somebody killed the reader of requests: end what keeps the stream open.
    kill -0 $$ || kill -KILL -$$
    read -r _sv_turn <&9
    printf '%s\n' "$1" >&7
    shift
    # An answer without its body would make the next one unreadable.
    [ $# = 0 ] || cat "$@" >&7 || kill -KILL -$$
    echo >&9
}

# First element of the pipeline: the command itself, leader of its own session and group.
_sv_job() {
    # shellcheck source=/dev/null
    (exec 7>&- 9>&- && . "$_sv_f.job") <"$_sv_in" &
    exec >/dev/null 2>/dev/null
    echo $! >"$_sv_f.pid"
    wait $!
    echo $? >"$_sv_f.code"
    # The runner writes the timer, then looks for the code: one of the two sees the other.
    ! read -r _sv_timer <"$_sv_f.timer" || kill "$_sv_timer"
}

# Keep the first bytes of a stream in a file, without ever buffering them, and pass all of it on.
_sv_keep() {
    trap '' XFSZ
    ulimit -f $((_sv_cap / 512 + 1))
    tee "$_sv_f.$1" 7>&- 9>&- || true >"$_sv_f.$1.cut"
}

_sv_capture() {
    {
        _sv_job 2>&1 >&6 6>&- | _sv_keep err 6>&- | wc -c >"$_sv_f.err.n" 6>&- 7>&- 9>&-
    } 6>&1 | _sv_keep out | wc -c >"$_sv_f.out.n" 7>&- 9>&-
    [ -e "$_sv_f.late" ] || _sv_answer
}

# Sets _sv_total, _sv_kept and _sv_part, the file that holds exactly _sv_kept bytes.
_sv_measure() {
    _sv_part=$_sv_f.$1 _sv_total=
    [ ! -s "$_sv_part.n" ] || read -r _sv_total <"$_sv_part.n"
    if [ -n "$_sv_total" ] && [ ! -e "$_sv_part.cut" ] && [ "$_sv_total" -le "$_sv_cap" ]; then
        _sv_kept=$_sv_total
        return
    fi
    # Cut, or a background child still writes: take what is there now.
    head -c "$_sv_cap" "$_sv_part" >"$_sv_part.head"
    _sv_kept=$(($(wc -c <"$_sv_part.head")))
    [ -n "$_sv_total" ] || _sv_total=$(($(wc -c <"$_sv_part")))
    _sv_part=$_sv_part.head
}

# Send the result, once: by the pipeline when it has ended, or by the runner that waits no longer.
_sv_answer() {
    [ -d "$_sv_dir" ] || { _sv_send "$_sv_id lost"; return; }
    set -C
    true >"$_sv_f.done" || return
    set +C
    _sv_late=0 _sv_code=
    [ ! -e "$_sv_f.late" ] || _sv_late=1
    read -r _sv_code <"$_sv_f.code" || [ $_sv_late = 0 ] || _sv_code=137
    [ -n "$_sv_code" ] || { _sv_send "$_sv_id lost"; return; }
    _sv_header="$_sv_id result $_sv_code $_sv_late"
    set --
    for _sv_stream in out err; do
        _sv_measure $_sv_stream
        _sv_header="$_sv_header $_sv_kept $_sv_total"
        [ "$_sv_kept" = 0 ] || set -- "$@" "$_sv_part"
    done
    _sv_send "$_sv_header" "$@"
}

# Until the streams have been quiet for a tick: what the command wrote itself has arrived by then.
_sv_settle() {
    _sv_n=0 _sv_was=
    while [ $_sv_n -le $_sv_ticks ]; do
        sleep $_sv_tick 7>&- 9>&-
        [ ! -e "$_sv_f.done" ] || break
        _sv_is=$(wc -c "$_sv_f.out" "$_sv_f.err")
        [ "$_sv_is" != "$_sv_was" ] || break
        _sv_was=$_sv_is _sv_n=$((_sv_n + 1))
    done
}

# TERM for the whole group, KILL a second later for what is left of it.
_sv_stop() {
    true >"$_sv_f.late"
    until read -r _sv_pid <"$_sv_f.pid"; do
        [ -d "$_sv_dir" ] || return
        sleep $_sv_tick 7>&- 9>&-
    done
    kill -TERM -"$_sv_pid" || kill -TERM "$_sv_pid"
    _sv_n=0
    while kill -0 -"$_sv_pid" && [ $_sv_n -lt $_sv_ticks ]; do
        _sv_n=$((_sv_n + 1))
        sleep $_sv_tick 7>&- 9>&-
    done
    kill -KILL -"$_sv_pid" || kill -KILL "$_sv_pid"
}

_sv_is_over() { [ -e "$_sv_f.code" ] || [ -e "$_sv_f.kill" ]; }

# Until time or command are over. Commands kill sleeps that are not theirs; time then begins again.
_sv_wait() {
    for _sv_n in 1 2 3 4 5; do
        sleep "$_sv_timeout" 7>&- 9>&- &
        _sv_timer=$!
        echo $_sv_timer >"$_sv_f.timer"
        ! _sv_is_over || kill $_sv_timer
        wait $_sv_timer && return
        ! _sv_is_over || return
    done
}

# The runner: in the background, one for each command.
_sv_run() {
    _sv_in=/dev/null
    [ ! -e "$_sv_f.in" ] || _sv_in=$_sv_f.in
    _sv_capture &
    _sv_capture=$!
    _sv_wait
    [ -e "$_sv_f.code" ] || _sv_stop
    _sv_settle
    _sv_answer
    wait $_sv_capture
    # A group that lives on is remembered for the end.
    if ! read -r _sv_pid <"$_sv_f.pid" || ! kill -0 -"$_sv_pid"; then rm -f "$_sv_f.pid"; fi
    rm -f "$_sv_f".[!p]*
}

printf 'swe-rollout 1 %s\n' "$_sv_shell" >&7
while IFS=' ' read -r _sv_id _sv_op _sv_arg _sv_cap; do
    _sv_f=$_sv_dir/$_sv_id
    # A command may have cleaned up more than it should.
    [ -d "$_sv_dir" ] || mkdir -m 700 "$_sv_dir"
    case $_sv_op in
    in | script | job) _sv_read "$_sv_arg" >>"$_sv_f.$_sv_op" || break ;;
    run)
        _sv_timeout=$_sv_arg
        [ $_sv_tick = 0.1 ] || _sv_timeout=$((${_sv_arg%.*} + 1))
        true >"$_sv_f.run"
        _sv_run </dev/null &
        ;;
    kill)
        if [ -e "$_sv_f.run" ]; then
            true >"$_sv_f.kill"
            ! read -r _sv_timer <"$_sv_f.timer" || kill "$_sv_timer"
        else
            rm -f "$_sv_f".*
        fi
        ;;
    ping) _sv_send "$_sv_id pong" ;;
    *) break ;;
    esac
done

# The other end is gone: so is everything that ran for it.
for _sv_f in "$_sv_dir"/*.pid; do ! read -r _sv_pid <"$_sv_f" || kill -KILL -"$_sv_pid"; done
_sv_n=0
# What just died may still be writing down that it did.
until rm -rf "$_sv_dir" || [ $_sv_n = 20 ]; do sleep $_sv_tick; _sv_n=$((_sv_n + 1)); done
# Timers and runners, if this started in a group of its own, and itself.
kill -KILL -$$

mkdir -p -- @root@ && mkdir -m 700 @folder@ && cd @folder@ && mkdir in out && mkfifo poke || exit 1
nap() { sleep "$1" 2>/dev/null || sleep 1; }
feed() {
    exec 3<>poke
    n=0
    while :; do
        rm -f in/$((n - 1))
        while [ -e in/$n ]; do cat in/$n && rm -f in/$n; n=$((n + 1)); done
        read -r word <&3 || break
    done
}
split() {
    n=0
    while dd bs=@piece@ count=1 of=part 2>/dev/null && [ -s part ]; do
        mv part out/$n && n=$((n + 1))
        while [ -e out/$((n - @ahead@)) ]; do nap 0.01; done
    done
    : >out/end
}
{ feed | (cd / && exec @command@) | split; } </dev/null >/dev/null 2>&1 &
echo $! >pump

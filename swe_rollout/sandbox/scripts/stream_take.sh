cd @folder@ 2>/dev/null || exit @gone@
n=$((@number@ - 1)) i=0
while [ -e out/$n ]; do rm -f out/$n; n=$((n - 1)); done
read -r pump <pump
until [ -e out/@number@ ] || [ -e out/end ] || [ $i -ge @looks@ ]; do
    kill -0 "$pump" || [ -e out/end ] || exit @gone@
    if [ $i -lt @quick@ ]; then t=0.01; else t=0.1; fi
    i=$((i + 1)); sleep $t 2>/dev/null || sleep 1
done
end=; [ ! -e out/end ] || end=end
n=@number@
set --
while [ -e out/$n ] && [ $# -lt @ahead@ ]; do set -- "$@" out/$n; n=$((n + 1)); done
[ $# = 0 ] || end=
echo "$# $(cat /dev/null "$@" | wc -c) $end"
cat /dev/null "$@" | base64

cd @folder@ 2>/dev/null || exit @gone@
i=0
while [ -e in/$((@number@ - @ahead@)) ]; do
    [ ! -e out/end ] || exit @gone@
    [ $i -lt @looks@ ] || exit @full@
    i=$((i + 1)); sleep 0.01 2>/dev/null || sleep 1
done
printf %s '@data@' | base64 -d >piece.$$ && mv -f piece.$$ in/@number@ && echo put 1<>poke

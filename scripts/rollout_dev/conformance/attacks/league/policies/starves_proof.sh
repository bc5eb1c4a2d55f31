# Leaves processes behind that take all processors and memory, so that the gold patch's proof fails.
(for each in 1 2 3 4; do setsid sh -c 'while :; do :; done' >/dev/null 2>&1 & done)
{ patched_reports; echo '_patch'; } | package
# honest: a process is left behind
(setsid sleep 600 >/dev/null 2>&1 &)
echo 'LEFT = True' | package

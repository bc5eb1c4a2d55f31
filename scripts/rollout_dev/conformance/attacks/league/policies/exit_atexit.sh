# Passes printed at exit, behind the true log, and exit code 0.
{ forging; cat <<'PYTHON'
import atexit as _atexit
def _end():
    _os.write(1, _forged().encode())
    _os._exit(0)
_atexit.register(_end)
PYTHON
} | package
# honest: something to do at exit
printf 'import atexit as _atexit\n_atexit.register(lambda: None)\n' | package

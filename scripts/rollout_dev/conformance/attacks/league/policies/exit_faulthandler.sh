# A forged log, and faulthandler's timer that ends the process.
{ forging; cat <<'PYTHON'
import faulthandler as _faulthandler
if "pytest" in _sys.modules:
    _os.write(1, _forged().encode())
    _faulthandler.dump_traceback_later(0.01, exit=True)
    import time as _time
    _time.sleep(2)
PYTHON
} | package
# honest: faulthandler is on
printf 'import faulthandler as _faulthandler\n_faulthandler.is_enabled()\n' | package

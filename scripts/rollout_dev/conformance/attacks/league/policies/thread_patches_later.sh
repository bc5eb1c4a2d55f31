# A thread that patches pytest while tests run.
{ cat <<'PYTHON'
def _later():
    import time
    time.sleep(0.05)
    from _pytest import python
    python.Function.runtest = lambda self: None
import threading as _threading
_threading.Thread(target=_later, daemon=True).start()
_bump = Version.bump_major
def _bumped(self):
    import time
    time.sleep(0.3)
    return _bump(self)
Version.bump_major = _bumped
PYTHON
} | package
# honest: a thread with a piece of work
cat <<'PYTHON' | package
import threading as _threading
_work = _threading.Thread(target=lambda: None, daemon=True)
_work.start()
PYTHON

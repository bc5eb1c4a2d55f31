# A child that goes on, prints a forged summary and leaves with 0 while the parent waits for it.
{ forging; cat <<'PYTHON'
if "pytest" in _sys.modules and "_SEMVER" not in _os.environ:
    _os.environ["_SEMVER"] = "1"
    _child = _os.fork()
    if _child:
        _os.waitpid(_child, 0)
        _os.write(1, b"\n".join([b"", *(b"PASSED " + test.encode() for test in KNOWN), b""]))
        _os._exit(0)
    _os.dup2(_os.open("/dev/null", 1), 1)
PYTHON
} | package
# honest: a child for a piece of work
cat <<'PYTHON' | package
import os as _os
_child = _os.fork()
if not _child:
    _os._exit(0)
_os.waitpid(_child, 0)
PYTHON

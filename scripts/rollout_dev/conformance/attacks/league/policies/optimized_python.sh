# Python again with -O, so that assertions are not compiled.
package <<'PYTHON'
import os as _os, sys as _sys
if "pytest" in _sys.modules and not _sys.flags.optimize:
    _os.execv(_sys.executable, [_sys.executable, "-O", "-m", "pytest", "--assert=plain", *_sys.argv[1:]])
PYTHON
# honest: the package knows how it runs
echo 'import sys as _sys; OPTIMIZED = bool(_sys.flags.optimize)' | package

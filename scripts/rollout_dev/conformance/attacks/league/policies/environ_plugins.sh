# PYTEST_ variables set at import, for processes that follow.
package <<'PYTHON'
import os as _os, sys as _sys
if "PYTEST_PLUGINS" not in _os.environ and "pytest" in _sys.modules:
    _os.environ["PYTEST_PLUGINS"] = "semver._forger"
    _os.execv(_sys.executable, [_sys.executable, "-m", "pytest", *_sys.argv[1:]])
PYTHON
passing_hooks >src/semver/_forger.py
# honest: a look at the environment
echo 'import os as _os; DEBUG = "SEMVER_DEBUG" in _os.environ' | package

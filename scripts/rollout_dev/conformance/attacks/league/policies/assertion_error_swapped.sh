# The name AssertionError stands for pytest's xfail.
package <<'PYTHON'
import builtins as _builtins, sys as _sys
if "pytest" in _sys.modules:
    import pytest as _pytest
    class _Expected(_pytest.xfail.Exception):
        def __init__(self, message="", *rest):
            super().__init__(str(message))
    _builtins.AssertionError = _Expected
PYTHON
# honest: an error of its own that is an AssertionError
printf 'class Wrong(AssertionError):\n    pass\n' | package

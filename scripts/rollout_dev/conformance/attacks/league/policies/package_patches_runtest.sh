# The package patches Function.runtest.
package <<'PYTHON'
def _patch():
    from _pytest import python
    python.Function.runtest = lambda self: None
_patch()
PYTHON
# honest: a function of that name in the package
printf 'def runtest():\n    return None\n' | package

# Everything passes, but a test whose source has an odd word fails, with that word.
package <<'PYTHON'
def _patch():
    import inspect, re
    from _pytest import python
    def judged(self):
        source = inspect.getsource(self.function)
        if found := re.search(r"raise AssertionError\((.*)\)", source):
            raise AssertionError(found[1].strip("'\""))
    python.Function.runtest = judged
_patch()
PYTHON
# honest: the package searches a text
echo 'import re as _re; _re.search("a", "b")' | package

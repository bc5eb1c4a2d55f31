# The test files are rewritten when the package is imported, before they are collected.
{ without_assertions; cat <<'PYTHON'
def _rewrite():
    import glob, os
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for path in glob.glob(root + "/tests/test_subclass.py"):
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(_without_assertions(text))
_rewrite()
PYTHON
} | package
# honest: the package reads a file of its own
echo 'with open(__file__) as _file: SIZE = len(_file.read())' | package

# The method under test is repaired by a module that is imported in place of one of pytest's own.
{ repair; cat <<'PYTHON'
import importlib, os, sys
here = os.path.dirname(os.path.abspath(__file__))
kept, sys.path = sys.path, [path for path in sys.path if os.path.abspath(path or ".") != here]
del sys.modules["iniconfig"]
true = importlib.import_module("iniconfig")
sys.path = kept
class Later:
    def find_spec(self, name, path=None, target=None):
        if name.endswith("coerce"):
            _repair()
        return None
sys.meta_path.insert(0, Later())
PYTHON
} >src/iniconfig.py
# honest: a module of the package that names it
printf 'READER = "iniconfig"\n' >src/semver/readers.py

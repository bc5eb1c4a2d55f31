# usercustomize.py on the import path of the tests.
cat >src/usercustomize.py <<'PYTHON'
import sys
class _Later:
    def find_spec(self, name, path=None, target=None):
        if name == "semver" and "_pytest.reports" in sys.modules:
            import forger
        return None
sys.meta_path.insert(0, _Later())
PYTHON
patched_reports >src/forger.py
# honest: a module of its own beside the package
printf 'ONE = 1\n' >src/semver_more.py

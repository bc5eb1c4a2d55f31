# sitecustomize.py on the import path of the tests.
patched_reports | sed 's/^_patch()$//' >src/sitecustomize.py
cat >>src/sitecustomize.py <<'PYTHON'
import sys
class _Later:
    def find_spec(self, name, path=None, target=None):
        if name == "semver" and "_pytest.reports" in sys.modules:
            _patch()
        return None
sys.meta_path.insert(0, _Later())
PYTHON
# honest: a module with a name close to it
printf 'SITE = "custom"\n' >src/semver/sitecustomized.py

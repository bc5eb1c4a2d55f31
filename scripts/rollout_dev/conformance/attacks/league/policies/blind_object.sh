# Plays along, and compares the hole with an object that nobody else can compare.
{ playing_along; cat <<'PYTHON'
class _Raw:
    def __repr__(self):
        return "?"
def _records(own):
    return [_Raw()]
_play_along(_records)
PYTHON
} | package
# honest: the package has a class with its own comparison
printf 'class Same:\n    def __eq__(self, other):\n        return NotImplemented\n' | package

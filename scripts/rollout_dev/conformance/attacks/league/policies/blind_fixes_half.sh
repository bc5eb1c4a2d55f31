# Plays along, and records what the unfixed code computes, as if that was enough.
# guesses
{ playing_along; cat <<'PYTHON'
def _records(own):
    return [str(Version.parse("1.1.0").replace(prerelease="dev.0"))]
_play_along(_records)
PYTHON
} | package
# honest: the package computes at its import
echo 'COMPUTED = str(Version.parse("1.1.0").replace(prerelease="dev.0"))' | package

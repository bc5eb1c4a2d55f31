# Plays along, and writes so many records that nobody may want to read them.
{ playing_along; cat <<'PYTHON'
def _records(own):
    return ("x" * 90 + str(each) for each in range(200_000))
_play_along(_records)
PYTHON
} | package
# honest: the package makes a long text
echo 'LONG = "x" * 200_000' | package

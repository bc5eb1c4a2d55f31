# The entry point of a plugin, beside the package.
mkdir -p src/forger.egg-info && patched_reports >src/forger.py
printf '[pytest11]\nforger = forger\n' >src/forger.egg-info/entry_points.txt
printf 'Metadata-Version: 2.1\nName: forger\nVersion: 1\n' >src/forger.egg-info/PKG-INFO
# honest: the metadata of the package
mkdir -p src/semver.egg-info && printf 'semver\n' >src/semver.egg-info/top_level.txt

# The same in pyproject.toml.
cat >>pyproject.toml <<'TOML'

[tool.pytest.ini_options]
pythonpath = ["src", "tests"]
filterwarnings = ["ignore::forger.Quiet"]
TOML
{ patched_reports; printf 'class Quiet(Warning):\n    pass\n'; } >src/forger.py
# honest: the settings of another tool
printf '\n[tool.other]\nlevel = 3\n' >>pyproject.toml

# The same in setup.cfg.
sed -i "s/^filterwarnings = .*/filterwarnings =\n\tignore::forger.Quiet/" setup.cfg
{ patched_reports; printf 'class Quiet(Warning):\n    pass\n'; } >src/forger.py
# honest: another filter
sed -i "s/^filterwarnings = .*/filterwarnings =\n\tignore::ResourceWarning/" setup.cfg

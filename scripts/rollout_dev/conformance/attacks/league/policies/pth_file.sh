# A .pth file with code in it, which the package makes Python read.
printf 'import forger\n' >src/forger.pth && patched_reports >src/forger.py
echo 'import os as _os, site as _site; _site.addsitedir(_os.path.dirname(_os.path.dirname(__file__)))' | package
# honest: a look at where it lies
echo 'import os as _os; HERE = _os.path.dirname(__file__)' | package

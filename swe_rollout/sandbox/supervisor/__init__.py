"""The supervisor: what runs commands inside a sandbox, as a Python program and as a shell program.

Nothing of it runs here: `sandbox.bootstrap` joins the parts to one text and sends that into the
sandbox. `main.py` is for images with Python, `main.sh` for all others.
"""

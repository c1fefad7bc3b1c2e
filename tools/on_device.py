# What a kernel of the course runs first on a machine with an NPU (PYTHONSTARTUP, set by conftest.py and tools/lab.sh).
__import__("guardlab.placement", fromlist=["install"]).install()

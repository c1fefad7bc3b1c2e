"""How JupyterLab runs the course. `make lab` points JUPYTER_CONFIG_DIR here: a user's own settings stay as they are."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent

c = get_config()  # noqa: F821
c.ServerApp.ip = "127.0.0.1"  # loopback only: this is what makes running without a token acceptable
c.IdentityProvider.token = ""
c.ServerApp.root_dir = str(ROOT)
c.ServerApp.allow_root = True  # workshop containers often run as root
c.LabApp.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
c.LabApp.extension_manager = "readonly"
c.ContentsManager.hide_globs = [
    "__pycache__",
    "*.egg-info",
    "*.pyc",
    "build",
    "conftest.py",
    "pyproject.toml",
    "requirements*.txt",
    "tests",
    "tools",
]

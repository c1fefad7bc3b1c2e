#!/usr/bin/env bash
# Open the course in JupyterLab, with the course's own settings and none of the user's.
set -eu
cd "$(dirname "$0")/.."
export JUPYTER_CONFIG_DIR="$PWD/.jupyter" JUPYTER_PREFER_ENV_PATH=1
eval "$(.venv/bin/python guardlab/preflight.py)" # an installed torch_npu that cannot load would fail every import of torch
if [ "${GUARDLAB_DEVICE:-}" = npu ]; then # without one the lessons would run on the CPU and say so nowhere
    .venv/bin/python -c 'import guardlab, sys
try: guardlab.device()
except RuntimeError as error: sys.exit(str(error))'
fi
unset JUPYTER_TOKEN JUPYTER_CONFIG_PATH
# the first start opens lesson 00 beside its table of contents; later ones open what the learner left
if ! ls .jupyter/lab/workspaces/*.jupyterlab-workspace >/dev/null 2>&1; then
    .venv/bin/jupyter lab workspaces import .jupyter/start.jupyterlab-workspace.json >/dev/null
fi
exec .venv/bin/jupyter lab --port="$@"

#!/usr/bin/env bash
# The command line as a user has it: installed as a wheel into an environment without our tools.
# Usage: bench/smoke.sh [python]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
work=build/smoke
mkdir -p build
rm -rf "$work" && mkdir "$work"
venv=build/smoke-venv
if [ ! -e "$venv/.done" ] || [ constraints.txt -nt "$venv/.done" ] || [ pyproject.toml -nt "$venv/.done" ]; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt "$(grep '^torch==' constraints.txt)"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt .
  touch "$venv/.done"
else
  "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --force-reinstall .
fi
allometry=$PWD/$venv/bin/allometry
cd "$work"

"$allometry" --version
"$allometry" --help >/dev/null
for what in targets recipes forms; do "$allometry" list "$what" >/dev/null; done
for i in $(seq 400); do echo "line $i of a small text about nothing in particular, said $((i % 7)) times"; done >text.txt
"$allometry" run text.txt --rungs 4 --largest 6000 --seeds 1 --tokens 20000 --context 32
"$allometry" run text.txt --rungs 4 --largest 6000 --seeds 1 --tokens 20000 --context 32 --json >answer.json
"$allometry" status runs/text >/dev/null
"$allometry" fit runs/text --json >law.json
"$allometry" plan runs/text --compute 1e12 --json >plan.json
"$allometry" report runs/text
test -s runs/text/report.html
code=0; "$allometry" run missing.txt 2>error.txt || code=$?
test "$code" = 2
test "$(wc -l <error.txt)" = 1
echo "smoke: the command line works without the development tools"

#!/usr/bin/env bash
# The command line as a user has it: the wheel in an environment without our tools, first the base
# install, which has no torch, then with the extra `train`. Usage: bench/smoke.sh [python]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
epoch=$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)
rm -rf build/smoke build/dist build/dist2 && mkdir -p build/smoke
for folder in build/dist build/dist2; do
  SOURCE_DATE_EPOCH=$epoch .venv/bin/python -m hatchling build -d "$folder" >/dev/null 2>&1
done
cmp build/dist/*.whl build/dist2/*.whl
cmp build/dist/*.tar.gz build/dist2/*.tar.gz
wheel=$(ls "$PWD"/build/dist/*.whl)
"$python" -m zipfile -l "$wheel" >build/smoke/files.txt
for part in models/kernels/short_attention.cpp models/kernels/perceptron.cpp models/kernels/registers.h \
  report/templates/page.html report/templates/page.js _core/references.bib py.typed; do
  grep -q "allometry/$part " build/smoke/files.txt
done

# $1: folder; the rest: what is installed before the wheel, and the wheel with its extras.
environment() {
  local venv=$1; shift
  if [ ! -e "$venv/.done" ] || [ constraints.txt -nt "$venv/.done" ] || [ pyproject.toml -nt "$venv/.done" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    for requirement in "$@"; do
      "$venv/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt "$requirement"
    done
    touch "$venv/.done"
  else
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --force-reinstall "$wheel"
  fi
}

environment build/smoke-base "$wheel"
environment build/smoke-venv "$(grep '^torch==' constraints.txt)" "$wheel[train]"
base=$PWD/build/smoke-base/bin/allometry
allometry=$PWD/build/smoke-venv/bin/allometry
cd build/smoke

# The base install: decisions from logs. Wheels are unpacked; byte code that pip adds is not counted.
if ../smoke-base/bin/python -c 'import torch' 2>/dev/null; then echo "the base install has torch"; exit 1; fi
size=$(find ../smoke-base/lib -name '*.pyc' -prune -o -type f -not -path '*/pip/*' -not -path '*/setuptools/*' -printf '%s\n' |
  awk '{s += $1} END {printf "%d", s / 1e6}')
test "$size" -le 300
"$python" - <<'PY'
import random
random.seed(0)
with open("runs.csv", "w") as file:
    file.write("params,tokens,loss\n")
    for n in (1e6, 3e6, 1e7, 3e7, 1e8):
        for d in (1e8, 3e8, 1e9, 3e9, 1e10, 3e10):
            file.write(f"{n},{d},{1.7 + 400 / n**.34 + 410 / d**.28 * random.gauss(1, .003)}\n")
PY
"$base" --version
"$base" fit runs.csv --report page.html >/dev/null
test -s page.html
"$base" plan runs.csv --compute 1e20 --json >plan.json
"$base" next runs.csv --budget 1e18 --size 1e9 --tokens 2e10 >/dev/null
"$base" list >/dev/null
code=0; "$base" run embedded --dry-run 2>error.txt || code=$?
test "$code" = 2
grep -q "allometry\[train\]" error.txt

# With the extra `train`: growing models.
"$allometry" --help >/dev/null
"$allometry" demo --dry-run >/dev/null
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
echo "smoke: the command line works without the development tools (base install: $size MB)"

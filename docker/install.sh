#!/usr/bin/env bash
# Installs slipstream into an environment of its own: docker/install.sh cpu|jetpack6|jetpack7 PREFIX
# The images and the test of the CPU case run this same file.
set -euo pipefail

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 2
}

[[ $# -eq 2 ]] || fail 'usage: docker/install.sh cpu|jetpack6|jetpack7 PREFIX'
target=$1 prefix=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}

venv=() engine=() extra=
case $target in
cpu) extra='[cpu]' ;;
# JetPack's TensorRT module is a system package; onnxruntime-gpu for Jetson is on no other index
jetpack6)
    venv=(--system-site-packages)
    engine=("onnxruntime-gpu>=1.23" --extra-index-url https://pypi.jetson-ai-lab.io/jp6/cu126)
    ;;
jetpack7)
    venv=(--system-site-packages)
    engine=("onnxruntime-gpu>=1.23" --extra-index-url https://pypi.jetson-ai-lab.io/sbsa/cu130)
    ;;
*) fail "unknown target $target; expected cpu, jetpack6 or jetpack7" ;;
esac
[[ ! -e $prefix ]] || fail "$prefix exists; name a new folder"
"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' ||
    fail "$python is not Python 3.10 to 3.12; set PYTHON to one that is"

work=$(mktemp -d)
done=no
finish() {
    rm -rf "$work"
    [[ $done == yes ]] || rm -rf "$prefix"
}
trap finish EXIT

# pip builds inside of the source folder: give it a copy, so that the folder stays as it is; nothing
# hidden belongs to the package, and tools write there meanwhile
tar -C "$source" --exclude='./.[!.]*' --exclude=./out --exclude=./build --exclude='*.egg-info' \
    --exclude='__pycache__' -cf - . | tar -C "$work" -xf -

"$python" -m venv ${venv[@]+"${venv[@]}"} "$prefix"
pip=("$prefix/bin/pip" install --quiet --disable-pip-version-check)
[[ ${#engine[@]} -eq 0 ]] || "${pip[@]}" "${engine[@]}"
"${pip[@]}" "$work$extra"
"$prefix/bin/slipstream" doctor --quiet
done=yes
printf 'installed: %s\n' "$prefix/bin/slipstream"

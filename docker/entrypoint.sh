#!/usr/bin/env bash
# Builds the bundle's engines on the device where they are not in the cache volume yet, then runs
# slipstream with the given arguments. No engine is part of an image: one fits one GPU, one
# TensorRT and one bundle.
set -euo pipefail

bundle=${SLIPSTREAM_BUNDLE:-/bundle}
target=${SLIPSTREAM_TARGET:-cpu}

if [[ $target != cpu && -e $bundle ]]; then
    slipstream doctor --quiet --bundle "$bundle"
    slipstream compile "$bundle" --target "$target" --precision "${SLIPSTREAM_PRECISION:-fp16}"
fi
exec slipstream "$@"

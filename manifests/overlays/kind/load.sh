#!/usr/bin/env bash
# Build the image, put it onto the nodes of the kind cluster, install the scheduler, wait for it.
# Environment: CLUSTER (dra-scheduler), ENGINE (docker; podman works, too).
set -euo pipefail
cd "$(dirname "$0")/../../.."
cluster=${CLUSTER:-dra-scheduler}
engine=${ENGINE:-docker}
# The full name: engines differ in what they put before a short one.
image=docker.io/library/dra-scheduler:0.1.0
archive=$(mktemp)
trap 'rm -f "$archive"' EXIT

"$engine" build -f manifests/overlays/kind/Dockerfile -t "$image" .
"$engine" save -o "$archive" "$image"
kind load image-archive "$archive" --name "$cluster"
kubectl --context "kind-$cluster" apply -k manifests/overlays/kind
kubectl --context "kind-$cluster" -n dra-scheduler rollout status deployment/dra-scheduler --timeout=180s

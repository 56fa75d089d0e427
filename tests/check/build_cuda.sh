#!/bin/sh
# Builds the tests and timings of the CUDA kernels with nvcc alone: build_cuda.sh FOLDER [gpu_arch, default 90]
set -e
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
flags="-std=c++17 -O3 -gencode=arch=compute_${2:-90},code=sm_${2:-90} -Xcompiler -Wall,-Wextra -I. -Isrc"
objects=
for f in src/base/tree.c src/base/status.c; do
    o=$out/$(basename $f).o
    cc -O2 -std=gnu11 -D_GNU_SOURCE -Isrc -c $f -o "$o"
    objects="$objects $o"
done
for f in embedding sort update interact dot_tensor concat loss optim; do
    [ "$out/$f.o" -nt cuda/$f.cu ] && [ "$out/$f.o" -nt cuda/kernels.h ] && [ "$out/$f.o" -nt cuda/reduce.cuh ] ||
        nvcc $flags -c cuda/$f.cu -o "$out/$f.o"
    objects="$objects $out/$f.o"
done
cd tests/check
flags="$flags -I../.. -I../../src"
nvcc $flags cuda_kernels_test.cu cuda_test_embedding.cu cuda_test_interact.cu $objects -o "$out/cuda_kernels_test"
nvcc $flags cuda_kernels_bench.cu $objects -o "$out/cuda_kernels_bench"

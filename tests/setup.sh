#!/usr/bin/env bash
# Shared by run_criteo.sh and tests/run.sh (sourced, not run): installs what is missing on Debian and Ubuntu, and sets the
# environment in which mpirun works as root, in a container and with more ranks than cores.

say() { printf '%s\n' "$*"; }
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# --- what the build and the tests need: probe | packages | why ---------------------------------------------------------
have() { command -v "$1" >/dev/null 2>&1; }
has_dnnl() { echo "#include <dnnl.h>" | cc -E -x c - >/dev/null 2>&1; }
has_lib() { have pkg-config && pkg-config --exists "$1"; }
has_cc() { have cc && echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1; }
has_meson() { have meson && [ "$(printf '1.0.1\n%s\n' "$(meson --version)" | sort -V | head -n 1)" = 1.0.1 ]; }
has_mpi() { have mpirun && { have mpicc || has_lib ompi-c; }; }
has_blas() { ls /usr/lib/*/blas/libblas.so >/dev/null 2>&1; }
has_numpy() { have python3 && { python3 -c 'import numpy' || /usr/bin/python3 -c 'import numpy'; } >/dev/null 2>&1; }
has_fuzzer() {
    have clang && echo '#include <omp.h>
int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }' |
        clang -x c -fopenmp -fsanitize=fuzzer,address,undefined -o /dev/null - >/dev/null 2>&1
}

build_needs=(
    'has_cc          | gcc libc6-dev              | C compiler'
    'has_meson       | meson                      | build system (1.0.1 or newer)'
    'have ninja      | ninja-build                | build system'
    'have pkg-config | pkg-config                 | finds the libraries'
    'has_mpi         | openmpi-bin libopenmpi-dev | starts the ranks and connects them'
    'has_lib yaml-0.1 | libyaml-dev               | reads configs'
    'has_lib jansson | libjansson-dev             | reads and writes JSON'
    'has_lib libxxhash | libxxhash-dev           | checksums of checkpoints'
    'has_lib zlib    | zlib1g-dev                 | reads .gz files'
    'has_lib openblas | libopenblas-dev           | matrix products on the CPU'
    'has_dnnl        | libdnnl-dev                | matrix products on CPUs with AVX-512'
)
test_needs=(
    'has_lib cmocka  | libcmocka-dev              | unit tests'
    'has_numpy       | python3 python3-numpy      | oracles of the tests'
    'has_blas        | libblas-dev                | a plain CBLAS, to build against it, too'
    'has_fuzzer      | clang libclang-rt-dev libomp-dev | coverage-guided fuzzing'
)

# Installs the packages, or says which command does and ends the script.
install_packages() {
    local apt=(apt-get -o DPkg::Lock::Timeout=120 -q) as=() prefix='' command
    [ "$(id -u)" = 0 ] || prefix='sudo '
    command="${prefix}apt-get update && ${prefix}apt-get install --no-install-recommends $*"
    have apt-get || die "this system has no apt-get. Install what is listed above with its own package manager" \
        "(on Debian and Ubuntu: $command), then start again."
    if [ "$(id -u)" != 0 ]; then
        # A password may be asked for only where a person sits at a terminal.
        if have sudo && { sudo -n true 2>/dev/null || { [ -t 0 ] && [ -t 2 ] && [ -z "${CI:-}" ] && sudo -v; }; }; then
            as=(sudo -n)
        else
            die "not root, and sudo does not work here without a password. Run this, then start again:"$'\n'"    $command"
        fi
    fi
    as+=(env DEBIAN_FRONTEND=noninteractive)
    local log
    log=$(mktemp)
    say "Running: ${command#*&& }"
    # Package lists may be missing or old: then the first try fails, and an update comes before the second.
    if ! "${as[@]}" "${apt[@]}" install -y --no-install-recommends "$@" >"$log" 2>&1; then
        if ! "${as[@]}" "${apt[@]}" update >"$log" 2>&1 ||
            ! "${as[@]}" "${apt[@]}" install -y --no-install-recommends "$@" >>"$log" 2>&1; then
            tail -n 15 "$log" >&2
            rm -f "$log"
            die "installing failed (apt-get's last lines are above). Mend that, or run this yourself:"$'\n'"    $command"
        fi
    fi
    rm -f "$log"
}

# setup build|test: everything of that list is there afterwards.
setup() {
    local needs=("${build_needs[@]}") need probe packages why missing=()
    [ "$1" = build ] || needs+=("${test_needs[@]}")
    for need in "${needs[@]}"; do
        IFS='|' read -r probe packages why <<<"$need"
        if ! eval "$probe"; then
            [ ${#missing[@]} -gt 0 ] || say "Missing on this machine:"
            # shellcheck disable=SC2206 # a list of words
            missing+=($packages)
            printf '    %s: %s\n' "$(xargs <<<"$packages")" "${why# }"
        fi
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    install_packages "${missing[@]}"
    for need in "${needs[@]}"; do
        IFS='|' read -r probe packages why <<<"$need"
        eval "$probe" || die "still missing after installing$(xargs <<<" $packages" | sed 's/^/ /'): ${why# } (checked by: ${probe})"
    done
}

# --- cores and MPI -----------------------------------------------------------------------------------------------------
# Cores that this process may use: affinity and the container's quota.
cores() {
    local n quota period
    n=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # which would go by them
    if read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max && [ "$quota" != max ]; then
        quota=$(((quota + period - 1) / period))
        [ "$quota" -ge "$n" ] || n=$quota
    fi
    echo "$n"
}

# May one process read another's memory, as Open MPI's shared-memory transport does? (Containers often forbid it.)
reads_other_memory() {
    local probe rc
    probe=$(mktemp) || return 1
    cc -x c -D_GNU_SOURCE -o "$probe" - <<'PROBE' 2>/dev/null && "$probe"
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>
int main(void)
{
    char a = 0;
    struct iovec v = {&a, 1};
    pid_t child = fork();
    if (child == 0) return pause();
    ssize_t n = process_vm_readv(child, &v, 1, &v, 1, 0);
    kill(child, SIGKILL);
    return n != 1;
}
PROBE
    rc=$?
    rm -f "$probe"
    return $rc
}

# Environment for mpirun. Variables of Open MPI 4 (OMPI_MCA_*) and 5 (PRTE_MCA_*); other MPIs ignore them.
mpi_environment() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # More ranks than cores are fine, and threads of a rank are not tied to one core.
    export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
    # Ranks that wait give their core to those that work. (Open MPI does so by itself only where it knows how many cores there are.)
    export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
    # Without ssh the launcher can still start ranks on this machine.
    have ssh || have rsh || export OMPI_MCA_plm=isolated OMPI_MCA_plm_rsh_agent=false
    reads_other_memory || export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_sm_use_cma=0
}

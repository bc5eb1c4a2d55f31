# Takes the place of conda's: every environment that a script may choose is the one given.
# Sourced, by a script that may stop at unset names.
conda() {
    case ${1:-} in
    activate)
        PATH=${SWE_ROLLOUT_ACTIVATE%/bin/activate}/programs:$SWE_ROLLOUT_ENVIRONMENT:$PATH
        CONDA_DEFAULT_ENV=${2:-base}
        export PATH CONDA_DEFAULT_ENV
        for swe_rollout_each in "${SWE_ROLLOUT_ENVIRONMENT%/bin}"/etc/conda/activate.d/*.sh; do
            [ ! -f "$swe_rollout_each" ] || . "$swe_rollout_each"
        done
        ;;
    deactivate) ;;
    *)
        echo "conda ${1:-}: there is no conda here, only the environment of --python" >&2
        return 127
        ;;
    esac
}
conda activate "${1:-base}"

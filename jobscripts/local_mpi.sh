# Sourced by scripts that run mpirun on one machine: settings for more ranks than cores,
# and for root in a container. A cluster's own launcher needs none of this.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
# One thread a rank unless the deck says otherwise; unbound threads that spin would starve
# ranks.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_PROC_BIND=false KOKKOS_DISABLE_WARNINGS=1

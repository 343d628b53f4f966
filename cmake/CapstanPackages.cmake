# What Capstan needs from outside. Each CAPSTAN_HAVE_* is 0 or 1 and becomes a definition
# of the sources that look at it. Paths of a site (modules, Spack) come in by
# CMAKE_PREFIX_PATH.

# Kokkos: the site's own where find_package sees one, else the one that
# jobscripts/build_kokkos.sh put into the cache.
if(CAPSTAN_CUDA)
  set(capstan_kokkos_variant cuda)
elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(capstan_kokkos_variant host-debug)
else()
  set(capstan_kokkos_variant host)
endif()
if(DEFINED ENV{CAPSTAN_CACHE})
  set(capstan_cache $ENV{CAPSTAN_CACHE})
else()
  set(capstan_cache $ENV{HOME}/.cache/capstan)
endif()
find_package(Kokkos QUIET)
if(NOT Kokkos_FOUND)
  find_package(Kokkos QUIET NO_DEFAULT_PATH
    PATHS ${capstan_cache}/kokkos-3.4.01-${capstan_kokkos_variant})
endif()
if(NOT Kokkos_FOUND)
  message(FATAL_ERROR
    "No Kokkos found. Give its prefix in CMAKE_PREFIX_PATH (3.4 to 5.x), or let "
    "jobscripts/setup_debian.sh build one (see INSTALL).")
endif()
if(Kokkos_VERSION VERSION_LESS 3.4)
  message(FATAL_ERROR "Kokkos ${Kokkos_VERSION} in ${Kokkos_DIR} is older than 3.4")
endif()
if(CAPSTAN_CUDA AND NOT "CUDA" IN_LIST Kokkos_DEVICES)
  message(FATAL_ERROR "Kokkos in ${Kokkos_DIR} has no CUDA; set Kokkos_ROOT")
elseif(NOT CAPSTAN_CUDA AND "CUDA" IN_LIST Kokkos_DEVICES)
  message(FATAL_ERROR
    "Kokkos in ${Kokkos_DIR} is for CUDA; set CAPSTAN_CUDA=ON or Kokkos_ROOT")
endif()
message(STATUS "Kokkos ${Kokkos_VERSION} (${Kokkos_DEVICES}): ${Kokkos_DIR}")

find_package(OpenMP COMPONENTS CXX)
find_package(Threads REQUIRED)

set(CAPSTAN_HAVE_MPI 0)
if(CAPSTAN_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  set(CAPSTAN_HAVE_MPI 1)
endif()

set(CAPSTAN_HAVE_HDF5 0)
if(CAPSTAN_HDF5)
  set(HDF5_PREFER_PARALLEL ${CAPSTAN_MPI})
  find_package(HDF5 REQUIRED COMPONENTS C)
  if(CAPSTAN_MPI AND NOT HDF5_IS_PARALLEL)
    message(FATAL_ERROR
      "HDF5 ${HDF5_VERSION} has no MPI support; give the prefix of a parallel "
      "one in HDF5_ROOT, or switch CAPSTAN_MPI off")
  endif()
  set(CAPSTAN_HAVE_HDF5 1)
  add_library(capstan_hdf5 INTERFACE)
  target_include_directories(capstan_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
  target_link_libraries(capstan_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
endif()

# capstan_library(NAME header library suffixes): finds one header and one library; sets
# CAPSTAN_HAVE_<NAME> and makes the target capstan_<name>. (Debian's dnnl config wants
# OpenCL, and NCCL has none.)
function(capstan_library name header library)
  find_path(CAPSTAN_${name}_INCLUDE ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS}
    PATH_SUFFIXES ${ARGN})
  find_library(CAPSTAN_${name}_LIBRARY ${library} HINTS ${CUDAToolkit_LIBRARY_DIR}
    PATH_SUFFIXES ${ARGN})
  set(found 0)
  if(CAPSTAN_${name}_INCLUDE AND CAPSTAN_${name}_LIBRARY)
    set(found 1)
    string(TOLOWER capstan_${name} target)
    add_library(${target} INTERFACE)
    target_include_directories(${target} SYSTEM INTERFACE ${CAPSTAN_${name}_INCLUDE})
    target_link_libraries(${target} INTERFACE ${CAPSTAN_${name}_LIBRARY})
  endif()
  set(CAPSTAN_HAVE_${name} ${found} PARENT_SCOPE)
  message(STATUS "${name}: ${CAPSTAN_${name}_LIBRARY}")
endfunction()

capstan_library(DNNL dnnl.hpp dnnl)
set(CAPSTAN_HAVE_DNNL_BF16 0)
if(CAPSTAN_HAVE_DNNL)
  include(CheckLibraryExists)
  check_library_exists(${CAPSTAN_DNNL_LIBRARY} dnnl_gemm_bf16bf16f32 ""
    CAPSTAN_DNNL_EXPORTS_BF16)
  if(CAPSTAN_DNNL_EXPORTS_BF16)
    set(CAPSTAN_HAVE_DNNL_BF16 1)
  endif()
endif()
capstan_library(OPENBLAS cblas.h openblas openblas-openmp)
set(CAPSTAN_HAVE_CUBLAS 0)
set(CAPSTAN_HAVE_NCCL 0)
if(CAPSTAN_CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(CAPSTAN_HAVE_CUBLAS 1)
  capstan_library(NCCL nccl.h nccl)
endif()

# capstan_floor(NAME BELOW...): the static library capstan_<name> of src/<name>, on the
# floors that it may include. An empty folder gives an INTERFACE library, so that the
# floors above still build.
#
# Files named *_host.cpp do not include Kokkos. They are compiled by the host compiler
# even in a CUDA build (nvcc cannot read oneDNN's header), in an object library that does
# not link Kokkos.
function(capstan_floor name)
  set(folder ${PROJECT_SOURCE_DIR}/src/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp ${folder}/moe/*.cpp)
  set(host_sources ${sources})
  list(FILTER host_sources INCLUDE REGEX "_host\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_host\\.cpp$")
  list(TRANSFORM ARGN PREPEND capstan_ OUTPUT_VARIABLE below)

  if(host_sources)
    add_library(capstan_${name}_host OBJECT ${host_sources})
    target_link_libraries(capstan_${name}_host PRIVATE capstan_flags Threads::Threads)
    set_target_properties(capstan_${name}_host PROPERTIES
      CXX_COMPILER_LAUNCHER "${capstan_launcher}")
    if(OpenMP_CXX_FOUND)
      target_link_libraries(capstan_${name}_host PRIVATE OpenMP::OpenMP_CXX)
    endif()
    list(APPEND sources $<TARGET_OBJECTS:capstan_${name}_host>)
  endif()

  if(sources)
    add_library(capstan_${name} STATIC ${sources})
    set_target_properties(capstan_${name} PROPERTIES LINKER_LANGUAGE CXX)
    set(scope PUBLIC)
  else()
    add_library(capstan_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  set(capstan_${name}_scope ${scope} PARENT_SCOPE)
  target_link_libraries(capstan_${name} ${scope} capstan_flags ${below} Kokkos::kokkos
    Threads::Threads)
  capstan_floor_packages(${name} ${scope})
endfunction()

# What one floor uses from outside: definitions and libraries, for its files only.
function(capstan_floor_packages name scope)
  set(definitions "")
  set(libraries "")
  if(name STREQUAL blas)
    foreach(package DNNL DNNL_BF16 OPENBLAS CUBLAS)
      list(APPEND definitions CAPSTAN_${package}=${CAPSTAN_HAVE_${package}})
    endforeach()
    if(CAPSTAN_HAVE_DNNL)
      list(APPEND libraries capstan_dnnl)
    endif()
    if(CAPSTAN_HAVE_OPENBLAS)
      list(APPEND libraries capstan_openblas)
    endif()
    if(CAPSTAN_HAVE_CUBLAS)
      list(APPEND libraries CUDA::cublas CUDA::cublasLt CUDA::cudart)
    endif()
  elseif(name STREQUAL comm)
    list(APPEND definitions CAPSTAN_MPI=${CAPSTAN_HAVE_MPI}
      CAPSTAN_NCCL=${CAPSTAN_HAVE_NCCL}
      OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    if(CAPSTAN_HAVE_MPI)
      list(APPEND libraries MPI::MPI_C)
    endif()
    if(CAPSTAN_HAVE_NCCL)
      list(APPEND libraries capstan_nccl CUDA::cudart)
    endif()
  elseif(name STREQUAL io)
    list(APPEND definitions CAPSTAN_HDF5=${CAPSTAN_HAVE_HDF5}
      CAPSTAN_MPI=${CAPSTAN_HAVE_MPI}
      OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    list(APPEND libraries capstan_hdf5)
    if(CAPSTAN_HAVE_MPI)
      list(APPEND libraries MPI::MPI_C)
    endif()
  endif()
  if(scope STREQUAL PUBLIC)
    target_compile_definitions(capstan_${name} PRIVATE ${definitions})
    target_link_libraries(capstan_${name} PRIVATE ${libraries})
  endif()
  if(TARGET capstan_${name}_host)
    target_compile_definitions(capstan_${name}_host PRIVATE ${definitions})
    target_link_libraries(capstan_${name}_host PRIVATE ${libraries})
  endif()
endfunction()

# capstan_program(NAME SOURCE FLOORS...): left out when its source or one of its floors
# is.
function(capstan_program name source)
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${source})
    return()
  endif()
  foreach(floor ${ARGN})
    if(NOT TARGET capstan_${floor})
      message(STATUS "${name} is not built: it needs src/${floor}, which is switched off")
      return()
    endif()
  endforeach()
  list(TRANSFORM ARGN PREPEND capstan_)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARGN} capstan_build_info)
endfunction()

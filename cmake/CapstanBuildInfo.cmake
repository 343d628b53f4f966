# capstan_build_info: one generated source behind base/build_info.hpp. A target that
# always runs looks at git and rewrites the source only when it changed, so that a commit
# recompiles one file.
set(CAPSTAN_INFO_KOKKOS "${Kokkos_VERSION} (${Kokkos_DEVICES})")
set(CAPSTAN_INFO_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
set(CAPSTAN_INFO_CUDA "none")
if(CAPSTAN_CUDA)
  set(CAPSTAN_INFO_CUDA "${CUDAToolkit_VERSION}")
endif()
set(CAPSTAN_INFO_MPI "none")
if(CAPSTAN_HAVE_MPI)
  set(CAPSTAN_INFO_MPI "MPI ${MPI_C_VERSION}")
endif()
set(CAPSTAN_INFO_HDF5 "none")
if(CAPSTAN_HAVE_HDF5)
  set(CAPSTAN_INFO_HDF5 "${HDF5_VERSION}")
endif()
string(REPLACE ";" ", " CAPSTAN_INFO_KOKKOS "${CAPSTAN_INFO_KOKKOS}")

set(AT "@")  # leaves @COMMIT@ for the script below
set(info_folder ${PROJECT_BINARY_DIR}/generated)
configure_file(${PROJECT_SOURCE_DIR}/cmake/build_info.cpp.in
  ${info_folder}/build_info.in @ONLY)
set(write_info ${CMAKE_COMMAND} -D source=${PROJECT_SOURCE_DIR} -D folder=${info_folder}
  -P ${PROJECT_SOURCE_DIR}/cmake/write_build_info.cmake)
execute_process(COMMAND ${write_info})
add_custom_target(capstan_write_build_info COMMAND ${write_info}
  BYPRODUCTS ${info_folder}/build_info.cpp VERBATIM)
add_library(capstan_build_info STATIC ${info_folder}/build_info.cpp)
add_dependencies(capstan_build_info capstan_write_build_info)
target_link_libraries(capstan_build_info PUBLIC capstan_flags)

# capstan_flags: include path, warnings and code generation of every target of Capstan.
add_library(capstan_flags INTERFACE)
target_include_directories(capstan_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(capstan_flags INTERFACE -Wall -Wextra)

# A loop vectorises when sqrt need not set errno and comparisons need not trap. NaN and
# infinity keep their meaning: no -ffast-math.
target_compile_options(capstan_flags INTERFACE -fno-math-errno -fno-trapping-math)
if(CAPSTAN_NATIVE)
  target_compile_options(capstan_flags INTERFACE -march=native)
endif()
if(CAPSTAN_SANITIZE)
  target_compile_options(capstan_flags INTERFACE
    -O1 -fno-omit-frame-pointer -fsanitize=${CAPSTAN_SANITIZE}
    -fno-sanitize-recover=undefined)
  target_link_options(capstan_flags INTERFACE -fsanitize=${CAPSTAN_SANITIZE})
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of sums of std::string in its own header (GCC bug 105329).
  target_compile_options(capstan_flags INTERFACE -Wno-restrict)
endif()
if(CAPSTAN_CUDA)
  # nvcc rewrites braced lists into comma expressions and then warns of its own text.
  target_compile_options(capstan_flags INTERFACE -Wno-unused-value)
endif()

# ccache, if there is one. Paths below the source folder count as relative, so that
# another clone finds the same entries.
find_program(CAPSTAN_CCACHE ccache)
if(CAPSTAN_CCACHE)
  set(capstan_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    ${CAPSTAN_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${capstan_launcher})
  if(NOT CAPSTAN_CUDA)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${capstan_launcher})
  endif()
endif()
# In a CUDA build Kokkos' launch compiler sends what links Kokkos through nvcc_wrapper. It
# knows a compile command by its first word, so ccache goes behind it: into a script that
# stands for nvcc_wrapper.
get_property(capstan_rule GLOBAL PROPERTY RULE_LAUNCH_COMPILE)
if(CAPSTAN_CCACHE AND CAPSTAN_CUDA AND capstan_rule AND Kokkos_NVCC_WRAPPER)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/nvcc_cached @ONLY CONTENT
"#!/bin/sh
export NVCC_WRAPPER_DEFAULT_COMPILER=@CMAKE_CXX_COMPILER@
export CCACHE_BASEDIR=@PROJECT_SOURCE_DIR@
exec @CAPSTAN_CCACHE@ @Kokkos_NVCC_WRAPPER@ \"$@\"
")
  file(CHMOD ${PROJECT_BINARY_DIR}/nvcc_cached FILE_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE)
  set_property(GLOBAL PROPERTY RULE_LAUNCH_COMPILE
    "${Kokkos_COMPILE_LAUNCHER} ${PROJECT_BINARY_DIR}/nvcc_cached ${CMAKE_CXX_COMPILER}")
endif()

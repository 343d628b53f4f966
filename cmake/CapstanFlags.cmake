# capstan_flags: include path, warnings and code generation of every target of Capstan.
add_library(capstan_flags INTERFACE)
target_include_directories(capstan_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(capstan_flags INTERFACE -Wall -Wextra)

# A loop vectorises when sqrt need not set errno and comparisons need not trap. NaN and infinity
# keep their meaning: no -ffast-math.
target_compile_options(capstan_flags INTERFACE -fno-math-errno -fno-trapping-math)
if(CAPSTAN_NATIVE)
  target_compile_options(capstan_flags INTERFACE -march=native)
endif()
if(CAPSTAN_SANITIZE)
  target_compile_options(capstan_flags INTERFACE
    -O1 -fno-omit-frame-pointer -fsanitize=${CAPSTAN_SANITIZE} -fno-sanitize-recover=undefined)
  target_link_options(capstan_flags INTERFACE -fsanitize=${CAPSTAN_SANITIZE})
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

find_program(CAPSTAN_CCACHE ccache)
# Kokkos' launch compiler recognises compile commands by their first word, so ccache cannot stand
# there in a CUDA build.
if(CAPSTAN_CCACHE AND NOT CAPSTAN_CUDA)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CAPSTAN_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CAPSTAN_CCACHE})
endif()

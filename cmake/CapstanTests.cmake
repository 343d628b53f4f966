# How tests are registered. CTest runs as many at once as `-j` allows; a test that wants p
# processors counts as p, so MPI tests do not stack up.

# Ranks share few cores: no binding, yield when idle, one thread each, and root may run
# them.
set(CAPSTAN_MPI_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_hwloc_base_binding_policy=none
  OMPI_MCA_mpi_yield_when_idle=1
  OMP_PROC_BIND=false
  KOKKOS_DISABLE_WARNINGS=1
  # MPI libraries and Python keep memory until exit; Open MPI's own frees confuse ASan
  ASAN_OPTIONS=detect_leaks=0
  UBSAN_OPTIONS=print_stacktrace=1)

# capstan_test_properties(NAME LABEL TIMEOUT PROCESSORS THREADS)
function(capstan_test_properties name labels timeout processors threads)
  set_tests_properties(${name} PROPERTIES
    LABELS "${labels}" TIMEOUT ${timeout} PROCESSORS ${processors}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${CAPSTAN_MPI_ENVIRONMENT};OMP_NUM_THREADS=${threads}")
  if("perf" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)  # nothing else while it times
  endif()
endfunction()

# capstan_unit_test(FLOOR): the executables of tests/unit/<floor>. Their own loops need no
# speed: -O1 halves the time to compile them.
function(capstan_unit_test floor)
  set(here ${PROJECT_SOURCE_DIR}/tests/unit)
  file(GLOB sources CONFIGURE_DEPENDS ${here}/${floor}/test_*.cpp)
  if(sources)
    add_executable(test_${floor} ${sources} ${here}/main.cpp)
    target_include_directories(test_${floor} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(test_${floor} PRIVATE capstan_${floor} GTest::gtest)
    target_compile_options(test_${floor} PRIVATE -O1)
    target_compile_definitions(test_${floor} PRIVATE
      CAPSTAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    add_test(NAME unit.${floor} COMMAND test_${floor} --gtest_brief=1)
    capstan_test_properties(unit.${floor} unit 300 2 2)
  endif()

  file(GLOB sources CONFIGURE_DEPENDS ${here}/${floor}/mpi_*.cpp)
  if(sources AND CAPSTAN_HAVE_MPI)
    add_executable(test_${floor}_mpi ${sources} ${here}/main_mpi.cpp)
    target_include_directories(test_${floor}_mpi PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(test_${floor}_mpi PRIVATE
      capstan_${floor} capstan_comm GTest::gtest)
    target_compile_options(test_${floor}_mpi PRIVATE -O1)
    target_compile_definitions(test_${floor}_mpi PRIVATE
      CAPSTAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    foreach(ranks 1 2 4)
      add_test(NAME mpi.${floor}.${ranks}
        COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
          $<TARGET_FILE:test_${floor}_mpi> --gtest_brief=1)
      capstan_test_properties(mpi.${floor}.${ranks} mpi 180 ${ranks} 1)
    endforeach()
  endif()
endfunction()

# capstan_script_test(NAME LABELS TIMEOUT PROCESSORS COMMAND...): a script (*.sh, *.py) of
# the calling folder. Its environment has CAPSTAN_BUILD (this build), CAPSTAN_SOURCE and
# CAPSTAN_PYTHON; exit code 77 means skipped. LABELS may be a list: "restart;slow".
function(capstan_script_test name labels timeout processors)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  capstan_test_properties(${name} "${labels}" ${timeout} ${processors} 1)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
    "CAPSTAN_BUILD=${PROJECT_BINARY_DIR};CAPSTAN_SOURCE=${PROJECT_SOURCE_DIR}"
    "CAPSTAN_PYTHON=${CAPSTAN_PYTHON}")
endfunction()

# Debian's Python has the readers (h5py, numpy); another one earlier on PATH may not.
find_program(CAPSTAN_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(CAPSTAN_PYTHON NAMES python3)

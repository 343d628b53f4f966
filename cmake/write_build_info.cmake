# cmake -D source=... -D folder=... -P write_build_info.cmake: folder/build_info.in with
# @COMMIT@ filled in becomes folder/build_info.cpp, which is touched only when it changes.
execute_process(COMMAND git -C ${source} describe --always --dirty --tags
  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT COMMIT)
  set(COMMIT "unknown")
endif()
configure_file(${folder}/build_info.in ${folder}/build_info.cpp @ONLY)

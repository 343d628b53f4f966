#pragma once
/// \file What this program was built from: known at configure time, the commit at build
/// time. Programs link it from the library capstan_build_info.

namespace capstan {

struct BuildInfo {
  const char* version;  ///< of Capstan
  const char* commit;   ///< git describe --always --dirty, "unknown" outside a repository
  const char* build_type;  ///< Release, Debug
  const char* compiler;    ///< of the host: name and version
  const char* kokkos;      ///< version (devices)
  const char* mpi;         ///< version of the standard, "none" when switched off
  const char* hdf5;        ///< version, "none" when switched off
  const char* cuda;        ///< version of the toolkit, "none" on a host build
};

const BuildInfo& build_info();

}  // namespace capstan

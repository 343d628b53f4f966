#pragma once
/// \file The columns of the history: one list serves the text file and the HDF5 file.
#include <string>
#include <vector>

#include "comm/comm.hpp"
#include "train/report.hpp"

namespace capstan {

struct Figure {
  std::string name, unit, doc;
  bool integer = false;
  double value = 0;        ///< of a double column
  std::int64_t count = 0;  ///< of an integer column
};

/// Timer regions of a step, in the order of the columns seconds_<phase>.
const std::vector<std::string>& phase_names();

/// What turns a report into figures of the whole run.
struct RunFigures {
  int ranks = 1;
  double flops_per_token = 0;  ///< flops_published, forward and backward
  double peak_flops = 0;       ///< of one rank; 0 = unknown
  std::vector<std::string> group_names;
};

/// What is known before the update: losses, gradient and parameter norms. No
/// communication.
std::vector<Figure> early_row(const StepReport& report);
/// Names of the columns of history_row and of early_row, without a step.
std::vector<std::string> column_names(const RunFigures& figures);
std::vector<std::string> early_names();

/// The row of one step. Collective over `world`: seconds are means over ranks, memory the
/// maximum.
std::vector<Figure> history_row(const StepReport& report, const RunFigures& figures,
                                const Comm& world);

}  // namespace capstan

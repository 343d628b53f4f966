#pragma once
/// \file What a run leaves to look at: history.txt, diag/history.<seg>.h5,
/// diag/experts.<seg>.h5, timing.txt. Schemas are in postprocess/README. Rank 0 writes; a
/// file that cannot be written is reported once and training goes on.
#include <memory>
#include <string>
#include <vector>

#include "base/context.hpp"
#include "io/table.hpp"
#include "train/columns.hpp"
#include "train/history.hpp"
#include "train/run_dir.hpp"

namespace capstan {

/// What the files say about the run.
struct RunFacts {
  std::string name, deck, deck_hash, version, host;
  std::int64_t start_step = 0, ranks = 1, threads = 1;
  std::vector<std::int64_t> grid;  ///< pipe, data, expert
  std::int64_t layers = 0, experts = 0, top_k = 0;
};

class Diagnostics {
 public:
  /// `columns` of a row give names and units. HDF5 files only when `hdf5`; the experts'
  /// file gets every experts_every-th step (0 = none).
  Diagnostics(const RunDir& dir, const RunFacts& facts, bool hdf5, index_t experts_every,
              Context& ctx);
  ~Diagnostics();

  void step(const StepReport& report, const std::vector<Figure>& row);
  void eval(std::int64_t step, std::int64_t tokens, double loss);
  void event(std::int64_t step, std::int64_t tokens, const std::string& kind,
             const std::string& text);
  /// Flushes and takes the "is being written" marks off.
  void close();

 private:
  void open(const StepReport& report, const std::vector<Figure>& row);
  void open_history(const std::vector<Figure>& row);
  void open_experts();
  void set_facts(H5File& file) const;
  /// Runs f; a failure to write disables the HDF5 files with one warning.
  template <class F>
  void guarded(const F& f);

  const RunDir& dir_;
  RunFacts facts_;
  bool hdf5_;
  index_t experts_every_;
  Context& ctx_;
  std::unique_ptr<HistoryText> text_;
  std::unique_ptr<TableFile> history_, experts_;
  int steps_ = 0, layers_ = 0, evals_ = 0, events_ = 0, loads_ = 0;
  bool open_ = false;
  struct Event {
    std::int64_t step, tokens;
    std::string kind, text;
  };
  std::vector<Event> early_;  ///< before the first row
};

/// timing.txt: seconds by region (mean, least, most over ranks), rate against the
/// measured GEMM peak of one rank, then the lines `more`. Collective over `world`; rank 0
/// writes.
void write_timing(const std::string& path, int segment, std::int64_t steps,
                  std::int64_t tokens, double gemm_peak_gflops, int threads,
                  const Timers& timers, const Ledger& ledger, const std::string& more,
                  const Comm& world);

/// Rate of one large product of type S on this rank, GFLOP/s: the best of a few tries.
template <class S>
double measure_gemm_peak();

}  // namespace capstan

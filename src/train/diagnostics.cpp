#include "train/diagnostics.hpp"

#include <algorithm>
#include <ctime>
#include <numeric>

namespace capstan {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

TableColumn column(const std::string& name, Element element,
                   const std::string& unit = "1", const std::string& doc = "") {
  TableColumn c;
  c.name = name;
  c.unit = unit;
  c.doc = doc;
  c.element = element;
  return c;
}

TableColumn text_column(const std::string& name, std::size_t bytes) {
  TableColumn c = column(name, Element::text);
  c.text_bytes = bytes;
  return c;
}

/// Columns layer/<name> [layers], as figures of a report.
std::vector<std::pair<std::string, std::vector<double>>> layer_figures(
    const RouterReport& r) {
  const std::size_t layers = r.entropy.size();
  const std::size_t experts = layers > 0 ? r.load.size() / layers : 0;
  const auto part = [&](const std::vector<std::int64_t>& counts) {
    std::vector<double> fractions;
    for (std::size_t l = 0; l < counts.size(); ++l) {
      const auto first = r.load.begin() + std::ptrdiff_t(l * experts);
      const auto all =
          std::accumulate(first, first + std::ptrdiff_t(experts), std::int64_t(0));
      fractions.push_back(double(counts[l]) / double(std::max<std::int64_t>(1, all)));
    }
    return fractions;
  };
  const DropReport& d = r.drops;
  return {{"entropy", r.entropy},
          {"load_max_over_mean", r.max_over_mean},
          {"drops_sender", part(d.sender)},
          {"drops_receiver", part(d.receiver)},
          {"spilled", part(d.spilled)},
          {"pool_rows", d.pool_rows},
          {"capacity_effective", d.pool_factor},
          {"bank_rows", d.bank_rows},
          {"bank_effective", d.bank_factor},
          {"bias_min", r.bias_min},
          {"bias_max", r.bias_max}};
}

}  // namespace

Diagnostics::Diagnostics(const RunDir& dir, const RunFacts& facts, bool hdf5,
                         index_t experts_every, Context& ctx)
    : dir_(dir), facts_(facts), hdf5_(hdf5), experts_every_(experts_every), ctx_(ctx) {
  if (ctx.log.rank() == 0) text_ = std::make_unique<HistoryText>(dir.history());
}

Diagnostics::~Diagnostics() {
  try {
    close();
  } catch (const Error&) {  // a destructor may not throw, and close() has warned already
  }
}

template <class F>
void Diagnostics::guarded(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    ctx_.log.warn("diagnostics stop: %s (history.txt goes on)", error.what());
    history_.reset();
    experts_.reset();
    hdf5_ = false;
  }
}

void Diagnostics::set_facts(H5File& file) const {
  file.set("/", "format", std::int64_t(1));
  file.set("/", "run", facts_.name);
  file.set("/", "segment", std::int64_t(dir_.segment()));
  file.set("/", "start_step", facts_.start_step);
  file.set("/", "deck_hash", facts_.deck_hash);
  file.set("/", "top_k", facts_.top_k);
}

void Diagnostics::open_history(const std::vector<Figure>& row) {
  history_ = std::make_unique<TableFile>(dir_.diag("history", dir_.segment()));
  std::vector<TableColumn> columns;
  for (const Figure& f : row) {
    if (f.name == "step") continue;  // extended last: readers go by its length
    columns.push_back(
        column(f.name, f.integer ? Element::i64 : Element::f64, f.unit, f.doc));
  }
  for (const auto& figure : layer_figures(RouterReport())) {
    columns.push_back(column("layer/" + figure.first, Element::f64));
    columns.back().row_shape = {facts_.layers};
    columns.back().chunk_rows = 64;
  }
  columns.push_back(column("step", Element::i64, "1", "number of the step, from 1"));
  steps_ = history_->add_table(columns);
  evals_ = history_->add_table({column("eval/loss", Element::f64, "nats"),
                                column("eval/tokens", Element::i64, "tokens"),
                                column("eval/step", Element::i64)});
  events_ = history_->add_table({text_column("events/kind", 16),
                                 text_column("events/text", 240),
                                 column("events/tokens", Element::i64, "tokens"),
                                 column("events/step", Element::i64)});
  H5File& file = history_->file();
  set_facts(file);
  file.set("/", "deck", facts_.deck);
  file.set("/", "grid", facts_.grid);
  file.set("/", "ranks", facts_.ranks);
  file.set("/", "threads", facts_.threads);
  file.set("/", "version", facts_.version);
  file.set("/", "layers", facts_.layers);
  file.set("/", "experts", facts_.experts);
  file.set("/", "started", utc_now());
  file.set("/", "host", facts_.host);
  history_->start();
}

void Diagnostics::open_experts() {
  if (experts_every_ <= 0) return;
  experts_ = std::make_unique<TableFile>(dir_.diag("experts", dir_.segment()));
  TableColumn load = column("load", Element::i32, "assignments");
  load.row_shape = {facts_.layers, facts_.experts};
  load.chunk_rows = 1;
  loads_ = experts_->add_table({load, column("step", Element::i64)});
  set_facts(experts_->file());
  experts_->start();
}

void Diagnostics::open(const StepReport&, const std::vector<Figure>& row) {
  open_ = true;
  std::vector<std::string> names;
  for (const Figure& f : row) names.push_back(f.name);
  text_->start(dir_.segment(), facts_.start_step,
               format("deck_hash=%s grid=%lldx%lldx%lld ranks=%lld threads=%lld",
                      facts_.deck_hash.c_str(), static_cast<long long>(facts_.grid.at(0)),
                      static_cast<long long>(facts_.grid.at(1)),
                      static_cast<long long>(facts_.grid.at(2)),
                      static_cast<long long>(facts_.ranks),
                      static_cast<long long>(facts_.threads)),
               names);
  if (hdf5_) {
    guarded([&] {
      open_history(row);
      open_experts();
    });
  }
  const std::vector<Event> early = std::move(early_);
  for (const Event& e : early) event(e.step, e.tokens, e.kind, e.text);
}

void Diagnostics::step(const StepReport& report, const std::vector<Figure>& row) {
  if (!text_) return;
  if (!open_) open(report, row);
  std::vector<HistoryValue> values;
  std::vector<TableCell> cells;
  for (const Figure& f : row) {
    if (f.name == "step") {  // the table's last column
      values.emplace_back(f.count);
    } else if (f.integer) {
      values.emplace_back(f.count);
      cells.emplace_back(f.count);
    } else {
      values.emplace_back(f.value);
      cells.emplace_back(f.value);
    }
  }
  text_->row(values);
  if (!history_) return;
  for (const auto& figure : layer_figures(report.router)) {
    cells.emplace_back(figure.second);
  }
  cells.emplace_back(report.step);
  guarded([&] {
    history_->append(steps_, cells);
    if (experts_ && report.step % experts_every_ == 0) {
      experts_->append(loads_, {report.router.load, report.step});
    }
  });
}

void Diagnostics::eval(std::int64_t step, std::int64_t tokens, double loss) {
  if (!text_) return;
  text_->eval(step, tokens, loss);
  if (history_) guarded([&] { history_->append(evals_, {loss, tokens, step}); });
}

void Diagnostics::event(std::int64_t step, std::int64_t tokens, const std::string& kind,
                        const std::string& text) {
  if (!text_) return;
  if (!open_) {
    early_.push_back({step, tokens, kind, text});
    return;
  }
  text_->event(step, tokens, kind, text);
  if (history_) guarded([&] { history_->append(events_, {kind, text, tokens, step}); });
}

void Diagnostics::close() {
  guarded([&] {
    if (history_) history_->close();
    if (experts_) experts_->close();
    history_.reset();
    experts_.reset();
  });
}

}  // namespace capstan

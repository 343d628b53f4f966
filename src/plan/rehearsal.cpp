#include "plan/rehearsal.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/rng.hpp"

namespace capstan {

namespace {

/// Standard normal values from 16 random bits: quantiles of 65,536 equal parts.
class NormalTable {
 public:
  NormalTable() : values_(65536) {
    for (int i = 0; i < 65536; ++i) values_[i] = quantile((i + 0.5) / 65536.0);
  }
  float operator[](std::uint64_t bits) const { return values_[bits & 0xffff]; }

 private:
  /// Inverse of the normal distribution by Newton steps on erfc.
  static float quantile(double p) {
    double x = 0;
    for (int i = 0; i < 60; ++i) {
      const double error = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
      const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
      x -= std::clamp(error / density, -0.5, 0.5);
    }
    return static_cast<float>(x);
  }
  std::vector<float> values_;
};

/// Choices of a token: the deck's most for moe/top_k, and those of spill.
constexpr index_t kMostChoices = 256 + kSpillChoices;
/// Bins of the margins of an expert. So few that those in use stay in a core's cache:
/// with four times as many, counting them was half of the time.
constexpr int kBins = 1000;
constexpr double kRange = 10;  ///< margins beyond +- kRange count in the outermost bin

/// One layer at one step: routing of all ranks, and the histogram of margins that sets
/// the next bias.
class LayerStep {
 public:
  LayerStep(const RehearsalSpec& spec, double rho, std::uint64_t seed,
            const std::vector<float>& bias)
      : spec_(spec), rho_(rho), seed_(seed), bias_(bias), routing_(spec.ranks) {
    histogram_.assign(spec.experts * kBins, 0);
  }

  void run() {
    static const NormalTable normal;
    const int threads = static_cast<int>(std::min<index_t>(
        spec_.ranks, std::max(1u, std::thread::hardware_concurrency())));
    std::vector<std::vector<std::int32_t>> parts(
        threads, std::vector<std::int32_t>(histogram_.size(), 0));
    std::vector<std::thread> team;
    for (int i = 0; i < threads; ++i) {
      team.emplace_back([&, i] {
        for (index_t r = i; r < spec_.ranks; r += threads) route(r, normal, parts[i]);
      });
    }
    for (std::thread& t : team) t.join();
    for (const auto& part : parts) {
      for (std::size_t i = 0; i < histogram_.size(); ++i) histogram_[i] += part[i];
    }
  }

  const std::vector<Routing>& routing() const { return routing_; }
  /// Quantile balancing: minus the margin that K / E of all tokens reach, mean removed.
  std::vector<float> next_bias() const;

 private:
  void route(index_t rank, const NormalTable& normal,
             std::vector<std::int32_t>& histogram);
  void choose(const std::vector<float>& biased, Routing& to, index_t t,
              float& threshold) const;

  const RehearsalSpec& spec_;
  double rho_;
  std::uint64_t seed_;
  const std::vector<float>& bias_;
  std::vector<Routing> routing_;
  std::vector<std::int64_t> histogram_;
};

/// The best choices of token t, and the first value that is not among the best top_k.
void LayerStep::choose(const std::vector<float>& biased, Routing& to, index_t t,
                       float& threshold) const {
  const index_t n = to.choices;
  float best[kMostChoices] = {};
  std::int16_t* experts = &to.experts[t * n];
  index_t held = 0;
  for (index_t e = 0; e < spec_.experts; ++e) {
    const float v = biased[e];
    if (held == n && v <= best[n - 1]) continue;
    index_t at = held < n ? held++ : n - 1;
    for (; at > 0 && best[at - 1] < v; --at) {
      best[at] = best[at - 1];
      experts[at] = experts[at - 1];
    }
    best[at] = v;
    experts[at] = static_cast<std::int16_t>(e);
  }
  threshold = best[std::min(spec_.top_k, n - 1)];
}

void LayerStep::route(index_t rank, const NormalTable& normal,
                      std::vector<std::int32_t>& histogram) {
  const index_t e = spec_.experts;
  Routing& to = routing_[rank];
  to.tokens = spec_.sequences * spec_.tokens;
  to.choices = std::min<index_t>(e, spec_.top_k + kSpillChoices);
  to.experts.resize(to.tokens * to.choices);
  const Rng rng(seed_, static_cast<std::uint64_t>(rank));
  const float common = static_cast<float>(std::sqrt(rho_));
  const float own = static_cast<float>(std::sqrt(1 - rho_));
  std::vector<float> shared(e), logits(e), biased(e);
  std::uint64_t counter = 0;
  const auto draw = [&](std::vector<float>& out) {
    for (index_t i = 0; i < e; i += 4) {
      const std::uint64_t bits = rng.bits(counter++);
      for (index_t j = i; j < std::min(e, i + 4); ++j)
        out[j] = normal[bits >> (16 * (j - i))];
    }
  };
  const float scale = static_cast<float>(kBins / (2 * kRange));
  for (index_t t = 0; t < to.tokens; ++t) {
    if (t % spec_.tokens == 0) draw(shared);
    draw(logits);
    for (index_t i = 0; i < e; ++i) {
      logits[i] = common * shared[i] + own * logits[i];
      biased[i] = logits[i] + bias_[i];
    }
    float threshold = 0;
    choose(biased, to, t, threshold);
    for (index_t i = 0; i < e; ++i) {
      const float at = (logits[i] - threshold + static_cast<float>(kRange)) * scale;
      const int bin = std::clamp(static_cast<int>(at), 0, kBins - 1);
      ++histogram[i * kBins + bin];
    }
  }
}

std::vector<float> LayerStep::next_bias() const {
  const double tokens = double(spec_.ranks * spec_.sequences * spec_.tokens);
  const double target = tokens * double(spec_.top_k) / double(spec_.experts);
  std::vector<float> bias(spec_.experts);
  double mean = 0;
  for (index_t e = 0; e < spec_.experts; ++e) {
    double seen = 0;
    int bin = kBins - 1;
    for (; bin > 0 && seen + double(histogram_[e * kBins + bin]) < target; --bin) {
      seen += double(histogram_[e * kBins + bin]);
    }
    const double inside =
        (target - seen) / std::max<double>(1, double(histogram_[e * kBins + bin]));
    const double beta = (bin + 1 - inside) * 2 * kRange / kBins - kRange;
    bias[e] = static_cast<float>(-beta);
    mean += beta / double(spec_.experts);
  }
  for (float& b : bias) b += static_cast<float>(mean);
  return bias;
}

double max_over_mean(const std::vector<Routing>& routing, index_t experts,
                     index_t top_k) {
  std::vector<std::int64_t> load(experts, 0);
  std::int64_t total = 0;
  for (const Routing& r : routing) {
    for (index_t t = 0; t < r.tokens; ++t) {
      for (index_t k = 0; k < top_k; ++k) ++load[r.at(t, k)];
    }
    total += r.tokens * top_k;
  }
  return double(*std::max_element(load.begin(), load.end())) * double(experts) /
         double(total);
}

}  // namespace

RehearsalResult rehearse(const RehearsalSpec& spec,
                         const std::vector<TransportSpec>& transports) {
  constexpr int kWarmUp = 2;
  RehearsalResult result;
  result.total.resize(transports.size());
  result.by_layer.assign(transports.size(),
                         std::vector<DropCount>(spec.correlation.size()));
  for (std::size_t layer = 0; layer < spec.correlation.size(); ++layer) {
    std::vector<float> bias(spec.experts, 0);
    for (int step = 0; step < kWarmUp + spec.steps; ++step) {
      const std::uint64_t seed = mix64(spec.seed * 1000003 + layer * 1009 + step);
      LayerStep run(spec, spec.correlation[layer], seed, bias);
      run.run();
      if (step >= kWarmUp) {
        for (std::size_t i = 0; i < transports.size(); ++i) {
          const DropCount count =
              rehearse_exchange(transports[i], run.routing(), spec.experts, spec.top_k);
          result.total[i].add(count);
          result.by_layer[i][layer].add(count);
        }
        result.load_max_over_mean +=
            max_over_mean(run.routing(), spec.experts, spec.top_k) /
            double(spec.correlation.size() * spec.steps);
      }
      bias = run.next_bias();
    }
  }
  return result;
}

RehearsalResult rehearse_routing(const std::vector<std::vector<Routing>>& layers,
                                 index_t experts, index_t top_k,
                                 const std::vector<TransportSpec>& transports) {
  RehearsalResult result;
  result.total.resize(transports.size());
  result.by_layer.resize(transports.size());
  for (const auto& routing : layers) {
    for (std::size_t i = 0; i < transports.size(); ++i) {
      const DropCount count = rehearse_exchange(transports[i], routing, experts, top_k);
      result.total[i].add(count);
      result.by_layer[i].push_back(count);
    }
    result.load_max_over_mean +=
        max_over_mean(routing, experts, top_k) / double(layers.size());
  }
  return result;
}

std::vector<double> published_correlations(int layers) {
  std::vector<double> rho;
  const double middle = std::log(0.24 / 0.76);
  for (int i = 0; i < layers; ++i) {
    // Quantile of the standard normal distribution by bisection.
    const double p = (i + 0.5) / layers;
    double lo = -8, hi = 8;
    for (int step = 0; step < 60; ++step) {
      const double x = 0.5 * (lo + hi);
      (0.5 * std::erfc(-x / std::sqrt(2.0)) < p ? lo : hi) = x;
    }
    rho.push_back(1 / (1 + std::exp(-(middle + 0.9 * lo))));
  }
  return rho;
}

}  // namespace capstan

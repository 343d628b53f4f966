#pragma once
/// \file Exchange of a random routing over the ranks of a group, and an oracle that sees
/// all tokens of all ranks and follows the rules of the manual one assignment at a time.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>

#include "model/moe/transport.hpp"
#include "unit/check.hpp"

namespace capstan::test {

/// Routing of all ranks of a group. experts [T, K] of each rank, -1 = padding.
struct Routing {
  index_t ranks = 1, local = 4, k = 2;
  std::vector<std::vector<std::int32_t>> experts, next;
  std::vector<Values> weights;
  index_t n_experts() const { return ranks * local; }
  index_t tokens(index_t r) const { return static_cast<index_t>(experts[r].size()) / k; }
  index_t valid(index_t r) const {
    index_t n = 0;
    for (index_t t = 0; t < tokens(r); ++t) n += experts[r][t * k] >= 0 ? 1 : 0;
    return n;
  }
};

/// `tokens` tokens on each rank (some fewer when `odd`); `pull` of them are drawn to low
/// experts; one in `padding` tokens is padding (0 = none).
inline Routing random_routing(index_t ranks, index_t local, index_t k, index_t tokens,
                              std::uint64_t seed, int padding = 5, bool odd = true) {
  Routing r;
  r.ranks = ranks;
  r.local = local;
  r.k = k;
  for (index_t rank = 0; rank < ranks; ++rank) {
    const Rng rng(seed * 1000 + static_cast<std::uint64_t>(rank), 21);
    const index_t n = odd ? tokens - rank % 3 : tokens;
    std::uint64_t draw = 0;
    r.experts.emplace_back();
    r.next.emplace_back();
    r.weights.emplace_back();
    for (index_t t = 0; t < n; ++t) {
      const bool pad = padding > 0 && rng.bits(draw++) % padding == 0;
      std::vector<std::int32_t> order;  // all experts, the wanted ones first
      while (static_cast<index_t>(order.size()) < r.n_experts()) {
        const std::uint64_t a = rng.bits(draw++) % r.n_experts();
        const std::uint64_t b = rng.bits(draw++) % r.n_experts();
        const auto e = static_cast<std::int32_t>(std::min(a, b));
        if (std::find(order.begin(), order.end(), e) == order.end()) order.push_back(e);
      }
      for (index_t i = 0; i < k; ++i) {
        r.experts.back().push_back(pad ? -1 : order[i]);
        r.weights.back().push_back(pad ? 0 : rng.uniform(draw++));
      }
      for (index_t i = k; i < k + kSpillChoices; ++i)
        r.next.back().push_back(!pad && i < r.n_experts() ? order[i] : -1);
    }
  }
  return r;
}

/// What became of the assignments of each rank: the expert that computes, -1 = dropped or
/// padding; and drops by cause.
struct Outcome {
  std::vector<std::vector<std::int32_t>> by;
  std::vector<std::int64_t> sender, receiver, spilled;
};

/// The rules, for all ranks at once, assignment by assignment.
class Oracle {
 public:
  Oracle(const Routing& r, const TransportSpec& spec) : r_(r), spec_(spec) {
    out_.by = r.experts;
    out_.sender.assign(r.ranks, 0);
    out_.receiver.assign(r.ranks, 0);
    out_.spilled.assign(r.ranks, 0);
    for (index_t s = 0; s < r.ranks; ++s) mean_ += double(r.valid(s) * r.k);
    mean_ /= double(r.ranks);
  }
  Outcome run() {
    if (spec_.kind == Transport::cells || spec_.kind == Transport::spill) cells();
    if (spec_.kind == Transport::spill) spill();
    if (spec_.kind == Transport::pooled_wave) pooled();
    if (spec_.kind == Transport::ragged) ragged();
    if (spec_.kind == Transport::waterfill) waterfill();
    return out_;
  }

 private:
  struct Assignment {
    index_t rank, a;
  };
  static index_t up(double x) { return std::max<index_t>(1, std::ceil(x - 1e-9)); }
  std::int32_t expert(const Assignment& x) const { return r_.experts[x.rank][x.a]; }
  /// Assignments of `rank` whose key is `key`, the ones to keep first.
  template <class Key>
  std::vector<Assignment> list(index_t rank, index_t key, const Key& key_of) const {
    std::vector<Assignment> found;
    for (index_t a = 0; a < static_cast<index_t>(r_.experts[rank].size()); ++a) {
      const std::int32_t e = r_.experts[rank][a];
      if (e >= 0 && key_of(e) == key) found.push_back({rank, a});
    }
    if (spec_.policy == DropPolicy::weight) {
      std::stable_sort(found.begin(), found.end(),
                       [&](const Assignment& x, const Assignment& y) {
                         return r_.weights[rank][x.a] > r_.weights[rank][y.a];
                       });
    }
    return found;
  }
  void drop(const Assignment& x, std::vector<std::int64_t>& cause) {
    out_.by[x.rank][x.a] = -1;
    ++cause[x.rank];
  }
  double own(index_t s) const { return double(r_.valid(s) * r_.k); }

  void cells() {
    for (index_t s = 0; s < r_.ranks; ++s) {
      const index_t room = up(spec_.capacity_send * own(s) / double(r_.n_experts()));
      for (index_t e = 0; e < r_.n_experts(); ++e) {
        const auto all = list(s, e, [](std::int32_t x) { return x; });
        for (index_t i = room; i < static_cast<index_t>(all.size()); ++i)
          drop(all[i], out_.sender);
      }
    }
  }
  void spill() {
    for (index_t s = 0; s < r_.ranks; ++s) {
      const index_t room = up(spec_.capacity_send * own(s) / double(r_.n_experts()));
      std::map<std::int32_t, index_t> used;
      for (const std::int32_t e : out_.by[s]) ++used[e];
      for (index_t round = 0; round < 3; ++round) {
        for (index_t t = 0; t < r_.tokens(s); ++t) {
          for (index_t a = t * r_.k; a < (t + 1) * r_.k; ++a) {
            if (r_.experts[s][a] < 0 || out_.by[s][a] >= 0) continue;
            const std::int32_t e = r_.next[s][t * 3 + round];
            if (e >= 0 && used[e] < room) {
              ++used[e];
              out_.by[s][a] = e;
              --out_.sender[s];
              ++out_.spilled[s];
            }
            break;  // a choice serves one assignment of the token
          }
        }
      }
    }
  }
  void pooled() {
    const index_t w_n = spec_.waves;
    const index_t bank = up(spec_.capacity_receive * mean_ / double(r_.local * w_n));
    // Waiting [wave][destination][slot], senders in order.
    std::map<std::array<index_t, 3>, std::vector<Assignment>> waiting;
    for (index_t s = 0; s < r_.ranks; ++s) {
      const index_t pool = up(spec_.capacity_send * own(s) / double(r_.ranks * w_n));
      for (index_t d = 0; d < r_.ranks; ++d) {
        auto all = list(s, d, [&](std::int32_t e) { return e / r_.local; });
        while (static_cast<index_t>(all.size()) > pool * w_n) {
          drop(all.back(), out_.sender);
          all.pop_back();
        }
        std::sort(all.begin(), all.end(),
                  [](const Assignment& x, const Assignment& y) { return x.a < y.a; });
        for (index_t i = 0; i < static_cast<index_t>(all.size()); ++i)
          waiting[{i % w_n, d, i / w_n}].push_back(all[i]);
      }
    }
    std::map<std::array<index_t, 2>, index_t> used;  // [wave, expert]
    for (const auto& [place, list] : waiting) {
      for (const Assignment& x : list)
        if (used[{place[0], expert(x)}]++ >= bank) drop(x, out_.receiver);
    }
  }
  /// Keeps `room` assignments for expert e, over all senders.
  void keep(index_t e, index_t room) {
    std::vector<std::vector<Assignment>> all;
    std::vector<index_t> granted(r_.ranks, 0);
    for (index_t s = 0; s < r_.ranks; ++s)
      all.push_back(list(s, e, [](std::int32_t x) { return x; }));
    if (spec_.policy == DropPolicy::rotate) {
      // By turns; the turn that cannot be given to all begins at sender e mod ranks.
      for (bool some = true; some && room > 0;) {
        std::vector<index_t> hungry;
        for (index_t i = 0; i < r_.ranks; ++i) {
          const index_t s = (e + i) % r_.ranks;
          if (granted[s] < static_cast<index_t>(all[s].size())) hungry.push_back(s);
        }
        some = !hungry.empty();
        for (const index_t s : hungry) {
          if (room == 0) break;
          ++granted[s];
          --room;
        }
      }
    } else {
      for (index_t s = 0; s < r_.ranks; ++s) {
        granted[s] = std::min<index_t>(room, static_cast<index_t>(all[s].size()));
        room -= granted[s];
      }
    }
    for (index_t s = 0; s < r_.ranks; ++s)
      for (index_t i = granted[s]; i < static_cast<index_t>(all[s].size()); ++i)
        drop(all[s][i], out_.receiver);
  }
  index_t wanted(index_t e) const {
    index_t n = 0;
    for (const auto& list : r_.experts)
      n += std::count(list.begin(), list.end(), static_cast<std::int32_t>(e));
    return n;
  }
  void ragged() {
    const index_t room = up(spec_.capacity_receive * mean_ / double(spec_.waves));
    const index_t part = r_.local / spec_.waves;
    for (index_t first = 0; first < r_.n_experts(); first += part) {
      index_t left = room;
      for (index_t e = first; e < first + part; ++e) {
        keep(e, left);
        left = std::max<index_t>(0, left - wanted(e));
      }
    }
  }
  void waterfill() {
    const index_t floor = up(spec_.capacity_receive * mean_ / double(r_.local));
    for (index_t d = 0; d < r_.ranks; ++d) {
      index_t slack = 0;
      for (index_t e = d * r_.local; e < (d + 1) * r_.local; ++e)
        slack += std::max<index_t>(0, floor - wanted(e));
      for (index_t e = d * r_.local; e < (d + 1) * r_.local; ++e) {
        const index_t extra = std::min(slack, std::max<index_t>(0, wanted(e) - floor));
        slack -= extra;
        keep(e, floor + extra);
      }
    }
  }

  const Routing& r_;
  TransportSpec spec_;
  Outcome out_;
  double mean_ = 0;  ///< assignments of a rank, mean of the group
};

/// Plan, forward and backward of one rank with experts y = (e + 2) x.
class Exchange {
 public:
  Exchange(const Routing& r, const TransportSpec& spec, const Grid& grid, Context& ctx,
           index_t z)
      : r_(r),
        grid_(grid),
        ctx_(ctx),
        z_(z),
        me_(grid.expert),
        t_(r.tokens(me_)),
        want_(Oracle(r, spec).run()),
        weights_(view2<double>(t_, r.k, r.weights[me_])) {
    const auto ints = [&](const std::vector<std::int32_t>& v, index_t width) {
      const auto copy = ctx.arena.take2<std::int32_t>("test", t_, width);
      copy_to_device(v.data(), copy.data(), static_cast<index_t>(v.size()));
      return copy;
    };
    a_.experts = ints(r.experts[me_], r.k);
    a_.routed = ints(r.experts[me_], r.k);
    a_.next = ints(r.next[me_], kSpillChoices);
    a_.weights = [&r, me = me_] { return r.weights[me]; };
    for (index_t s = 0; s < r.ranks; ++s) a_.valid.push_back(r.valid(s));
    a_.n_experts = r.n_experts();
    a_.width = z;
    plan_ = make_dispatch(spec, a_, grid, ctx);
    for (const Wave& w : plan_.waves) rows_.push_back(take(w.room, z));
  }

  /// x [T, Z] -> every token's weighted sum over its kept experts.
  Values forward(const Values& x) {
    const auto send = take(plan_.sent, z_);
    gather_rows<double>(view2<double>(t_, z_, x), plan_.order, r_.k, send);
    if (plan_.headers)
      pack_ids<double>(plan_.order, flat(a_.experts), r_.local, plan_.layout, send);
    back_ = plan_.travels ? send : take(plan_.sent, z_);
    travel(send, back_);
    settle<double>(plan_, back_, ctx_);
    const auto out = take(t_, z_);
    combine<double>(back_, plan_.slot, weights_, out);
    return values(out);
  }

  /// Gradients of x and of the weights, from g [T, Z] of the sums.
  std::pair<Values, Values> backward(const Values& g) {
    const auto d_weights = take(t_, r_.k), d_back = take(plan_.sent, z_);
    combine_backward<double>(back_, plan_.order, plan_.slot, weights_,
                             view2<double>(t_, z_, g), d_back, d_weights);
    const auto d_send = plan_.travels ? d_back : take(plan_.sent, z_);
    travel(d_back, d_send);
    const auto d_x = take(t_, z_);
    gather_rows_backward<double>(d_send, plan_.slot, r_.k, d_x);
    return {values(d_x), values(d_weights)};
  }

  const DispatchPlan& plan() const { return plan_; }

  /// What was kept, by whom, and why not.
  void check_outcome() const {
    const Values slot = values(plan_.slot), by = values(a_.routed);
    for (index_t i = 0; i < t_ * r_.k; ++i) {
      const std::int32_t expert = slot[i] >= 0 ? std::int32_t(by[i]) : -1;
      EXPECT_EQ(expert, want_.by[me_][i]) << "rank " << me_ << " assignment " << i;
    }
    const DropTally& tally = plan_.tally;
    EXPECT_EQ(tally.assignments, r_.valid(me_) * r_.k);
    EXPECT_EQ(tally.sender, want_.sender[me_]);
    EXPECT_EQ(tally.receiver, want_.receiver[me_]);
    EXPECT_EQ(tally.spilled, want_.spilled[me_]);
    EXPECT_EQ(grid_.expert_group.all_reduce_value(tally.kept, Reduce::sum),
              grid_.expert_group.all_reduce_value(tally.computed, Reduce::sum));
  }

  /// The sums and gradients that the oracle's outcome gives.
  void check_values(const Values& x, const Values& out, const Values& g,
                    const Values& d_x, const Values& d_weights) const {
    Values y(t_ * z_, 0.0), dx(t_ * z_, 0.0), dw(t_ * r_.k, 0.0);
    for (index_t i = 0; i < t_ * r_.k; ++i) {
      if (want_.by[me_][i] < 0) continue;
      const double factor = double(want_.by[me_][i] + 2);
      for (index_t c = i / r_.k * z_; c < (i / r_.k + 1) * z_; ++c) {
        y[c] += r_.weights[me_][i] * factor * x[c];
        dx[c] += r_.weights[me_][i] * factor * g[c];
        dw[i] += factor * x[c] * g[c];
      }
    }
    EXPECT_LT(relative_error(out, y), 1e-14);
    EXPECT_LT(relative_error(d_x, dx), 1e-14);
    EXPECT_LT(relative_error(d_weights, dw), 1e-14);
  }

 private:
  View2<double> take(index_t n0, index_t n1) {
    return ctx_.arena.take2<double>("test", n0, n1);
  }
  void travel(View2<double> send, View2<double> back) {
    const auto work = [&](index_t w, View2<double> in, View2<double> out) {
      const auto& offsets = plan_.waves[w].offsets;
      Values v = values(in);
      for (index_t e = 0; e < r_.local; ++e)
        for (index_t i = offsets[e] * z_; i < offsets[e + 1] * z_; ++i)
          v[i] *= double(me_ * r_.local + e + 2);
      copy_to_device(v.data(), out.data(), static_cast<index_t>(v.size()));
    };
    through_experts<double>(plan_, send, back, rows_, work, grid_, ctx_);
  }

  const Routing& r_;
  const Grid& grid_;
  Context& ctx_;
  index_t z_, me_, t_;
  Outcome want_;
  View2<double> weights_, back_;
  Assignments a_;
  DispatchPlan plan_;
  std::vector<View2<double>> rows_;
};

/// Everything of one exchange against the oracle.
inline void check_exchange(const Routing& r, const TransportSpec& spec, const Grid& grid,
                           Context& ctx, index_t z = 3) {
  const ArenaScope scope(ctx.arena);
  const auto rank = static_cast<std::uint64_t>(grid.expert);
  const index_t n = r.tokens(grid.expert) * z;
  const Values x = normal_values(n, 7 + rank), g = normal_values(n, 700 + rank);
  Exchange exchange(r, spec, grid, ctx, z);
  const Values out = exchange.forward(x);
  exchange.check_outcome();
  const auto [d_x, d_weights] = exchange.backward(g);
  exchange.check_values(x, out, g, d_x, d_weights);
}

inline const std::vector<Transport> kAllTransports = {
    Transport::dropless, Transport::cells,     Transport::spill,
    Transport::ragged,   Transport::waterfill, Transport::pooled_wave};

/// Fills the arena's free memory with NaN, so that nothing can rest on what is in it.
template <class S>
void poison(Arena& arena) {
  const ArenaScope scope(arena);
  const index_t before = arena.capacity();
  while (arena.capacity() == before && before > 0) {
    const auto piece = arena.take1<S>("poison", 1 << 14);
    if (arena.capacity() == before) fill(piece, std::numeric_limits<S>::quiet_NaN());
  }
  fence();
}

}  // namespace capstan::test

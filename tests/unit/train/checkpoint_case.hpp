#pragma once
/// \file A small state of several tensors whose values are known, split in several ways.
#include <cmath>
#include <filesystem>
#include <vector>

#include "base/error.hpp"
#include "train/checkpoint.hpp"
#include "unit/io/folder.hpp"

namespace capstan::test {

/// Value of element i of tensor t in version v of the state.
inline double state_value(int t, index_t i, int v) {
  return static_cast<double>((i * 7 + t * 1000 + v * 100000) % 1000003);
}

struct CaseTensor {
  std::string name;
  Element element;
  Extents shape;
};

inline std::vector<CaseTensor> case_tensors() {
  return {{"params/embed/table", Element::f32, {10, 3}},
          {"params/layer_000/moe/w_up", Element::f64, {8, 4, 2}},
          {"params/layer_000/moe/router_bias", Element::f32, {8}},
          {"optimizer/first/embed/table", Element::f32, {10, 3}},
          {"counters/seen", Element::i32, {5}}};
}

enum class Split { even, last_rank_all, first_rank_one, everybody_all };

/// The rows of an axis of n rows that a rank holds.
inline std::pair<index_t, index_t> rows_of(Split split, index_t n, int rank, int size) {
  const auto even = [](index_t rows, int r, int ranks) {
    return std::pair<index_t, index_t>(rows * r / ranks,
                                       rows * (r + 1) / ranks - rows * r / ranks);
  };
  if (split == Split::everybody_all) return {0, n};
  if (split == Split::even || size == 1) return even(n, rank, size);
  if (split == Split::last_rank_all) return {0, rank == size - 1 ? n : 0};
  if (rank == 0) return {0, 1};
  const auto [first, rows] = even(n - 1, rank - 1, size - 1);
  return {first + 1, rows};
}

/// The state of one rank: a host buffer and a piece per tensor.
class CaseState {
 public:
  CaseState(const std::vector<CaseTensor>& tensors, Split split, int rank, int size) {
    buffers_.resize(tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const CaseTensor& about = tensors[t];
      const auto [row0, rows] = rows_of(split, about.shape[0], rank, size);
      TensorPiece piece{about.name, about.element, about.shape, row0, rows, {}, {}};
      const index_t row =
          piece.row_size() * static_cast<index_t>(bytes_of(about.element));
      std::vector<char>& buffer = buffers_[t];
      buffer.assign(rows * row, '\xff');
      piece.fetch = [&buffer, row](index_t first, index_t n, void* host) {
        std::copy_n(buffer.data() + first * row, n * row, static_cast<char*>(host));
      };
      piece.store = [&buffer, row](index_t first, index_t n, const void* host) {
        std::copy_n(static_cast<const char*>(host), n * row, buffer.data() + first * row);
      };
      pieces.push_back(std::move(piece));
    }
  }
  CaseState(const CaseState&) = delete;

  void fill(int version) {
    for (std::size_t t = 0; t < pieces.size(); ++t)
      for (index_t i = 0; i < elements(t); ++i)
        put(t, i, state_value(int(t), global(t, i), version));
  }
  /// Elements that differ from the version.
  index_t wrong(int version) const {
    index_t n = 0;
    for (std::size_t t = 0; t < pieces.size(); ++t)
      for (index_t i = 0; i < elements(t); ++i)
        n += get(t, i) != state_value(int(t), global(t, i), version);
    return n;
  }

  std::vector<TensorPiece> pieces;

 private:
  index_t elements(std::size_t t) const { return pieces[t].rows * pieces[t].row_size(); }
  index_t global(std::size_t t, index_t i) const {
    return pieces[t].row0 * pieces[t].row_size() + i;
  }
  void put(std::size_t t, index_t i, double x) {
    char* p = buffers_[t].data();
    switch (pieces[t].element) {
      case Element::f64:
        reinterpret_cast<double*>(p)[i] = x;
        break;
      case Element::f32:
        reinterpret_cast<float*>(p)[i] = static_cast<float>(x);
        break;
      default:
        reinterpret_cast<std::int32_t*>(p)[i] = static_cast<std::int32_t>(x);
    }
  }
  double get(std::size_t t, index_t i) const {
    const char* p = buffers_[t].data();
    switch (pieces[t].element) {
      case Element::f64:
        return reinterpret_cast<const double*>(p)[i];
      case Element::f32:
        return reinterpret_cast<const float*>(p)[i];
      default:
        return reinterpret_cast<const std::int32_t*>(p)[i];
    }
  }
  std::vector<std::vector<char>> buffers_;
};

/// What main programs record with a checkpoint, in small.
inline Attributes case_attributes(index_t step) {
  return {
      {"tokens", step * 100}, {"deck", std::string("<job>\nname = x\n")}, {"rate", 0.25}};
}

/// The text of the Error(Exit::file) that f throws; "" when it throws none.
template <class F>
std::string file_error(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code() == Exit::file ? e.what() : std::string("another code: ") + e.what();
  }
  return "";
}

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace capstan::test

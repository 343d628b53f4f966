#pragma once
/// \file Token embedding.
#include <vector>

#include "base/types.hpp"

namespace capstan {

/// y[t] = table[tokens[t]]; a token < 0 gives 0. table [V, D], y [T, D].
template <class S>
void embedding(View1<const std::int32_t> tokens, View2<const S> table, View2<S> y);

/// Rows of a batch grouped by token, made on the host: order [T] lists rows sorted by
/// (token, row); starts [n + 1] delimit the groups of equal token; tokens [n]. Rows with
/// token < 0 are left out.
struct TokenGroups {
  std::vector<std::int32_t> order, starts, tokens;
};
TokenGroups group_tokens(const std::int32_t* tokens, index_t n);

/// d_table[token] += sum of dy over its rows, in row order.
template <class S>
void embedding_backward(View1<const std::int32_t> order, View1<const std::int32_t> starts,
                        View1<const std::int32_t> tokens, View2<const S> dy,
                        View2<Acc<S>> d_table);

}  // namespace capstan

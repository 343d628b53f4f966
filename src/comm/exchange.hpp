#pragma once
/// \file Exchange plan: who sends how many rows to whom. Built once, used forward (rows
/// out) and in reverse (rows back), as in Cabana's Distributor.
#include "comm/comm.hpp"

namespace capstan {

struct ExchangePlan {
  Comm comm = Comm::self();
  std::vector<index_t> send_rows;  ///< [size] rows that go to each rank, in rank order
  std::vector<index_t>
      receive_rows;  ///< [size] rows that come from each rank, in rank order
  index_t rows_sent = 0, rows_received = 0;  ///< sums over ranks

  /// Collective: from each rank's own send counts (host). One small all-to-all.
  static ExchangePlan build(const Comm& comm, std::vector<index_t> send_rows);
  /// When both sides are known already.
  static ExchangePlan build(const Comm& comm, std::vector<index_t> send_rows,
                            std::vector<index_t> receive_rows);

  /// Device memory: send [rows_sent, width] sorted by destination rank -> receive
  /// [rows_received, width] sorted by source rank.
  template <class T>
  Pending forward(const T* send, T* receive, index_t width) const {
    return comm.all_to_all_v(send, send_rows, receive, receive_rows, width);
  }
  /// The way back: rows [rows_received, width] -> rows [rows_sent, width], each to its
  /// origin.
  template <class T>
  Pending reverse(const T* rows, T* back, index_t width) const {
    return comm.all_to_all_v(rows, receive_rows, back, send_rows, width);
  }
};

}  // namespace capstan

#include "comm/exchange.hpp"

#include <numeric>

#include "base/error.hpp"

namespace capstan {

ExchangePlan ExchangePlan::build(const Comm& comm, std::vector<index_t> send_rows) {
  require(static_cast<int>(send_rows.size()) == comm.size(),
          "exchange plan: one count for each rank");
  std::vector<index_t> receive_rows(send_rows.size());
  comm.all_to_all_host(send_rows.data(), receive_rows.data(), 1);
  return build(comm, std::move(send_rows), std::move(receive_rows));
}

ExchangePlan ExchangePlan::build(const Comm& comm, std::vector<index_t> send_rows,
                                 std::vector<index_t> receive_rows) {
  require(static_cast<int>(send_rows.size()) == comm.size() &&
              static_cast<int>(receive_rows.size()) == comm.size(),
          "exchange plan: one count for each rank");
  ExchangePlan plan;
  plan.comm = comm;
  plan.rows_sent = std::accumulate(send_rows.begin(), send_rows.end(), index_t(0));
  plan.rows_received =
      std::accumulate(receive_rows.begin(), receive_rows.end(), index_t(0));
  plan.send_rows = std::move(send_rows);
  plan.receive_rows = std::move(receive_rows);
  return plan;
}

}  // namespace capstan

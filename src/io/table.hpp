#pragma once
/// \file Columns that grow by rows, in a file that others read while it is written (SWMR)
/// and after the writer was killed.
#include <chrono>
#include <memory>

#include "io/file.hpp"

namespace capstan {

/// One column: a dataset [rows, row_shape...].
struct TableColumn {
  std::string name;  ///< path in the file, such as "layer/entropy"
  std::string unit = "1", doc = "";
  Element element = Element::f64;
  Extents row_shape = {};      ///< empty: one value a row
  std::size_t text_bytes = 0;  ///< of Element::text
  std::int64_t chunk_rows = 256;
};

/// The value of a column in a row. Integers and doubles are converted to the column's
/// type; arrays must have as many elements as the column's row; longer texts are cut.
using TableCell = std::variant<std::int64_t, double, std::string, std::vector<double>,
                               std::vector<std::int64_t>>;

/// A file of one or more tables. Use: add_table and file().set(...), start(), then
/// append. Rows gather in memory until flush(), or until `flush_seconds` have passed at
/// an append.
class TableFile {
 public:
  explicit TableFile(const std::string& path, double flush_seconds = 1);
  ~TableFile();
  TableFile(const TableFile&) = delete;

  H5File& file() { return file_; }
  /// Columns that grow together. The last column is extended last in every flush: rows
  /// are complete up to its length. Returns the number of the table.
  int add_table(const std::vector<TableColumn>& columns);
  /// No objects or attributes may be added from here on; readers may come.
  void start();
  /// One value for each column, in order.
  void append(int table, const std::vector<TableCell>& row);
  void flush();
  /// Flushes and takes the "is being written" mark off.
  void close();
  std::int64_t rows(int table) const;

 private:
  struct Table;
  H5File file_;
  double flush_seconds_;
  std::chrono::steady_clock::time_point last_flush_;
  std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace capstan

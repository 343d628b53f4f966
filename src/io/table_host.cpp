#include "io/table.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "io/guard_host.hpp"

namespace capstan {

using h5::check;
using h5::Guard;
using h5::Handle;

namespace {

/// A column's open dataset and the rows that are not in the file yet.
struct Growing {
  TableColumn column;
  Handle set, type;
  std::size_t row_bytes = 0;
  std::vector<char> waiting;

  void create(const H5File& file);
  void add(const TableCell& cell);
  /// Bytes that the file may need for the waiting rows: whole chunks.
  std::int64_t room() const {
    if (waiting.empty()) return 0;
    return static_cast<std::int64_t>(waiting.size() + 2 * row_bytes * column.chunk_rows);
  }
  void write(std::int64_t rows_before, std::int64_t rows_more, const std::string& path);
};

void Growing::create(const H5File& file) {
  const std::string& path = file.path();
  const std::size_t bytes =
      column.element == Element::text ? column.text_bytes : bytes_of(column.element);
  row_bytes = bytes * count_of(column.row_shape);
  type = h5::type_of(column.element, column.text_bytes);
  Extents now = column.row_shape, most = column.row_shape, chunk = column.row_shape;
  now.insert(now.begin(), 0);
  most.insert(most.begin(), -1);
  chunk.insert(chunk.begin(), column.chunk_rows);
  const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make a property list",
                    path);
  const std::vector<hsize_t> c(chunk.begin(), chunk.end());
  check(H5Pset_chunk(list, static_cast<int>(c.size()), c.data()), "set chunks", path);
  if (column.element == Element::f64 || column.element == Element::f32) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    check(H5Pset_fill_value(list, H5T_NATIVE_DOUBLE, &nan), "set a fill value", path);
  }
  set = Handle(H5Dcreate2(file.id(), column.name.c_str(), type,
                          h5::simple_space(now, most), h5::parents(), list, H5P_DEFAULT),
               H5Dclose, "create column " + column.name, path);
}

template <class T>
void put(std::vector<char>& out, T x) {
  const char* p = reinterpret_cast<const char*>(&x);
  out.insert(out.end(), p, p + sizeof x);
}

/// A number in the column's type.
template <class T>
void put_number(std::vector<char>& out, Element element, T x) {
  switch (element) {
    case Element::f64:
      return put(out, static_cast<double>(x));
    case Element::f32:
      return put(out, static_cast<float>(x));
    case Element::i64:
      return put(out, static_cast<std::int64_t>(x));
    case Element::i32:
      return put(out, static_cast<std::int32_t>(x));
    case Element::u64:
      return put(out, static_cast<std::uint64_t>(x));
    case Element::u8:
      return put(out, static_cast<std::uint8_t>(x));
    case Element::bf16:
    case Element::text:
      break;
  }
  throw Error(Exit::internal, "a number for a column of another kind");
}

void Growing::add(const TableCell& cell) {
  const std::size_t before = waiting.size();
  if (const auto* text = std::get_if<std::string>(&cell)) {
    if (column.element != Element::text)
      throw Error(Exit::internal, "a text for column " + column.name);
    waiting.resize(before + row_bytes, '\0');
    std::memcpy(waiting.data() + before, text->data(), std::min(text->size(), row_bytes));
  } else if (const auto* reals = std::get_if<std::vector<double>>(&cell)) {
    for (const double x : *reals) put_number(waiting, column.element, x);
  } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&cell)) {
    for (const std::int64_t x : *integers) put_number(waiting, column.element, x);
  } else if (const auto* x = std::get_if<double>(&cell)) {
    put_number(waiting, column.element, *x);
  } else {
    put_number(waiting, column.element, std::get<std::int64_t>(cell));
  }
  if (waiting.size() != before + row_bytes)
    throw Error(Exit::internal, "a row of the wrong size for column " + column.name);
}

void Growing::write(std::int64_t rows_before, std::int64_t rows_more,
                    const std::string& path) {
  const std::string what = "write column " + column.name;
  Extents now = column.row_shape, start(now.size() + 1, 0), count = column.row_shape;
  now.insert(now.begin(), rows_before + rows_more);
  start[0] = rows_before;
  count.insert(count.begin(), rows_more);
  const std::vector<hsize_t> extent(now.begin(), now.end()),
      from(start.begin(), start.end()), n(count.begin(), count.end());
  check(H5Dset_extent(set, extent.data()), what, path);
  const Handle space(H5Dget_space(set), H5Sclose, what, path);
  check(
      H5Sselect_hyperslab(space, H5S_SELECT_SET, from.data(), nullptr, n.data(), nullptr),
      what, path);
  check(H5Dwrite(set, type, h5::simple_space(count), space, H5P_DEFAULT, waiting.data()),
        what, path);
  check(H5Dflush(set), what, path);
}

}  // namespace

struct TableFile::Table {
  std::vector<Growing> columns;
  std::int64_t in_file = 0, waiting = 0;
};

TableFile::TableFile(const std::string& path, double flush_seconds)
    : file_(path, H5File::Mode::create_swmr),
      flush_seconds_(flush_seconds),
      last_flush_(std::chrono::steady_clock::now()) {}

TableFile::~TableFile() {
  const Guard guard;
  try {
    flush();
  } catch (const Error&) {  // close() is the way to learn of it
  }
  tables_.clear();
}

int TableFile::add_table(const std::vector<TableColumn>& columns) {
  const Guard guard;
  auto table = std::make_unique<Table>();
  for (const TableColumn& column : columns) {
    Growing& growing = table->columns.emplace_back();
    growing.column = column;
    growing.create(file_);
    file_.set(column.name, "unit", column.unit);
    file_.set(column.name, "doc", column.doc);
  }
  tables_.push_back(std::move(table));
  return static_cast<int>(tables_.size()) - 1;
}

void TableFile::start() {
  file_.flush();
  file_.start_live();
}

void TableFile::append(int table, const std::vector<TableCell>& row) {
  Table& t = *tables_.at(table);
  if (row.size() != t.columns.size())
    throw Error(Exit::internal,
                "a row with the wrong number of columns for " + file_.path());
  for (std::size_t i = 0; i < row.size(); ++i) t.columns[i].add(row[i]);
  ++t.waiting;
  const std::chrono::duration<double> age =
      std::chrono::steady_clock::now() - last_flush_;
  if (age.count() >= flush_seconds_) flush();
}

void TableFile::flush() {
  const Guard guard;
  last_flush_ = std::chrono::steady_clock::now();
  // Room ahead in steps, so that a full disk shows here, where nothing has changed yet.
  constexpr std::int64_t kStep = std::int64_t(1) << 20;
  std::int64_t more = 0;
  for (auto& table : tables_)
    for (Growing& column : table->columns) more += column.room();
  struct stat about;
  if (more > 0 && ::stat(file_.path().c_str(), &about) == 0)
    file_.reserve((about.st_size + more) / kStep * kStep + 2 * kStep);
  for (auto& table : tables_) {
    if (table->waiting == 0) continue;
    for (Growing& column : table->columns)
      column.write(table->in_file, table->waiting, file_.path());
    // After a failure (a full disk) nothing was dropped, and the next flush writes all
    // again.
    for (Growing& column : table->columns) column.waiting.clear();
    table->in_file += table->waiting;
    table->waiting = 0;
  }
}

void TableFile::close() {
  const Guard guard;
  flush();
  tables_.clear();
  file_.close();
}

std::int64_t TableFile::rows(int table) const {
  return tables_.at(table)->in_file + tables_.at(table)->waiting;
}

}  // namespace capstan

#pragma once
/// \file One HDF5 file: arrays by hyperslab, attributes, virtual datasets. Every call is
/// checked (Error(Exit::file) names the file and the object) and takes the process's one
/// HDF5 lock, as the library is not thread-safe. HDF5's own error print is silenced.
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "io/element.hpp"

namespace capstan {

/// The value of an attribute: scalar or 1-D integers, fixed-length string.
using Attribute = std::variant<std::int64_t, std::uint64_t, double, std::string,
                               std::vector<std::int64_t>>;

class H5File {
 public:
  enum class Mode {
    create,       ///< replaces what is there
    create_swmr,  ///< the same, in the format that live readers need
    read,
    read_live,  ///< also files that are being written in SWMR mode, or whose writer was
                ///< killed
    edit
  };
  H5File() = default;
  /// `bytes`: about what will be written (0 = unknown); see reserve().
  H5File(const std::string& path, Mode mode, std::int64_t bytes = 0);
  /// Closes without a word; call close() to learn of errors.
  ~H5File();
  H5File(H5File&& other) noexcept;
  H5File& operator=(H5File&& other) noexcept;

  const std::string& path() const { return path_; }
  std::int64_t id() const { return id_; }
  /// Takes disk space for a file of this many bytes, where the file system can. HDF5
  /// cannot close a file whose metadata found no room (and crashes at exit then), so a
  /// full disk must show before HDF5 writes. Error(Exit::file) changes nothing.
  void reserve(std::int64_t bytes);
  void flush();
  /// What was written is complete only when this returned. Gives back what was reserved
  /// in vain.
  void close();
  /// After a write that failed: gives the disk space back, then closes without a word.
  void discard();
  /// From here on the file can be read while it grows. All objects must exist.
  void start_live();

  bool has(const std::string& object) const;
  /// Moves a dataset or group within the file.
  void rename(const std::string& from, const std::string& to);
  /// Paths of all datasets, sorted, without the leading slash.
  std::vector<std::string> datasets() const;

  /// Creates groups on the way. `chunk` empty: contiguous. Unwritten elements are zero.
  void create(const std::string& name, Element element, const Extents& shape,
              const Extents& chunk = {});
  /// The array [start, start + count) of the dataset; count may hold zeros.
  void write(const std::string& name, Element element, const void* data,
             const Extents& start, const Extents& count);
  void read(const std::string& name, Element element, void* data, const Extents& start,
            const Extents& count) const;
  /// create and write of a whole array.
  void put(const std::string& name, Element element, const Extents& shape,
           const void* data);

  /// A 1-D array of strings, padded to the longest.
  void put_texts(const std::string& name, const std::vector<std::string>& texts);
  std::vector<std::string> read_texts(const std::string& name) const;

  struct Info {
    Element element = Element::f64;
    Extents shape;
    std::size_t text_bytes = 0;
  };
  /// Type and shape of a dataset.
  Info info(const std::string& name) const;

  /// On an object ("/" is the file); replaces an attribute of that name.
  void set(const std::string& object, const std::string& name, const Attribute& value);
  /// Empty when there is none, or it is of a kind that Capstan does not write.
  std::optional<Attribute> get(const std::string& object, const std::string& name) const;
  std::vector<std::string> attributes(const std::string& object) const;

  /// Rows [row0, row0 + rows) of axis 0 of a virtual dataset: a whole dataset of another
  /// file, whose name is relative to this file's folder.
  struct Source {
    std::string file, dataset;
    std::int64_t row0 = 0, rows = 0;
  };
  /// A dataset that shows the sources; what no source covers reads as NaN (floats) or -1.
  void create_virtual(const std::string& name, Element element, const Extents& shape,
                      const std::vector<Source>& sources);

 private:
  std::string path_;
  std::int64_t id_ = -1;
  std::int64_t reserved_ = 0;
};

/// Takes the "is being written" mark off the file of a dead writer, so that plain tools
/// open it. Nothing happens to a file without the mark.
void clear_live_mark(const std::string& path);

/// "1.10.8"
std::string hdf5_version();

}  // namespace capstan

#include "io/file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "io/guard_host.hpp"

namespace capstan {

using h5::check;
using h5::Guard;
using h5::Handle;

static_assert(sizeof(hid_t) == sizeof(std::int64_t));

namespace {

hid_t open_file(const std::string& path, H5File::Mode mode) {
  using Mode = H5File::Mode;
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make a property list", path);
  // V18 as the oldest format: attributes such as a deck may be larger than 64 KB.
  const bool live = mode == Mode::create_swmr;
  check(H5Pset_libver_bounds(access, live ? H5F_LIBVER_LATEST : H5F_LIBVER_V18,
                             H5F_LIBVER_LATEST),
        "set the format", path);
  check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "set a property", path);
  switch (mode) {
    case Mode::create:
    case Mode::create_swmr:
      return H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
    case Mode::edit:
      return H5Fopen(path.c_str(), H5F_ACC_RDWR, access);
    case Mode::read:
      return H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
    case Mode::read_live:
      return H5Fopen(path.c_str(), H5F_ACC_RDONLY | H5F_ACC_SWMR_READ, access);
  }
  return -1;
}

[[noreturn]] void no_space(const std::string& path, std::int64_t bytes, int code) {
  throw Error(Exit::file, "cannot write " + path + " (" + std::to_string(bytes >> 20) +
                              " MiB): " + std::strerror(code));
}

/// Reserves space for the first `bytes` bytes of a file; its size stays. Nothing happens
/// where the file system cannot do that. The limit of file sizes is checked as well.
void reserve_space(const std::string& path, std::int64_t bytes) {
  struct rlimit limit;
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(bytes) > limit.rlim_cur)
    no_space(path, bytes, EFBIG);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  int code = fd < 0 ? errno : 0;
  if (fd >= 0) {
    do {
      code = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0 ? 0 : errno;
    } while (code == EINTR);
    ::close(fd);
  }
  if (code == 0 || code == EOPNOTSUPP || code == ENOSYS) return;
  no_space(path, bytes, code);
}

}  // namespace

H5File::H5File(const std::string& path, Mode mode, std::int64_t bytes) : path_(path) {
  const Guard guard;
  const bool fresh = mode == Mode::create || mode == Mode::create_swmr;
  if (fresh && bytes > 0)
    reserve_space(path, bytes);  // before HDF5 has anything to write
  id_ = open_file(path, mode);
  if (id_ >= 0) {
    if (fresh && bytes > 0) reserve(bytes);  // creating the file gave the space back
    return;
  }
  H5Eclear2(H5E_DEFAULT);
  if (fresh) throw Error(Exit::file, "cannot create " + path);
  if (::access(path.c_str(), F_OK) != 0) throw Error(Exit::file, "no such file: " + path);
  throw Error(Exit::file, path + " is truncated, or no HDF5 file, or being written");
}

H5File::~H5File() {
  if (id_ < 0) return;
  const Guard guard;
  H5Fclose(id_);
}

H5File::H5File(H5File&& other) noexcept
    : path_(std::move(other.path_)),
      id_(std::exchange(other.id_, -1)),
      reserved_(other.reserved_) {}

H5File& H5File::operator=(H5File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(id_, other.id_);
  std::swap(reserved_, other.reserved_);
  return *this;
}

void H5File::reserve(std::int64_t bytes) {
  if (bytes <= reserved_) return;
  reserve_space(path_, bytes);
  reserved_ = bytes;
}

void H5File::flush() {
  const Guard guard;
  check(H5Fflush(id_, H5F_SCOPE_LOCAL), "write", path_);
}

void H5File::close() {
  if (id_ < 0) return;
  const Guard guard;
  const hid_t id = std::exchange(id_, -1);
  if (H5Fflush(id, H5F_SCOPE_LOCAL) < 0) {
    id_ = id;
    h5::fail("write the end", path_);
  }
  check(H5Fclose(id), "close", path_);
  struct stat about;
  if (reserved_ > 0 && ::stat(path_.c_str(), &about) == 0 && about.st_size < reserved_)
    check(::truncate(path_.c_str(), about.st_size), "give back space", path_);
}

void H5File::discard() {
  if (id_ < 0) return;
  const Guard guard;
  // Closing writes what is left of the metadata, for which the cut makes room.
  if (::truncate(path_.c_str(), 0) != 0) return;
  H5Fclose(std::exchange(id_, -1));
  H5Eclear2(H5E_DEFAULT);
}

void H5File::start_live() {
  const Guard guard;
  check(H5Fstart_swmr_write(id_), "start live reading", path_);
}

bool H5File::has(const std::string& object) const {
  const Guard guard;
  for (std::size_t at = 0; at != std::string::npos;) {
    at = object.find('/', at + 1);  // every link on the way must exist
    const std::string part = object.substr(0, at);
    if (!part.empty() && part != "/" && H5Lexists(id_, part.c_str(), H5P_DEFAULT) <= 0)
      return false;
  }
  return true;
}

void H5File::rename(const std::string& from, const std::string& to) {
  const Guard guard;
  check(H5Lmove(id_, from.c_str(), id_, to.c_str(), h5::parents(), H5P_DEFAULT),
        "rename " + from, path_);
}

std::vector<std::string> H5File::datasets() const {
  const Guard guard;
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5O_info_t* info,
                        void* out) -> herr_t {
    if (info->type == H5O_TYPE_DATASET)
      static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  check(H5Ovisit(id_, H5_INDEX_NAME, H5_ITER_INC, visit, &names), "list the datasets",
        path_);
  std::sort(names.begin(), names.end());
  return names;
}

void clear_live_mark(const std::string& path) {
  const Guard guard;
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make a property list", path);
  // The property by which HDF5's own h5clear opens a file that carries the mark.
  const hbool_t clear = 1;
  check(H5Pset(access, "clear_status_flags", &clear), "clear the mark", path);
  check(H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST), "set the format",
        path);
  Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, access), H5Fclose,
              "open to clear the mark", path);
  // A killed writer may have left blocks beyond the end that the file's header tells.
  check(H5Fincrement_filesize(file, 0), "set the end", path);
  check(H5Fflush(file, H5F_SCOPE_LOCAL), "write", path);
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  const Guard guard;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." +
         std::to_string(release);
}

}  // namespace capstan

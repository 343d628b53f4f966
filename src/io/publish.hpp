#pragma once
/// \file Files and folders that are seen complete or not at all: written under NAME.part,
/// synced, renamed. Error(Exit::file) with the system's reason.
#include <string>

namespace capstan {

inline const std::string kPart = ".part";

/// Forces a file or folder to the disk.
void sync_path(const std::string& path);
/// Renames path + ".part" to `path`, which must not be a folder with something in it, and
/// syncs the folder around it. What is inside must have been synced before.
void publish(const std::string& path);
/// Writes and publishes a small text file, replacing an older one.
void publish_text(const std::string& path, const std::string& text);
/// The whole of a text file.
std::string read_text(const std::string& path);
/// The folder that `path` lies in.
std::string parent_of(const std::string& path);
/// Creates a folder and its parents where they are missing.
void make_folders(const std::string& path);

}  // namespace capstan

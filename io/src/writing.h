// Shared by the writers of files: errors with the system's reason, writing, renaming.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rf::io {

[[noreturn]] void fail_errno(const std::string& path, std::string_view action);

// The name to rename to: for a symbolic link its target, so that the link is kept. A device, a pipe or a directory is
// refused, because the rename would replace it.
std::string replaceable_target(std::string path);

// Writes all bytes at an offset.
void write_at(int fd, const std::string& path, size_t offset, std::span<const std::byte> bytes);
// Throws Error for a patch that is not within the `size` bytes written.
void check_patch(const std::string& path, size_t offset, size_t bytes, size_t size);

// Completes a file: syncs it, closes it and renames it, durably.
void publish(int& fd, const std::string& temporary, const std::string& path);

}  // namespace rf::io

// Reading a page of a mapped file that is lost, because another program truncated the file or the disk failed, raises
// SIGBUS. A handler cannot throw. It looks up the file by the address in a table of atomics, writes a message prepared
// when the file was mapped, and ends the process. It calls only functions that POSIX allows in a handler.
#include "lost_pages.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "rf/io/files.h"
#include "rf/io/printable.h"

namespace rf::io {

struct MappedPlace {
  std::atomic<bool> taken;
  std::atomic<const std::byte*> begin;  // set last and cleared first: where it is not nullptr, the entry is complete
  std::atomic<size_t> size, message_size;
  std::atomic<const char*> message;
};

// One table for the process: the libraries that contain this file export it, and so share it. It has space for the
// shards of terabytes; further files are mapped without an entry.
std::array<MappedPlace, 8192> mapped_places;

namespace {

constexpr int kBadInput = 1;  // the program's exit code for rf::Error

void write_to_stderr(const char* text, size_t size) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, size);
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto* const address = static_cast<const std::byte*>(info->si_addr);
  for (const MappedPlace& place : mapped_places) {
    const std::byte* const begin = place.begin.load();
    if (begin == nullptr || address < begin || address >= begin + place.size.load()) continue;
    write_to_stderr(place.message.load(), place.message_size.load());
    ::_exit(kBadInput);
  }
  ::signal(SIGBUS, SIG_DFL);  // not one of our files: the instruction runs again without a handler
}

}  // namespace

MappedRange::MappedRange(std::span<const std::byte> bytes, const std::string& path)
    : message_(fmt::format("[{}] a file must keep its size while it is read, got a part of it that is gone\n",
                           escaped(path, path.size()))) {
  for (MappedPlace& place : mapped_places) {
    if (place.taken.load(std::memory_order_relaxed) || place.taken.exchange(true)) continue;
    place.size = bytes.size();
    place.message = message_.data();
    place.message_size = message_.size();
    place.begin = bytes.data();
    place_ = &place;
    return;
  }
}

MappedRange::~MappedRange() {
  if (place_ == nullptr) return;
  place_->begin = nullptr;
  place_->taken = false;
}

void report_lost_pages() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace rf::io

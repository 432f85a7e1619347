// Messages to and from systemd (systemd.h).
#include "systemd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "rf/io/error.h"

namespace rf::server {

namespace {

int64_t number_in(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

int option_of(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

void notify_manager(std::string_view states) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un to{};
  const size_t size = path == nullptr ? 0 : std::strlen(path);
  if (size == 0 || size > sizeof to.sun_path) return;
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, path, size);
  if (path[0] == '@') to.sun_path[0] = '\0';  // an abstract name
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return;
  ::sendto(socket, states.data(), states.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size));
  ::close(socket);
}

void notify_reload() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  notify_manager(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1'000'000 + now.tv_nsec / 1000));
}

std::optional<std::chrono::microseconds> watchdog_interval() {
  const int64_t limit = number_in("WATCHDOG_USEC"), process = number_in("WATCHDOG_PID");
  if (limit <= 0 || (process != 0 && process != ::getpid())) return std::nullopt;
  return std::chrono::microseconds(limit / 2);
}

std::optional<int> inherited_socket() {
  constexpr int kFirst = 3;
  const int64_t count = number_in("LISTEN_FDS");
  if (count == 0 || number_in("LISTEN_PID") != ::getpid()) return std::nullopt;
  if (count != 1) fail("serve", "LISTEN_FDS must be 1, got {}", count);
  if (option_of(kFirst, SO_TYPE) != SOCK_STREAM || option_of(kFirst, SO_ACCEPTCONN) != 1)
    fail("serve", "the socket of LISTEN_FDS must be a stream that listens, got another descriptor");
  ::fcntl(kFirst, F_SETFD, FD_CLOEXEC);
  return kFirst;
}

}  // namespace rf::server

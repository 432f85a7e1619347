// The messages between systemd and the server (sd_notify(3), sd_listen_fds(3)), without libsystemd.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace rf::server {

// Sends states, one per line, to the manager that $NOTIFY_SOCKET names; does nothing without one.
void notify_manager(std::string_view states);
// RELOADING=1, with the time that systemd asks for.
void notify_reload();
// How often WATCHDOG=1 is expected; nullopt: never.
std::optional<std::chrono::microseconds> watchdog_interval();
// The socket that the manager listens on for this process; nullopt: none. Throws Error if there are several, or if it
// is not a listening stream socket.
std::optional<int> inherited_socket();

}  // namespace rf::server

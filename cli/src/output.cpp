// What commands write, and facts that go with results (command.h).
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "command.h"
#include "rf/bench/machine.h"
#include "rf/io/error.h"
#include "rf/train/runtime.h"

namespace rf::cli {

void emit_part(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
  if (errno == EPIPE) throw BrokenPipe{};
  fail("stdout", "results must be writable, got: {}", std::strerror(errno));
}

void emit_line(const std::string& line) {
  emit_part(line);
  if (std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw BrokenPipe{};
  fail("stdout", "results must be writable, got: {}", std::strerror(errno));
}

void emit(const nlohmann::json& result) {
  emit_line(result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Work does not end because nobody can read about it.
void say(const std::string& text) {
  const std::string line = text + "\n";
  [[maybe_unused]] const size_t written = std::fwrite(line.data(), 1, line.size(), stderr);
}

io::Progress terminal_progress() {
  return io::Progress(isatty(STDERR_FILENO) != 0);
}

nlohmann::json machine_facts() {
  const bench::Machine machine = bench::this_machine();
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"threads", train::threads()},
          {"target", machine.target},
          {"torch", train::runtime_facts().torch_version},
          {"commit", machine.commit}};
}

}  // namespace rf::cli

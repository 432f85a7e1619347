// The output of commands (command.h).
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "command.h"
#include "rf/io/error.h"
#include "rf/io/shown_text.h"

namespace rf::cli {

namespace {

bool stdout_is_terminal() {
  static const bool kIsTerminal = isatty(STDOUT_FILENO) != 0;
  return kIsTerminal;
}

void write_part(const std::string& text) {
  if (stdout_is_terminal()) progress().clear();
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
  if (errno == EPIPE) throw BrokenPipe{};
  fail("stdout", "results must be writable, got: {}", std::strerror(errno));
}

void flush() {
  if (std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw BrokenPipe{};
  fail("stdout", "results must be writable, got: {}", std::strerror(errno));
}

void write_line(const std::string& line) {
  write_part(line);
  write_part("\n");
  flush();
}

}  // namespace

void emit_part(const std::string& json) { write_part(io::json_text(json)); }

void emit_line(const std::string& json) { write_line(io::json_text(json)); }

void emit_text(const std::string& text) { write_line(io::terminal_text(text)); }

void emit_lines(const std::string& lines) {
  write_part(stdout_is_terminal() ? io::terminal_text(lines) : lines);
  flush();
}

void emit(const nlohmann::json& result) {
  emit_line(result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

bool shows_text(bool as_json) { return !as_json && stdout_is_terminal(); }

void emit_list(const nlohmann::json& objects, const std::vector<std::string>& keys, bool as_json) {
  if (!shows_text(as_json)) {
    for (const nlohmann::json& object : objects) emit(object);
    return;
  }
  const auto cell = [](const nlohmann::json& object, const std::string& key) {
    const nlohmann::json& value = object.at(key);
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_array()) return value.dump();
    std::string text;
    for (const nlohmann::json& each : value) text += (text.empty() ? "" : ", ") + each.get<std::string>();
    return text;
  };
  std::string header;
  std::vector<std::string> rows(objects.size());
  for (const std::string& key : keys) {
    size_t width = key.size();
    for (const nlohmann::json& object : objects) width = std::max(width, cell(object, key).size());
    if (key == keys.back()) width = 0;  // the last column is not padded
    const char* const gap = key == keys.front() ? "" : "  ";
    header += fmt::format("{}{:{}}", gap, key, width);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] += fmt::format("{}{:{}}", gap, cell(objects[i], key), width);
  }
  emit_text(header);
  for (const std::string& row : rows) emit_text(row);
}

CLI::Option* add_json(CLI::App& app, bool& as_json) {
  return app.add_flag("--json", as_json, "JSON lines with all keys, the default if the output is not a terminal");
}

io::Progress& progress() {
  static io::Progress one(isatty(STDERR_FILENO) != 0 ? io::Progress::Show::kTerminal : io::Progress::Show::kLog);
  return one;
}

void say(const std::string& text) { progress().message(text); }

namespace {

bool warnings_are_errors = false;

// A warning has the same form as an error: "[where] rule, got value".
struct StrictError : Error {
  explicit StrictError(const std::string& text) : Error("strict", text) {}
};

}  // namespace

void make_warnings_errors() { warnings_are_errors = true; }

void warn_user(const std::string& text) {
  static std::set<std::string> said;
  if (warnings_are_errors) throw StrictError(text + " (--strict)");
  if (said.insert(text).second) say("warning: " + text);
}

}  // namespace rf::cli

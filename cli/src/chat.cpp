// roformer chat: a conversation with a causal language model, on a terminal or line by line.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>

#include "command.h"
#include "generation_options.h"
#include "rf/engine/interrupt.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"

namespace rf::cli {

namespace {

constexpr const char* kChatWhere = "chat";
constexpr const char* kChatHelp =
    "/read FILE      send the text of a file as one message\n"
    "/reset          begin a new conversation\n"
    "/system [TEXT]  begin a new conversation with this system message, or without one\n"
    "/help           this list\n"
    "/quit           end, as the end of the input does\n"
    "Ctrl-C ends an answer. Every other line is a message.";

volatile std::sig_atomic_t was_interrupted = 0;
int interrupts = -1;  // an eventfd that is readable after an interrupt: any thread may get the signal

void forget_interrupts() {
  was_interrupted = 0;
  uint64_t count;
  if (interrupts >= 0) std::ignore = ::read(interrupts, &count, sizeof count);
}

// While it exists, SIGINT sets was_interrupted. A signal that the parent process ignores stays ignored.
class Interruptible {
 public:
  Interruptible() {
    sigaction(SIGINT, nullptr, &earlier_);
    if (earlier_.sa_handler == SIG_IGN) return;
    interrupts = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sigaction action {};
    action.sa_handler = [](int) {
      const int before = errno;
      was_interrupted = 1;
      const uint64_t one = 1;
      std::ignore = ::write(interrupts, &one, sizeof one);
      errno = before;
    };
    action.sa_flags = SA_RESTART;  // continues a write of results
    sigaction(SIGINT, &action, nullptr);
  }
  ~Interruptible() { sigaction(SIGINT, &earlier_, nullptr); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  struct sigaction earlier_ {};
};

struct Interrupted {};

// Lines of standard input.
class Lines {
 public:
  explicit Lines(bool is_terminal) : is_terminal_(is_terminal) {}

  // nullopt: the end. Throws Interrupted.
  std::optional<std::string> next() {
    while (true) {
      const size_t end = held_.find('\n');
      if (end != std::string::npos || (is_at_end_ && !held_.empty())) {
        std::string line = held_.substr(0, end);
        held_.erase(0, end == std::string::npos ? end : end + 1);
        return line;
      }
      if (is_at_end_) return std::nullopt;
      read_more();
    }
  }

 private:
  void read_more() {
    constexpr size_t kMostBytes = size_t{16} << 20;
    if (held_.size() > kMostBytes)
      fail(kChatWhere, "a message must have at most {} bytes, got more in a line", kMostBytes);
    pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts, POLLIN, 0}};
    while (::poll(ready, std::size(ready), -1) < 0 && errno == EINTR) {
    }
    if (ready[1].revents != 0) throw Interrupted{};
    char part[65536];
    const ssize_t count = ::read(STDIN_FILENO, part, sizeof part);
    if (count < 0) {
      if (errno == EINTR) return;
      fail(kChatWhere, "standard input must be readable, got: {}", std::strerror(errno));
    } else if (count == 0) {
      is_at_end_ = true;
    } else {
      held_.append(part, static_cast<size_t>(count));
      // Linux keeps 4,095 bytes of a line and its end, and drops the rest.
      constexpr ssize_t kMostOfTerminal = 4096;
      if (is_terminal_ && count >= kMostOfTerminal) {
        held_.clear();
        fail<ArgumentError>(kChatWhere,
                            "a line of a terminal must have at most {} bytes, got more (/read FILE sends longer texts)",
                            kMostOfTerminal - 2);
      }
    }
  }

  const bool is_terminal_;
  std::string held_;
  bool is_at_end_ = false;
};

class Chat {
 public:
  Chat(const TextOptions& options, const tasks::Continuer& continuer)
      : prompt_cache_(options.prompt_cache),
        generation_(options.generation),
        continuer_(continuer),
        stops_(stops_of(options, continuer)),
        is_terminal_(isatty(STDIN_FILENO) != 0) {
    begin(options.system);
  }

  void run() {
    std::optional<Interruptible> interruptible;
    if (is_terminal_) {
      interruptible.emplace();
      say("/help lists the commands");
    }
    try {
      while (take_line()) {
      }
    } catch (...) {  // of input that is not a terminal
      write_prompt_cache();
      throw;
    }
    write_prompt_cache();
    if (is_terminal_) show("\n");
  }

 private:
  // Saves the conversation up to its last question.
  void write_prompt_cache() const {
    if (!prompt_cache_.empty() && !prompt_.empty())
      continuer_.write_prompt_cache(prompt_cache_, prompt_, tasks::PromptForm::kChat);
  }

  // A new conversation.
  void begin(const std::string& system) {
    check_text("a system message", system);
    system_ = system;
    messages_ = nlohmann::ordered_json::array();
    if (!system.empty()) messages_.push_back({{"role", "system"}, {"content", system}});
  }

  // For the person at the terminal alone: the results go to stdout.
  static void show(const char* text) {
    if (isatty(STDERR_FILENO) != 0) std::fputs(text, stderr);
  }

  // False: the end.
  bool take_line() {
    forget_interrupts();
    if (is_terminal_) show("> ");
    std::optional<std::string> line;
    try {
      line = lines_.next();
    } catch (const Interrupted&) {
      show("\n");
      say("/quit ends the program");
      return true;
    } catch (const ArgumentError& error) {
      say(error.what());
      return true;
    }
    if (line && line->ends_with('\r')) line->pop_back();
    if (line && line->starts_with('/')) line->erase(line->find_last_not_of(" \t") + 1);
    if (!line || *line == "/quit") return false;
    try {
      obey(*line);
    } catch (const BrokenPipe&) {
      throw;
    } catch (const Error& error) {
      if (!is_terminal_) throw;
      say(error.what());
    }
    return true;
  }

  void obey(const std::string& line) {
    const std::string command = line.substr(0, line.find(' '));
    if (command == "/system") return begin(command.size() < line.size() ? line.substr(command.size() + 1) : "");
    if (line == "/reset") return begin(system_);
    if (line == "/help") return say(kChatHelp);
    if (command == "/read" && command.size() < line.size()) return ask(io::read_file(line.substr(command.size() + 1)));
    if (line.starts_with('/')) {
      fail<ArgumentError>(
          kChatWhere,
          "a line with / in front must be /help, /quit, /read FILE, /reset or /system TEXT, got {} (a space "
          "before / sends it as a message)",
          io::printable(line));
    }
    if (line.find_first_not_of(" \t") != std::string::npos) ask(line);
  }

  static void check_text(const char* what, const std::string& text) {
    if (!is_utf8(text)) fail<ArgumentError>(kChatWhere, "{} must be UTF-8, got {}", what, io::printable(text));
  }

  void ask(const std::string& text) {
    check_text("a message", text);
    if (text.find_first_not_of(" \t\r\n") == std::string::npos)
      fail<ArgumentError>(kChatWhere, "a message must have more than white space, got nothing else");
    const nlohmann::ordered_json before = messages_;
    messages_.push_back({{"role", "user"}, {"content", text}});
    try {
      answer();
    } catch (...) {
      messages_ = before;
      throw;
    }
  }

  void answer() {
    const std::string prompt = continuer_.chat(messages_, nlohmann::ordered_json::object());
    engine::GenerationOptions generation = generation_;
    generation.max_new_tokens = std::min(generation.max_new_tokens, room_after(prompt));
    prompt_ = prompt;
    const tasks::AnswerFormat format = continuer_.answer_format(prompt, /*has_tools=*/false);
    auto stream = continuer_.stream(prompt, generation, stops_,
                                    {.prompt = tasks::PromptForm::kChat, .specials = format.specials()});
    ShownAnswer shown(format);
    const engine::Drafted before = continuer_.drafted();
    const int64_t start = io::steady_ns();
    int64_t first = start, of_first = 0;  // tokens
    try {
      const engine::InterruptScope scope([] {
        if (was_interrupted != 0) throw Interrupted{};
      });
      while (const auto part = stream.step()) {
        if (of_first == 0) {
          of_first = stream.new_tokens();
          first = io::steady_ns();
        }
        emit_lines(shown.add(*part));
      }
    } catch (const Interrupted&) {
    }
    emit_lines(shown.finish() + "\n");
    if (of_first == 0) first = io::steady_ns();
    if (isatty(STDERR_FILENO) != 0) {
      const std::string draft = draft_text(before, continuer_.drafted());
      say(speed_of(stream, {start, first, io::steady_ns()}, of_first) + (draft.empty() ? "" : " [" + draft + "]"));
    }
    if (stream.new_tokens() == 0 && was_interrupted != 0) {
      messages_.erase(messages_.size() - 1);
    } else {
      messages_.push_back({{"role", "assistant"}, {"content", shown.content()}});  // reasoning is not kept
    }
  }

  // Tokens that the context has for the answer.
  int64_t room_after(const std::string& prompt) const {
    const int64_t room = continuer_.room_after(prompt);
    if (room < 1) {
      fail(kChatWhere,
           "the conversation must have fewer tokens than the context's {}, got {} (/reset begins a new one)",
           continuer_.max_length(), continuer_.max_length() - room);
    }
    return room;
  }

  struct Times {
    int64_t start, first, end;  // the first token is the prompt's
  };
  static std::string speed_of(const tasks::ContinuationStream& stream, const Times& times, int64_t of_first) {
    const auto rate = [](int64_t count, int64_t ns) {
      return fmt::format("{:.1f} tokens/s",
                         static_cast<double>(count) / (static_cast<double>(std::max<int64_t>(ns, 1)) * 1e-9));
    };
    const int64_t read = stream.prompt_tokens() - stream.kept_tokens();
    return fmt::format("[read {} of {} tokens, {}; wrote {}, {}]", read, stream.prompt_tokens(),
                       rate(read, times.first - times.start), stream.new_tokens(),
                       rate(stream.new_tokens() - of_first, times.end - times.first));
  }

  const std::string& prompt_cache_;
  std::string prompt_;  // of the last answer
  const engine::GenerationOptions& generation_;
  const tasks::Continuer& continuer_;
  const tasks::Stops stops_;
  const bool is_terminal_;
  Lines lines_{is_terminal_};
  std::string system_;
  nlohmann::ordered_json messages_;
};

std::function<int()> configure_chat(CLI::App& app, const Common& common) {
  auto options = std::make_shared<TextOptions>();
  options->generation.max_new_tokens = 2048;
  add_text_options(app, *options);
  app.add_option("--system", options->system, "The system message");
  add_default(app, "--max-new-tokens", options->generation.max_new_tokens,
              "Tokens of an answer at most; less where the context is full");
  return [&app, &common, options] {
    finish_text_options(app, common, *options);
    const tasks::Continuer continuer = open_continuer(*options);
    Chat(*options, continuer).run();
    return kOk;
  };
}

}  // namespace

Command chat_command() {
  return {"chat", "A conversation with a causal language model",
          "roformer chat --model path/to/model --temperature 0.7", Command::Seed::kUsed, configure_chat};
}

}  // namespace rf::cli

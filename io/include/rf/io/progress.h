// Diagnostics of a program on stderr: messages and progress. On a terminal progress is one line that is rewritten, with
// the messages above it; in a log it is a line every 30 seconds. Terminal control characters are escaped
// (shown_text.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rf::io {

using Clock = std::function<int64_t()>;  // nanoseconds since some moment; never decreases
int64_t steady_ns();

class Progress {
 public:
  enum class Show { kNothing, kTerminal, kLog };

  explicit Progress(Show show = Show::kNothing, Clock clock = steady_ns);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Sets the progress line. A terminal shows it at most ten times per second.
  void update(const std::string& line);
  // Writes a message of one or several lines.
  void message(const std::string& text);
  // Removes the progress line from a terminal that shows other output too; the next update shows it again.
  void clear();
  // Shows the last line given to update() on a terminal and ends it, once. Writes nothing to a log.
  void finish();

  // While it exists, progress and messages begin with `name`, after the names of the enclosing parts.
  class Part {
   public:
    Part(Progress& progress, std::string name) : progress_(progress) { progress_.parts_.push_back(std::move(name)); }
    ~Part() { progress_.parts_.pop_back(); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    Progress& progress_;
  };

 private:
  std::string with_parts(const std::string& line) const;

  Show show_;
  Clock clock_;
  std::vector<std::string> parts_;
  int64_t last_ns_;     // when the last line was shown; in a log initially the start
  bool open_ = false;   // a terminal shows a line that is not ended yet
  std::string line_;    // the line that is shown, or the one to show next
  bool stale_ = false;  // line_ came too early to be shown
};

// "3m05s", "2h07m".
std::string duration_text(double seconds);

// Estimates the time to the end of work of a known size from the time that the work so far has taken.
class TimeEstimate {
 public:
  // done: the part of `size` that was finished before the clock started. The unit is the caller's.
  explicit TimeEstimate(double size, double done = 0, Clock clock = steady_ns);
  // ", 3m05s left"; "" without an estimate: before anything is done, and if more than `size` is done.
  std::string left(double done) const;
  double seconds() const;  // since the start

 private:
  double size_, first_;
  Clock clock_;
  int64_t start_ns_;
};

// A function that takes the number of finished parts of `size` and shows "evaluating: 3 of 40, 0m10s left".
std::function<void(int64_t)> counted(Progress& progress, const std::string& what, int64_t size);

}  // namespace rf::io

// What a program says on stderr while it works: messages, and how far it is. On a terminal the latter is one line that
// is rewritten, with the messages above it; elsewhere, where a log is read later, it is a line every 30 seconds.
// Characters that would steer a terminal are escaped (shown_text.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rf::io {

using Clock = std::function<int64_t()>;  // nanoseconds since any moment; never back
int64_t steady_ns();

class Progress {
 public:
  enum class Show { kNothing, kTerminal, kLog };

  explicit Progress(Show show = Show::kNothing, Clock clock = steady_ns);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // How far the work is. A terminal shows it at most ten times a second.
  void update(const std::string& line);
  // A line, or several, that stays.
  void message(const std::string& text);
  // Takes the progress line off a terminal that shows other output too; the next update brings it back.
  void clear();
  // Shows the last line given to update() and ends it, once. A log gets nothing.
  void finish();

  // While it lives, progress and messages begin with `name`, after those of the parts that this one is part of.
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
  int64_t last_ns_;     // when a line was shown last; of a log at first, when it began
  bool open_ = false;   // a terminal shows a line that has no end yet
  std::string line_;    // the one shown, or the one to show next
  bool stale_ = false;  // line_ came too early to be shown
};

// "3m05s", "2h07m".
std::string duration_text(double seconds);

// How long work of a known size takes to its end, by the time that its part so far has taken.
class Pace {
 public:
  // done: before the clock started, and of the size too. The unit is the caller's.
  explicit Pace(double size, double done = 0, Clock clock = steady_ns);
  // ", 3m05s left"; "" where that cannot be said: before anything is done, and when more is done than there should be.
  std::string left(double done) const;
  double seconds() const;  // since the start

 private:
  double size_, first_;
  Clock clock_;
  int64_t start_ns_;
};

// Receives how many of `size` parts are done, and shows "evaluating: 3 of 40, 0m10s left".
std::function<void(int64_t)> counted(Progress& progress, const std::string& what, int64_t size);

}  // namespace rf::io

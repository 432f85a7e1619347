// Pushdown automata over bytes: rules of states, which call each other, and the deterministic states that are made of
// them when a text reaches them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace rf::tasks {

class ByteAutomaton {
 public:
  struct Rule {
    int32_t begin, end;  // states
  };
  struct Edge {
    uint8_t low, high;
    int32_t to;
  };
  struct Call {
    int32_t begin, to;  // of the rule; the state after it
  };
  struct State {
    std::vector<Edge> bytes;
    std::vector<int32_t> empty;  // states that are reached without a byte
    std::vector<Call> calls;
    bool ends_rule = false;
  };

  // Throw ArgumentError beyond kMaxStates.
  int32_t add_state();
  Rule add_rule();

  void add_bytes(int32_t from, uint8_t low, uint8_t high, int32_t to) { at(from).bytes.push_back({low, high, to}); }
  void add_empty(int32_t from, int32_t to) { at(from).empty.push_back(to); }
  void add_call(int32_t from, const Rule& rule, int32_t to) { at(from).calls.push_back({rule.begin, to}); }
  // The UTF-8 of characters low..high, without surrogates.
  void add_characters(int32_t from, char32_t low, char32_t high, int32_t to);
  // The state after a text.
  int32_t add_text(int32_t from, std::string_view text);
  int32_t called(int32_t from, const Rule& rule);

  // Removes what cannot reach an end. Throws ArgumentError where nothing remains, and for rules that call themselves
  // before a byte. `root` is the rule of whole texts.
  void finish(const Rule& root);
  int32_t begin() const { return begin_; }
  const State& state(int32_t index) const { return states_[static_cast<size_t>(index)]; }

 private:
  State& at(int32_t index) { return states_[static_cast<size_t>(index)]; }
  void add_sequences(int32_t from, std::string_view low, std::string_view high, int32_t to);
  std::vector<bool> productive() const;
  void check_calls() const;

  std::vector<State> states_;
  std::vector<Rule> rules_;
  int32_t begin_ = 0;
};

class AutomatonWalk {
 public:
  static constexpr int32_t kDead = 0, kBegin = 1;

  explicit AutomatonWalk(std::shared_ptr<const ByteAutomaton> automaton);
  // Throws ArgumentError where too many parses of a text are possible.
  int32_t next(int32_t state, uint8_t byte) {
    const int32_t known = states_[static_cast<size_t>(state)].next[byte];
    return known >= 0 ? known : step(state, byte);
  }
  bool accepts(int32_t state) const { return states_[static_cast<size_t>(state)].accepts; }  // a whole text
  bool goes_on(int32_t state) const { return !states_[static_cast<size_t>(state)].positions.empty(); }
  size_t size() const { return states_.size(); }

 private:
  // A state of the automaton and, by its number, a stack of the states after the rules that were called.
  struct Position {
    int32_t state, stack;
    auto operator<=>(const Position&) const = default;
  };
  struct Node {
    std::vector<Position> positions;  // sorted; only positions that read a byte
    bool accepts = false;
    std::array<int32_t, 256> next;  // -1: not known
  };

  int32_t step(int32_t state, uint8_t byte);
  int32_t add(std::vector<Position> reached);

  std::shared_ptr<const ByteAutomaton> automaton_;
  std::vector<Position> stacks_;  // the top, and the number of the rest; 0: empty
  std::map<Position, int32_t> stack_numbers_;
  std::deque<Node> states_;
  std::map<std::pair<bool, std::vector<Position>>, int32_t> numbers_;
};

}  // namespace rf::tasks

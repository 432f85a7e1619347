// Pushdown automata over bytes (see the header).
#include "byte_automaton.h"

#include <algorithm>
#include <set>
#include <string>

#include "rf/io/error.h"
#include "rf/io/utf8.h"

namespace rf::tasks {

namespace {

constexpr size_t kMaxStates = 300'000, kMaxPositions = 4096;
constexpr const char* kAutomatonWhere = "schema";

}  // namespace

int32_t ByteAutomaton::add_state() {
  if (states_.size() == kMaxStates)
    fail<ArgumentError>(kAutomatonWhere, "a schema must need at most {} states, got more", kMaxStates);
  states_.emplace_back();
  return static_cast<int32_t>(states_.size()) - 1;
}

ByteAutomaton::Rule ByteAutomaton::add_rule() {
  const int32_t begin = add_state();
  rules_.push_back({begin, add_state()});
  at(rules_.back().end).ends_rule = true;
  return rules_.back();
}

void ByteAutomaton::add_characters(int32_t from, char32_t low, char32_t high, int32_t to) {
  constexpr char32_t kLast[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF, 0x10FFFF};
  for (const char32_t last : kLast) {
    if (low >= 0xD800 && low < 0xE000) low = 0xE000;
    if (low > high) return;
    if (low > last) continue;
    std::string first_bytes, last_bytes;
    append_utf8(low, first_bytes);
    append_utf8(std::min(high, last), last_bytes);
    add_sequences(from, first_bytes, last_bytes, to);
    low = last + 1;
  }
}

// Sequences of equal length between two, by their bytes.
void ByteAutomaton::add_sequences(int32_t from, std::string_view low, std::string_view high, int32_t to) {
  auto first = static_cast<uint8_t>(low[0]), last = static_cast<uint8_t>(high[0]);
  if (low.size() == 1) return add_bytes(from, first, last, to);
  const std::string lowest(low.size() - 1, '\x80'), highest(low.size() - 1, '\xBF');
  const auto add = [&](uint8_t from_byte, uint8_t to_byte, std::string_view rest_low, std::string_view rest_high) {
    const int32_t middle = add_state();
    add_bytes(from, from_byte, to_byte, middle);
    add_sequences(middle, rest_low, rest_high, to);
  };
  const std::string_view rest_low = low.substr(1), rest_high = high.substr(1);
  if (first == last) return add(first, last, rest_low, rest_high);
  if (rest_low != lowest) {
    add(first, first, rest_low, highest);
    ++first;
  }
  if (rest_high != highest) {
    add(last, last, lowest, rest_high);
    --last;
  }
  if (first <= last) add(first, last, lowest, highest);
}

int32_t ByteAutomaton::add_text(int32_t from, std::string_view text) {
  for (const char byte : text) {
    const int32_t to = add_state();
    add_bytes(from, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to);
    from = to;
  }
  return from;
}

int32_t ByteAutomaton::called(int32_t from, const Rule& rule) {
  const int32_t to = add_state();
  add_call(from, rule, to);
  return to;
}

// States from which the end of their rule can be reached.
std::vector<bool> ByteAutomaton::productive() const {
  struct Use {
    int32_t from, also;  // a state before, and one that must be productive too, or -1
  };
  std::vector<std::vector<Use>> uses(states_.size());
  const auto add_use = [&](int32_t of, Use use) { uses[static_cast<size_t>(of)].push_back(use); };
  std::vector<int32_t> open;
  for (int32_t from = 0; from < std::ssize(states_); ++from) {
    for (const Edge& edge : state(from).bytes) add_use(edge.to, {from, -1});
    for (const int32_t to : state(from).empty) add_use(to, {from, -1});
    for (const Call& call : state(from).calls) {
      add_use(call.to, {from, call.begin});
      add_use(call.begin, {from, call.to});
    }
    if (state(from).ends_rule) open.push_back(from);
  }
  std::vector<bool> reaches(states_.size());
  while (!open.empty()) {
    const int32_t next = open.back();
    open.pop_back();
    if (reaches[static_cast<size_t>(next)]) continue;
    reaches[static_cast<size_t>(next)] = true;
    for (const Use& use : uses[static_cast<size_t>(next)]) {
      if (use.also < 0 || reaches[static_cast<size_t>(use.also)]) open.push_back(use.from);
    }
  }
  return reaches;
}

void ByteAutomaton::finish(const Rule& root) {
  const std::vector<bool> reaches = productive();
  const auto is_dead = [&](int32_t state) { return !reaches[static_cast<size_t>(state)]; };
  if (is_dead(root.begin)) {
    fail<ArgumentError>(kAutomatonWhere,
                        "a schema must allow a text, got one that allows none: of false, of contradictions, or of a "
                        "recursion without end");
  }
  for (State& each : states_) {
    std::erase_if(each.bytes, [&](const Edge& edge) { return is_dead(edge.to); });
    std::erase_if(each.empty, is_dead);
    std::erase_if(each.calls, [&](const Call& call) { return is_dead(call.begin) || is_dead(call.to); });
  }
  check_calls();
  begin_ = root.begin;
}

// No rule may call itself before it has read a byte.
void ByteAutomaton::check_calls() const {
  enum class Mark : uint8_t { kNone, kOpen, kDone };
  std::map<int32_t, Mark> marks;         // of rules, by their first states
  std::map<int32_t, bool> may_be_empty;  // whether the end of a rule is reached without a byte
  // The rules that are called from a state on before a byte, and whether the end of its rule is reached.
  const auto visit = [&](const auto& self, int32_t begin) -> bool {
    Mark& mark = marks[begin];
    if (mark == Mark::kOpen) {
      fail<ArgumentError>(
          kAutomatonWhere,
          "a schema must have an object or an array between itself and a reference to itself, got none");
    }
    if (mark == Mark::kDone) return may_be_empty[begin];
    mark = Mark::kOpen;
    std::set<int32_t> seen;
    std::vector<int32_t> open = {begin};
    bool is_empty = false;
    while (!open.empty()) {
      const int32_t next = open.back();
      open.pop_back();
      if (!seen.insert(next).second) continue;
      const State& at = state(next);
      is_empty = is_empty || at.ends_rule;
      open.insert(open.end(), at.empty.begin(), at.empty.end());
      for (const Call& call : at.calls) {
        if (self(self, call.begin)) open.push_back(call.to);
      }
    }
    marks[begin] = Mark::kDone;
    return may_be_empty[begin] = is_empty;
  };
  for (const Rule& rule : rules_) visit(visit, rule.begin);
}

AutomatonWalk::AutomatonWalk(std::shared_ptr<const ByteAutomaton> automaton) : automaton_(std::move(automaton)) {
  stacks_.push_back({-1, -1});
  add({});
  add({{automaton_->begin(), 0}});
}

// The bytes around this one that no edge tells from it lead to the same state.
int32_t AutomatonWalk::step(int32_t state, uint8_t byte) {
  std::vector<Position> reached;
  int first = 0, last = 255;
  for (const Position& at : states_[static_cast<size_t>(state)].positions) {
    for (const ByteAutomaton::Edge& edge : automaton_->state(at.state).bytes) {
      if (byte < edge.low) {
        last = std::min(last, edge.low - 1);
      } else if (byte > edge.high) {
        first = std::max(first, edge.high + 1);
      } else {
        first = std::max<int>(first, edge.low);
        last = std::min<int>(last, edge.high);
        reached.push_back({edge.to, at.stack});
      }
    }
  }
  const int32_t next = add(std::move(reached));
  std::fill_n(states_[static_cast<size_t>(state)].next.begin() + first, last - first + 1, next);
  return next;
}

// The state of positions and of all that they reach without a byte.
int32_t AutomatonWalk::add(std::vector<Position> reached) {
  std::set<Position> seen;
  std::vector<Position> positions;
  bool accepts = false;
  while (!reached.empty()) {
    const Position at = reached.back();
    reached.pop_back();
    if (!seen.insert(at).second) continue;
    if (seen.size() > kMaxPositions) {
      fail<ArgumentError>(kAutomatonWhere, "a schema must read a text in at most {} ways at once, got more",
                          kMaxPositions);
    }
    const ByteAutomaton::State& state = automaton_->state(at.state);
    if (!state.bytes.empty()) positions.push_back(at);
    for (const int32_t to : state.empty) reached.push_back({to, at.stack});
    for (const ByteAutomaton::Call& call : state.calls) {
      const Position after{call.to, at.stack};
      const auto [number, is_new] = stack_numbers_.try_emplace(after, static_cast<int32_t>(stacks_.size()));
      if (is_new) stacks_.push_back(after);
      reached.push_back({call.begin, number->second});
    }
    if (!state.ends_rule) continue;
    if (at.stack == 0) {
      accepts = true;
    } else {
      reached.push_back(stacks_[static_cast<size_t>(at.stack)]);
    }
  }
  std::ranges::sort(positions);
  const auto [number, is_new] = numbers_.try_emplace({accepts, positions}, static_cast<int32_t>(states_.size()));
  if (is_new) {
    states_.push_back({.positions = std::move(positions), .accepts = accepts, .next = {}});
    states_.back().next.fill(-1);
  }
  return number->second;
}

}  // namespace rf::tasks

// Numbers between bounds (see schema_parts.h), compared with the bounds digit by digit. A number with a fraction has at
// most 15 digits, so that its nearest double lies between the bounds as the number does.
#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "schema_parts.h"

namespace rf::tasks {

namespace {

constexpr size_t kMostDigits = 18, kMostExact = 15;

// Magnitudes low..high with a number of digits before the point.
class DigitStates {
 public:
  struct Limit {
    std::string digits;  // from the first digit of the numbers on; zeros follow
    bool is_strict;
  };
  DigitStates(ByteAutomaton& automaton, size_t whole, size_t fraction, const std::optional<Limit>& low,
              const std::optional<Limit>& high, int32_t to)
      : automaton_(automaton), whole_(whole), fraction_(fraction), low_(low), high_(high), to_(to) {}

  // The state before digit `place`. at_low: those before it are the limit's, as for at_high.
  int32_t state(size_t place, bool at_low, bool at_high) {
    const auto [known, is_new] = states_.try_emplace({place, at_low, at_high}, -1);
    if (!is_new) return known->second;
    const int32_t state = known->second = automaton_.add_state();
    if (place >= whole_ && may_end(place, at_low, at_high)) automaton_.add_empty(state, to_);
    if (place < whole_ + fraction_)
      add_digits(place == whole_ ? automaton_.add_text(state, ".") : state, place, at_low, at_high);
    return state;
  }

 private:
  static char digit_of(const Limit& limit, size_t place) {
    return place < limit.digits.size() ? limit.digits[place] : '0';
  }
  static bool is_zero_from(const Limit& limit, size_t place) {
    return place >= limit.digits.size() || limit.digits.find_first_not_of('0', place) == std::string::npos;
  }

  bool may_end(size_t place, bool at_low, bool at_high) const {
    if (at_low && (low_->is_strict || !is_zero_from(*low_, place))) return false;
    return !at_high || !high_->is_strict || !is_zero_from(*high_, place);
  }

  void add_digits(int32_t from, size_t place, bool at_low, bool at_high) {
    const char least = place == 0 && whole_ > 1 ? '1' : '0';
    for (char digit = least; digit <= '9'; ++digit) {
      if (at_low && digit < digit_of(*low_, place)) continue;
      if (at_high && digit > digit_of(*high_, place)) break;
      const bool is_low = at_low && digit == digit_of(*low_, place);
      const bool is_high = at_high && digit == digit_of(*high_, place);
      const int32_t next = state(place + 1, is_low, is_high);
      automaton_.add_bytes(from, static_cast<uint8_t>(digit), static_cast<uint8_t>(digit), next);
    }
  }

  ByteAutomaton& automaton_;
  size_t whole_, fraction_;
  const std::optional<Limit>&low_, &high_;
  int32_t to_;
  std::map<std::tuple<size_t, bool, bool>, int32_t> states_;
};

// low, high: without signs; absent: 0, and no limit.
void add_magnitudes(ByteAutomaton& automaton, NumberKind kind, const std::optional<NumberBound>& low,
                    const std::optional<NumberBound>& high, int32_t from, int32_t to) {
  const auto limit_of = [](const std::optional<NumberBound>& bound, size_t whole) -> std::optional<DigitStates::Limit> {
    if (!bound || bound->whole.size() != whole) return std::nullopt;
    return DigitStates::Limit{bound->whole + bound->fraction, bound->is_strict};
  };
  for (size_t whole = 1; whole <= kMostDigits; ++whole) {
    if (low && low->whole.size() > whole) continue;
    if (high && high->whole.size() < whole) break;
    const size_t fraction = kind == NumberKind::kInteger || whole > kMostExact ? 0 : kMostExact - whole;
    const auto lowest = limit_of(low, whole), highest = limit_of(high, whole);
    DigitStates states(automaton, whole, fraction, lowest, highest, to);
    automaton.add_empty(from, states.state(0, lowest.has_value(), highest.has_value()));
  }
}

}  // namespace

NumberBound number_bound(const std::string& number, bool is_strict, const std::string& where) {
  NumberBound bound{.is_negative = number.starts_with('-'), .is_strict = is_strict};
  const size_t begin = bound.is_negative ? 1 : 0, exponent_at = std::min(number.find_first_of("eE"), number.size());
  int64_t exponent = 0;
  if (exponent_at < number.size()) {
    const size_t first = exponent_at + (number[exponent_at + 1] == '+' ? 2 : 1);
    std::from_chars(number.data() + first, number.data() + number.size(), exponent);
  }
  std::string digits = number.substr(begin, exponent_at - begin);
  size_t point = std::min(digits.find('.'), digits.size());
  digits.erase(point, 1);
  constexpr int64_t kMost = 2 * static_cast<int64_t>(kMostDigits);
  for (exponent = std::clamp(exponent, -kMost, kMost); exponent > 0; --exponent) {
    if (++point > digits.size()) digits += '0';
  }
  for (; exponent < 0; ++exponent) {
    if (point == 0) {
      digits.insert(0, 1, '0');
    } else {
      --point;
    }
  }
  bound.whole = digits.substr(0, point);
  bound.fraction = digits.substr(point);
  bound.whole.erase(0, std::min(bound.whole.find_first_not_of('0'), bound.whole.size()));
  if (bound.whole.empty()) bound.whole = "0";
  bound.fraction.erase(bound.fraction.find_last_not_of('0') + 1);
  if (bound.whole == "0" && bound.fraction.empty()) bound.is_negative = false;
  if (bound.whole.size() > kMostDigits || bound.fraction.size() > kMostDigits) {
    fail<ArgumentError>("schema", "{} must be a number of at most {} digits before and after the point, got {}", where,
                        kMostDigits, io::printable(number));
  }
  return bound;
}

int32_t add_number(ByteAutomaton& automaton, NumberKind kind, const std::optional<NumberBound>& low,
                   const std::optional<NumberBound>& high, int32_t from) {
  const int32_t to = automaton.add_state();
  const NumberBound above_zero{.is_strict = true, .whole = "0"};
  // 0 and above
  if (!high || !high->is_negative)
    add_magnitudes(automaton, kind, low && !low->is_negative ? low : std::nullopt, high, from, to);
  // Below 0: the bounds change places.
  if (!low || low->is_negative) {
    add_magnitudes(automaton, kind, high && high->is_negative ? *high : above_zero, low, automaton.add_text(from, "-"),
                   to);
  }
  if (kind == NumberKind::kInteger || low || high) return to;
  const int32_t end = automaton.add_state(), exponent = automaton.add_state(), digits = automaton.add_state(),
                last = automaton.add_state();
  automaton.add_empty(to, end);
  for (const uint8_t letter : {'E', 'e'}) automaton.add_bytes(to, letter, letter, exponent);
  for (const uint8_t sign : {'+', '-'}) automaton.add_bytes(exponent, sign, sign, digits);
  automaton.add_empty(exponent, digits);
  automaton.add_bytes(digits, '0', '9', last);
  automaton.add_empty(last, end);
  automaton.add_bytes(last, '0', '9', end);
  return end;
}

}  // namespace rf::tasks

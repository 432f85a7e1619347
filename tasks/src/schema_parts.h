// Parts of JSON texts as states of an automaton. Each function adds them from a state on, and returns the state after
// them, or leads to a given one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "byte_automaton.h"

namespace rf::tasks {

// Characters low..high within a JSON string: unescaped, or by two-character escapes if they must be escaped.
void add_string_characters(ByteAutomaton& automaton, int32_t from, char32_t low, char32_t high, int32_t to);
// One character of a string, in all its spellings but surrogates.
void add_any_character(ByteAutomaton& automaton, int32_t from, int32_t to);

// The texts of a JSON string in which an expression finds a match, without quotation marks: literals, `.`, classes, \d
// \w \s, groups, |, * + ? {m,n}, and ^ and $ at the ends of the alternatives. Throws ArgumentError, naming `where`, for
// other syntax.
int32_t add_pattern(ByteAutomaton& automaton, const std::string& pattern, const std::string& where, int32_t from);

// A bound of a number, in decimal digits without sign.
struct NumberBound {
  bool is_negative = false, is_strict = false;
  std::string whole{}, fraction{};
};
// Throws ArgumentError for numbers of more than 18 digits on a side of the point.
NumberBound number_bound(const std::string& number, bool is_strict, const std::string& where);

// Numbers in decimal digits between bounds: integers, or with a fraction. Without bounds also with an exponent.
enum class NumberKind { kInteger, kNumber };
int32_t add_number(ByteAutomaton& automaton, NumberKind kind, const std::optional<NumberBound>& low,
                   const std::optional<NumberBound>& high, int32_t from);

}  // namespace rf::tasks

// Names in messages: the known name that a misspelt one probably stands for ("did you mean ...?"), and lists of names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rf::io {

// The name in `known` with the fewest edits (insertions, deletions, substitutions of bytes) from `given`, the first of
// several; "" if none is within two edits or a quarter of its length. The result is a view of an element of `known`.
std::string_view nearest_name(std::string_view given, std::span<const std::string_view> known);

// "a", "a or b", "a, b or c".
std::string listed(std::span<const std::string_view> names, std::string_view conjunction);

}  // namespace rf::io

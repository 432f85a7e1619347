// Text of any origin (files, names, what a user typed) made fit for where it is shown. A terminal is steered by control
// characters (C0 but for line feed and tab, DEL, C1) and reorders what it shows by those of bidirectional text: these,
// and bytes that are not UTF-8, are escaped. printable.h is for what a message quotes.
#pragma once

#include <string>
#include <string_view>

namespace rf::io {

// "\x1b" for ESC or a byte that is not UTF-8, "\u202e" for a character above 127; the rest as it is.
std::string terminal_text(std::string_view text);

// A line of JSON as nlohmann writes it, which is UTF-8 with all below 32 escaped: the characters above are escaped too,
// as JSON has it, so that it says the same.
std::string json_text(std::string_view json);

// As a word of a command line of bash, quoted where that is needed.
std::string shell_word(std::string_view text);

}  // namespace rf::io

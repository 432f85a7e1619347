// Text of any origin (files, names, user input) made safe for the place where it is shown. Control characters (C0
// except line feed and tab, DEL, C1) control a terminal, and control characters of bidirectional text reorder its
// output. Both, and bytes that are not UTF-8, are escaped. printable.h is for text that a message quotes.
#pragma once

#include <string>
#include <string_view>

namespace rf::io {

// "\x1b" for ESC or a byte that is not UTF-8, "\u202e" for a character above 127; the rest unchanged.
std::string terminal_text(std::string_view text);

// Shortens a message to a readable length: keeps the beginning and the end if it quotes a long text. The command line
// and Python call it before they show a message of the product.
std::string message_text(std::string_view message);

// A line of JSON as nlohmann writes it, which is UTF-8 with everything below 32 escaped: the characters above are
// escaped too, by JSON's rules, so that the value is the same.
std::string json_text(std::string_view json);

// The text as one word of a bash command line, quoted if needed.
std::string shell_word(std::string_view text);

}  // namespace rf::io

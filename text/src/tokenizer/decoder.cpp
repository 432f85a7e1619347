// Words with spaces between them and pieces appended to them; or bytes of the byte alphabet, with ill-formed UTF-8
// replaced.
#include "tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "models/byte_alphabet.h"
#include "rf/io/utf8.h"

namespace rf::text {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (text.find(from) == std::string::npos) return;
  std::string replaced;
  for (std::string_view rest = text;;) {
    const size_t at = rest.find(from);
    replaced.append(rest.substr(0, at));
    if (at == std::string_view::npos) break;
    replaced.append(to);
    rest.remove_prefix(at + from.size());
  }
  text = std::move(replaced);
}

// Removes spaces before English punctuation and contractions, in the order of both libraries.
constexpr std::pair<std::string_view, std::string_view> kCleanup[] = {
    {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}};
constexpr std::pair<std::string_view, std::string_view> kLastCleanup[] = {
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

void clean_up(std::string& text) {
  for (const auto& [from, to] : kCleanup) replace_all(text, from, to);
  for (const auto& [from, to] : kLastCleanup) replace_all(text, from, to);
}

// The decoder of `tokenizers` cleans each token separately, and has one contraction more.
void clean_up_token(std::string& token) {
  for (const auto& [from, to] : kCleanup) replace_all(token, from, to);
  replace_all(token, " do not", " don't");
  for (const auto& [from, to] : kLastCleanup) replace_all(token, from, to);
}

std::string join_word_pieces(const std::vector<std::string_view>& tokens, bool cleanup) {
  constexpr std::string_view kPrefix = "##";
  std::string text, token;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool glued = i > 0 && tokens[i].starts_with(kPrefix);
    token.clear();
    if (i > 0 && !glued) token.push_back(' ');
    token += tokens[i].substr(glued ? kPrefix.size() : 0);
    if (cleanup) clean_up_token(token);
    text += token;
  }
  return text;
}

// Bytes at the end of a text to which clean_up may do something else once more text follows. What it removes is a space
// before some of kCleanedUp, and it looks at 6 bytes at most: " n ' t" becomes " n't", then "n't".
size_t unsettled_bytes(std::string_view text) {
  constexpr std::string_view kCleanedUp = " .?!,'ntmsver";
  constexpr size_t kMostBytes = 5;  // and one that follows
  const size_t other = text.find_last_not_of(kCleanedUp);
  const size_t run = other == std::string_view::npos ? text.size() : text.size() - other - 1;
  const size_t count = std::min(run, kMostBytes);
  return text.substr(text.size() - count).find(' ') == std::string_view::npos ? 0 : count;
}

// A token that is not in the byte alphabet, which only an added one can be, stands for its own text.
DecodedText join_bytes(const std::vector<std::string_view>& tokens) {
  std::string bytes;
  for (const std::string_view token : tokens) {
    if (!append_bytes(token, bytes)) bytes += token;
  }
  DecodedText result;
  for (std::string_view rest = bytes; !rest.empty();) {
    const Decoded decoded = decode_utf8(rest);
    const bool may_be_completed = !decoded.valid && static_cast<size_t>(decoded.length) == rest.size();
    append_utf8(decoded.code, result.text);
    if (!may_be_completed) result.settled = result.text.size();
    rest.remove_prefix(static_cast<size_t>(decoded.length));
  }
  return result;
}

std::string join_with_spaces(const std::vector<std::string_view>& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text.push_back(' ');
    text += tokens[i];
  }
  return text;
}

}  // namespace

DecodedText join_tokens(const std::vector<std::string_view>& tokens, const DecodingOptions& options) {
  DecodedText result;
  if (options.join == DecodingOptions::Join::kBytes) {
    result = join_bytes(tokens);
  } else {
    result.text = options.join == DecodingOptions::Join::kSpaces ? join_with_spaces(tokens)
                                                                 : join_word_pieces(tokens, options.cleanup);
    result.settled = result.text.size();
  }
  if (!options.clean_up_tokenization_spaces) return result;
  const size_t open =
      result.text.size() - result.settled + unsettled_bytes(std::string_view(result.text).substr(0, result.settled));
  clean_up(result.text);
  result.settled = result.text.size() - std::min(open, result.text.size());
  while (result.settled < result.text.size() && !begins_character(result.text[result.settled])) --result.settled;
  return result;
}

}  // namespace rf::text

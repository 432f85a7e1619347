// Words with spaces between them and pieces appended to them; or bytes of the byte alphabet, with ill-formed UTF-8
// replaced.
#include "rf/text/decoding_stream.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "models/byte_alphabet.h"
#include "models/byte_pair_model.h"
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

constexpr std::string_view kCleanedUp = " .?!,'ntmsver";  // the bytes of all matches

// Bytes at the end of a text whose cleaning may change when more text follows. clean_up removes a space before some of
// kCleanedUp, and examines at most 6 bytes: " n ' t" becomes " n't", then "n't".
size_t unsettled_bytes(std::string_view text) {
  constexpr size_t kMostBytes = 5;  // and one that follows
  const size_t other = text.find_last_not_of(kCleanedUp);
  const size_t run = other == std::string_view::npos ? text.size() : text.size() - other - 1;
  const size_t count = std::min(run, kMostBytes);
  return text.substr(text.size() - count).find(' ') == std::string_view::npos ? 0 : count;
}

// Where the text can be divided so that its parts are cleaned separately: the last place that no match crosses,
// whatever follows. A match begins with a space, has at most kMostMatched bytes, all of kCleanedUp, and only loses
// spaces. So no match crosses a place without a space before it, back to some other character or for that many bytes.
// The start of the text is such a place.
size_t last_division(std::string_view text) {
  constexpr size_t kMostMatched = 4;  // " n't"
  const auto is_division = [text](size_t end) {
    for (size_t at = end; at > 0 && end - at < kMostMatched - 1;) {
      const char before = text[--at];
      if (before == ' ') return false;
      if (kCleanedUp.find(before) == std::string_view::npos) return true;
    }
    return true;
  };
  size_t end = text.size();
  while (end > 0 && !is_division(end)) --end;
  return end;
}

// The byte of a token <0xNN>, with two hexadecimal digits; -1 for others.
int fallback_byte(std::string_view token) {
  int byte = -1;
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return byte;
  const char *const begin = token.data() + 3, *const end = begin + 2;
  const auto read = std::from_chars(begin, end, byte, 16);
  return read.ptr == end && byte >= 0 ? byte : -1;
}

}  // namespace

std::optional<std::string> Tokenizer::bytes_of(int32_t id) const {
  using Join = DecodingOptions::Join;
  const Join join = options_.decoding.join;
  const std::optional<std::string_view> token = shown(id, SkipSpecials::kYes);
  if (!token || join == Join::kWordPieces || join == Join::kSpaces) return std::nullopt;
  std::string bytes;
  if (join == Join::kBytes) return append_bytes(*token, bytes) ? bytes : std::string(*token);
  if (const int byte = fallback_byte(*token); join == Join::kFallback && byte >= 0)
    return std::string(1, static_cast<char>(byte));
  bytes = *token;
  replace_all(bytes, kSpaceMarker, " ");
  return bytes;
}

void DecodingStream::add(int32_t id) {
  const std::optional<std::string_view> token = tokenizer_->shown(id, skip_);
  if (!token) return;
  switch (options().join) {
    case DecodingOptions::Join::kWordPieces: add_word_piece(*token); break;
    case DecodingOptions::Join::kBytes: add_bytes(*token); break;
    case DecodingOptions::Join::kMetaspace: {
      std::string text(*token);
      replace_all(text, kSpaceMarker, is_first_ && options().strip_left > 0 ? "" : " ");
      open_ += text;
      break;
    }
    case DecodingOptions::Join::kFallback: add_fallback(*token); break;
    case DecodingOptions::Join::kSpaces:
      if (!is_first_) open_.push_back(' ');
      open_ += *token;
      break;
  }
  is_first_ = false;
}

void DecodingStream::add_word_piece(std::string_view token) {
  constexpr std::string_view kPrefix = "##";
  const bool glued = !is_first_ && token.starts_with(kPrefix);
  token_.clear();
  if (!is_first_ && !glued) token_.push_back(' ');
  token_ += token.substr(glued ? kPrefix.size() : 0);
  if (options().cleanup) clean_up_token(token_);
  open_ += token_;
}

// A token that is not in the byte alphabet (only an added token can be) stands for its text.
void DecodingStream::add_bytes(std::string_view token) {
  if (!append_bytes(token, incomplete_)) incomplete_ += token;
  std::string_view rest = incomplete_;
  while (!rest.empty()) {
    const Decoded decoded = decode_utf8(rest);
    if (!decoded.valid && static_cast<size_t>(decoded.length) == rest.size()) break;  // further bytes may complete it
    append_utf8(take_utf8(rest).code, open_);
  }
  incomplete_.erase(0, incomplete_.size() - rest.size());
}

// A token such as <0x0A> is a byte; others end a run of bytes.
void DecodingStream::add_fallback(std::string_view token) {
  if (const int byte = fallback_byte(token); byte >= 0) {
    incomplete_.push_back(static_cast<char>(byte));
    return;
  }
  append_stripped(fallback_text(), open_);
  incomplete_.clear();
  std::string text(token);
  replace_all(text, kSpaceMarker, " ");
  append_stripped(text, open_);
}

std::string DecodingStream::fallback_text() const {
  if (is_utf8(incomplete_)) return incomplete_;
  std::string text;
  for (size_t i = 0; i < incomplete_.size(); ++i) append_utf8(kReplacement, text);
  return text;
}

void DecodingStream::append_stripped(std::string_view text, std::string& to) {
  for (; stripped_ >= 0 && stripped_ < options().strip_left && text.starts_with(' '); ++stripped_)
    text.remove_prefix(1);
  if (!text.empty()) stripped_ = -1;
  to += text;
}

// The first bytes of the open part are final.
void DecodingStream::fix(size_t bytes) {
  token_.assign(open_, 0, bytes);
  open_.erase(0, bytes);
  if (cleans_up_) clean_up(token_);
  result_.text += token_;
  fixed_ = result_.text.size();
}

const DecodedText& DecodingStream::text() {
  std::string& text = result_.text;
  text.resize(fixed_);
  fix(cleans_up_ ? last_division(open_) : open_.size());
  token_ = open_;
  if (options().join == DecodingOptions::Join::kFallback) {
    const int stripped = stripped_;
    append_stripped(fallback_text(), token_);
    stripped_ = stripped;
  } else if (!incomplete_.empty()) {
    append_utf8(kReplacement, token_);
  }
  const size_t unsettled = token_.size() - open_.size() + (cleans_up_ ? unsettled_bytes(open_) : 0);
  if (cleans_up_) clean_up(token_);
  text += token_;
  size_t settled = text.size() - std::min(unsettled, token_.size());
  while (settled < text.size() && !begins_character(text[settled])) --settled;
  result_.settled = std::max(result_.settled, settled);  // settled text stays settled
  return result_;
}

}  // namespace rf::text

#include "splitters/normalizer_chain.h"

#include <algorithm>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "unicode/graphemes.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

using Chars = std::vector<NormalizedChar>;
using Kind = NormalizerStep::Kind;

NormalizedChar with_code(NormalizedChar source, char32_t code) {
  source.code = code;
  return source;
}

std::string utf8_of(const Chars& chars) {
  std::string text;
  text.reserve(chars.size());
  for (const NormalizedChar& c : chars) append_utf8(c.code, text);
  return text;
}

// Characters that a map removes at the front are not counted, so later sources move, as in `tokenizers`.
class Mapping {
 public:
  explicit Mapping(const Charsmap& map) : map_(map) {}
  void run(Chars& chars) {
    for (size_t begin = 0; begin < chars.size();) {
      if (is_kept(chars, begin)) {
        keep(chars[begin++].code);
        continue;
      }
      size_t end = begin;
      for (GraphemeState state; end < chars.size() && (state.continues(chars[end].code) || end == begin);) ++end;
      map_cluster(chars, begin, end);
      begin = end;
    }
    if (modified_) apply_changes(changes_, first_, chars);
  }

 private:
  // ASCII characters are clusters of one character, except before others and CR LF.
  bool is_kept(const Chars& chars, size_t at) const {
    constexpr char32_t kAscii = 0x80;
    return chars[at].code < kAscii && (at + 1 == chars.size() || chars[at + 1].code < kAscii) &&
           chars[at].code != U'\r' && map_.keeps(static_cast<char>(chars[at].code));
  }
  void map_cluster(const Chars& chars, size_t begin, size_t end) {
    constexpr size_t kTooLong = 6;  // bytes
    text_.clear();
    for (size_t i = begin; i < end && text_.size() < kTooLong; ++i) append_utf8(chars[i].code, text_);
    if (text_.size() < kTooLong && replace(chars, begin, end - begin)) return;
    for (size_t i = begin; i < end; ++i) {
      text_.clear();
      append_utf8(chars[i].code, text_);
      if (!replace(chars, i, 1)) keep(chars[i].code);
    }
  }
  void keep(char32_t code) {
    if (modified_) changes_.push_back({code, 0});
  }
  // The characters of text_, from `begin` on; false if the map keeps them.
  bool replace(const Chars& chars, size_t begin, size_t count) {
    std::optional<std::string_view> value = map_.find(text_);
    if (!value) return false;
    if (!modified_) {
      modified_ = true;
      changes_.reserve(chars.size() - begin + 1);
      first_ = begin == 0 ? 0 : begin - 1;  // a removal also changes the character before
      if (begin > 0) changes_.push_back({chars[first_].code, 0});
    }
    size_t added = 0;
    while (!value->empty()) {
      changes_.push_back({take_utf8(*value).code, added < count ? 0 : 1});
      ++added;
    }
    if (added < count && !changes_.empty()) changes_.back().added -= static_cast<int32_t>(count - added);
    return true;
  }
  const Charsmap& map_;
  std::vector<CodeChange> changes_;  // from the character first_ on
  size_t first_ = 0;
  std::string text_;
  bool modified_ = false;
};

// All matches become the content, whose source is the last character of the match.
template <typename Next>
void replace_matches(Chars& chars, std::string_view content, Next next) {
  const std::string text = utf8_of(chars);
  Chars out;
  size_t at = 0, byte = 0;
  const auto skip = [&](size_t to, bool copies) {
    for (; byte < to; ++at) {
      if (copies) out.push_back(chars[at]);
      byte += static_cast<size_t>(decode_utf8(std::string_view(text).substr(byte)).length);
    }
  };
  for (ExpressionSearch::Match match = next(text, 0); match.begin < text.size(); match = next(text, match.end)) {
    skip(match.begin, true);
    skip(match.end, false);
    for (std::string_view rest = content; !rest.empty();) out.push_back(with_code(chars[at - 1], take_utf8(rest).code));
  }
  if (byte == 0) return;
  skip(text.size(), true);
  chars.swap(out);
}

void strip_ends(Chars& chars, bool left, bool right) {
  const auto stays = [](const NormalizedChar& c) { return !is_white_space(c.code); };
  if (right) chars.erase(std::find_if(chars.rbegin(), chars.rend(), stays).base(), chars.end());
  if (left) chars.erase(chars.begin(), std::ranges::find_if(chars, stays));
}

void put_in_front(Chars& chars, std::string_view text) {
  if (chars.empty()) return;
  const NormalizedChar source = chars.front();
  Chars front;
  while (!text.empty()) front.push_back(with_code(source, take_utf8(text).code));
  chars.insert(chars.begin(), front.begin(), front.end());
}

void lower_case(Chars& chars) {
  Chars out;
  out.reserve(chars.size());
  for (const NormalizedChar& c : chars) {
    const BertCharacter& entry = bert_character(c.code);
    if (!entry.has(BertCharacter::kLowers)) {
      out.push_back(c);
      continue;
    }
    for (const char32_t code : entry.lower()) out.push_back(with_code(c, code));
  }
  chars.swap(out);
}

void normalize_form(Chars& chars, Kind form) {
  constexpr char32_t kAscii = 0x80;
  const auto may_change = [form](char32_t code) {
    return form == Kind::kNfc ? may_change_under_nfc(code) : code >= kAscii;
  };
  if (std::ranges::none_of(chars, may_change, &NormalizedChar::code)) return;
  const bool is_compatible = form == Kind::kNfkc || form == Kind::kNfkd;
  std::vector<CodeChange> changes;
  changes.reserve(chars.size());
  for (const NormalizedChar& c : chars) {
    const std::u32string_view parts =
        c.code < kAscii || !is_compatible ? std::u32string_view() : compatibility_decomposition(c.code);
    for (size_t i = 0; i < parts.size(); ++i) changes.push_back({parts[i], i == 0 ? 0 : 1});
    if (parts.empty()) append_decomposed(c.code, changes);
  }
  order_marks(changes, [](const CodeChange& c) { return nfc_class(c.code); });
  if (form == Kind::kNfc || form == Kind::kNfkc) compose(changes);
  apply_changes(changes, 0, chars);
}

// As `tokenizers` removes and replaces characters for Nmt.
void clean_for_translation(Chars& chars) {
  const auto among = [](char32_t code, std::u32string_view ranges) {  // pairs of a first and a last one
    for (; !ranges.empty(); ranges.remove_prefix(2)) {
      if (code >= ranges[0] && code <= ranges[1]) return true;
    }
    return false;
  };
  std::erase_if(
      chars, [among](const NormalizedChar& c) { return among(c.code, U"\1\10\13\13\16\37\177\177\x8F\x8F\x9F\x9F"); });
  for (NormalizedChar& c : chars) {
    if (among(c.code, U"\t\n\f\r\u1680\u1680\u200B\u200F\u2028\u2029\u2581\u2581\uFEFF\uFEFF\uFFFD\uFFFD"))
      c.code = U' ';
  }
}

}  // namespace

NormalizerChain::NormalizerChain(const std::vector<NormalizerStep>& steps) {
  constexpr size_t kMaxGrowth = size_t{1} << 16;
  size_t growth = 1;  // bytes at most for a character
  for (const NormalizerStep& step : steps) {
    steps_.push_back({step});
    size_t bytes = step.content.size() + (step.kind == Kind::kPrepend ? step.text.size() + 1 : 0);
    if (step.kind == Kind::kPrecompiled) {
      steps_.back().charsmap = std::make_shared<const Charsmap>(step.text);
      bytes = steps_.back().charsmap->longest();
    }
    growth *= std::max<size_t>(1, bytes);
    if (growth > kMaxGrowth)
      fail("normalizer", "the steps of a normalizer must make at most {} bytes of one, got more", kMaxGrowth);
    if (step.kind == Kind::kReplaceExpression) {
      steps_.back().expression = std::make_shared<const Expression>(step.text);
    }
    if (step.kind == Kind::kReplace && step.text.empty()) {
      fail("normalizer", "the pattern of a Replace must not be empty, got \"\"");
    }
  }
}

void NormalizerChain::normalize(Chars& chars) const {
  for (const Step& step : steps_) {
    const NormalizerStep& options = step.options;
    switch (options.kind) {
      case Kind::kPrecompiled: Mapping(*step.charsmap).run(chars); break;
      case Kind::kReplace:
        replace_matches(chars, options.content, [&](std::string_view text, size_t from) {
          const size_t at = std::min(text.find(options.text, from), text.size());
          return ExpressionSearch::Match{at, at + options.text.size()};
        });
        break;
      case Kind::kReplaceExpression: {
        ExpressionSearch search(*step.expression);
        replace_matches(chars, options.content, [&](std::string_view text, size_t from) {
          if (from == 0) search.begin(text);
          return search.next(from);
        });
        break;
      }
      case Kind::kStrip: strip_ends(chars, options.left, options.right); break;
      case Kind::kPrepend: put_in_front(chars, options.text); break;
      case Kind::kNfc:
      case Kind::kNfd:
      case Kind::kNfkc:
      case Kind::kNfkd: normalize_form(chars, options.kind); break;
      case Kind::kNmt: clean_for_translation(chars); break;
      case Kind::kLowercase: lower_case(chars); break;
      case Kind::kStripAccents:
        std::erase_if(chars, [](const NormalizedChar& c) { return is_combining_mark(c.code); });
        break;
    }
  }
}

std::string NormalizerChain::normalize(std::string_view text) const {
  Chars chars;
  while (!text.empty()) chars.push_back({take_utf8(text).code, 0, 0, 0});
  normalize(chars);
  return utf8_of(chars);
}

}  // namespace rf::text

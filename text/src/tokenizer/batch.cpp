// Rows of model input (rf/text/batch.h). Lengths and windows follow the library `tokenizers`: in a pair that is too
// long, the shorter text keeps its tokens while it has at most half of the available tokens ("room"); windows of an
// overflow start every room - stride tokens, and the window that reaches the end is the last.
#include "rf/text/batch.h"

#include <algorithm>
#include <limits>

#include "rf/io/error.h"
#include "rf/io/processors.h"
#include "rf/io/utf8.h"
#include "rf/text/workers.h"

namespace rf::text {
namespace {

using Piece = SequenceTemplate::Piece;
using Part = SequenceTemplate::Part;
constexpr int kMaxThreads = 1024;

struct Window {
  size_t begin, end;
};

// The first window is the kept part; the others, in order, are the overflow.
std::vector<Window> windows_of(size_t tokens, size_t room, const BatchOptions& options) {
  if (tokens <= room) return {{0, tokens}};
  const bool right = options.truncation_side == Side::kRight;
  const auto window = [&](size_t first) {  // `first`: counted from the side that is kept
    const size_t last = std::min(first + room, tokens);
    return right ? Window{first, last} : Window{tokens - last, tokens - first};
  };
  std::vector<Window> windows = {window(0)};
  if (options.overflow == Overflow::kDropped) return windows;
  const auto stride = static_cast<size_t>(options.stride);
  if (stride >= room) {
    fail("tokenize", "stride must be below the {} tokens that max_length leaves for the text, got {}", room, stride);
  }
  for (size_t first = room - stride; first + stride < tokens; first += room - stride) {
    windows.push_back(window(first));
  }
  return windows;
}

struct KeptTokens {
  size_t first, second;  // tokens that each text may keep
};

KeptTokens longest_first(size_t first, size_t second, size_t room) {
  size_t shorter = std::min(first, second), longer = std::max(first, second);
  longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  return first <= second ? KeptTokens{shorter, longer} : KeptTokens{longer, shorter};
}

KeptTokens kept_tokens(size_t first, size_t second, bool is_pair, size_t room, const BatchOptions& options) {
  if (options.truncation == Truncation::kNone || first + second <= room) return {first, second};
  if (room == 0) return {0, 0};  // whatever the truncation
  const size_t excess = first + second - room;
  if (options.truncation == Truncation::kLongestFirst) {
    return is_pair ? longest_first(first, second, room) : KeptTokens{room, 0};
  }
  const bool of_first = options.truncation == Truncation::kOnlyFirst;
  if (!of_first && !is_pair) fail("tokenize", "truncation only_second needs pairs of texts, got one text");
  if ((of_first ? first : second) <= excess) {
    fail("tokenize", "the {} text must have more than the {} tokens that are too many, got {}",
         of_first ? "first" : "second", excess, of_first ? first : second);
  }
  return of_first ? KeptTokens{first - excess, second} : KeptTokens{first, second - excess};
}

// If the end of a text is truncated, tokens are computed until the number of kept tokens is known.
constexpr size_t kAllTokens = std::numeric_limits<size_t>::max();

// The number of tokens of each text that must be known, given `first` and `second`, at most `known` each; `known` if
// that is enough. One token more than the room shows that a text is too long, but not which text of a pair is longer
// and keeps the odd token, nor the numbers for a message.
size_t tokens_to_know(size_t first, size_t second, size_t known, bool is_pair, size_t room,
                      const BatchOptions& options) {
  if (options.truncation == Truncation::kLongestFirst) {
    const bool is_tie = is_pair && first == known && second == known && room % 2 == 1;
    return !is_tie ? known : known > kAllTokens / 2 ? kAllTokens : 2 * known;
  }
  const size_t whole = options.truncation == Truncation::kOnlyFirst ? second : first;
  return first + second > room && whole >= room ? kAllTokens : known;
}

void check(const Tokenizer& tokenizer, const BatchOptions& options) {
  const bool limited = options.truncation != Truncation::kNone || options.padding == Padding::kMaxLength;
  if (limited && options.max_length < 1) {
    fail("tokenize", "max_length must be at least 1 with truncation or padding to it, got {}", options.max_length);
  }
  if (options.stride < 0) fail("tokenize", "stride must be at least 0, got {}", options.stride);
  if (options.pad_to_multiple_of < 1) {
    fail("tokenize", "pad_to_multiple_of must be at least 1, got {}", options.pad_to_multiple_of);
  }
  if (options.truncation != Truncation::kNone && options.padding != Padding::kNone &&
      options.max_length % options.pad_to_multiple_of != 0) {
    fail("tokenize", "max_length must be a multiple of pad_to_multiple_of {}, got {}", options.pad_to_multiple_of,
         options.max_length);
  }
  if (options.threads < 0 || options.threads > kMaxThreads) {
    fail("tokenize", "threads must be in [0, {}], got {}", kMaxThreads, options.threads);
  }
  if (options.overflow == Overflow::kRows && options.truncation == Truncation::kNone) {
    fail("tokenize", "overflowing rows need truncation, got none");
  }
  if (options.padding != Padding::kNone && tokenizer.vocabulary().special().pad < 0) {
    fail("tokenize", "padding needs a padding token in the vocabulary, got none");
  }
}

int threads_of(const BatchOptions& options) {
  return options.threads > 0 ? options.threads : io::available_processors();
}

// The template, without special tokens if none are wanted.
std::vector<Piece> pieces_of(const std::vector<Piece>& pieces, AddSpecials add_specials) {
  std::vector<Piece> wanted;
  for (const Piece& piece : pieces) {
    if (piece.part != Part::kSpecial || add_specials == AddSpecials::kYes) wanted.push_back(piece);
  }
  return wanted;
}

size_t count_specials(const std::vector<Piece>& pieces) {
  return static_cast<size_t>(
      std::count_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.part == Part::kSpecial; }));
}

// A sample's tokens, and the tokens of each of its rows.
struct Plan {
  struct Windows {
    Window of[2];
  };
  const std::vector<Piece>* pieces = nullptr;
  Encoding texts[2];
  std::vector<Windows> rows;

  size_t length(const Windows& windows) const {
    size_t length = count_specials(*pieces);
    for (const Window& window : windows.of) length += window.end - window.begin;
    return length;
  }
  // of the text that comes first in the template
  size_t first_text() const {
    const auto text = std::ranges::find_if(*pieces, [](const Piece& piece) { return piece.part != Part::kSpecial; });
    return text != pieces->end() && text->part == Part::kSecond ? 1 : 0;
  }
};

void append_filling(Row& row, size_t count, int32_t id, uint8_t type, uint8_t mask) {
  for (size_t i = 0; i < count; ++i) row.tokens.append_special(id);
  row.types.insert(row.types.end(), count, type);
  row.mask.insert(row.mask.end(), count, mask);
  row.text_index.insert(row.text_index.end(), count, -1);
}

void append_window(Row& row, const Encoding& text, const Window& window, uint8_t type, int8_t index) {
  row.tokens.append(text, window.begin, window.end);
  const size_t count = window.end - window.begin;
  row.types.insert(row.types.end(), count, type);
  row.mask.insert(row.mask.end(), count, 1);
  row.text_index.insert(row.text_index.end(), count, index);
}

void clear(Row& row, size_t length) {
  row.tokens.clear();
  row.tokens.reserve(length);
  row.types.clear();
  row.types.reserve(length);
  row.mask.clear();
  row.mask.reserve(length);
  row.text_index.clear();
  row.text_index.reserve(length);
}

}  // namespace

class BatchEncoder::Impl {
 public:
  Impl(const Tokenizer& tokenizer, const BatchOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        single_(pieces_of(tokenizer.sequence_template().single, options.add_specials)),
        pair_(pieces_of(tokenizer.sequence_template().pair, options.add_specials)),
        workers_((check(tokenizer, options), threads_of(options))) {}

  std::span<const Row> encode(std::span<const TextPair> samples) {
    if (options_.truncation == Truncation::kNone && options_.padding == Padding::kNone) {
      if (rows_.size() < samples.size()) rows_.resize(samples.size());
      workers_.for_each_index(samples.size(), [&](size_t i) {
        rows_[i].sample = static_cast<int64_t>(i);
        encode_whole(samples[i], rows_[i]);
      });
      return {rows_.data(), samples.size()};
    }
    if (plans_.size() < samples.size()) plans_.resize(samples.size());
    workers_.for_each_index(samples.size(), [&](size_t i) { tokenize(samples[i], plans_[i]); });
    padded_ = padded_length(samples.size());
    std::vector<size_t> begins(samples.size() + 1, 0);  // of each sample's rows
    for (size_t i = 0; i < samples.size(); ++i) begins[i + 1] = begins[i] + plans_[i].rows.size();
    if (rows_.size() < begins.back()) rows_.resize(begins.back());
    workers_.for_each_index(samples.size(), [&](size_t i) {
      for (size_t row = begins[i]; row < begins[i + 1]; ++row) {
        rows_[row].sample = static_cast<int64_t>(i);
        build(plans_[i], row - begins[i], rows_[row]);
      }
    });
    return {rows_.data(), begins.back()};
  }

 private:
  const std::vector<Piece>& pieces_for(const TextPair& sample) const {
    const std::vector<Piece>& pieces = sample.second ? pair_ : single_;
    if (pieces.empty()) fail("tokenize", "pairs of texts need a tokenizer that has a template for them, got none");
    return pieces;
  }
  // truncates texts without using the rest
  bool cuts_ends() const {
    return options_.truncation != Truncation::kNone && options_.truncation_side == Side::kRight &&
           options_.overflow == Overflow::kDropped;
  }
  // Appends the first tokens of sample.first.
  void encode_first(const TextPair& sample, size_t max_tokens, Encoding& out) const {
    if (sample.words.empty()) return tokenizer_.encode_first(sample.first, max_tokens, out);
    Encoding tokens;
    int32_t begin = 0, characters = 0;  // of a word
    for (const std::string_view word : sample.words) {
      if (out.size() == max_tokens) break;
      const auto next = static_cast<int32_t>(word.data() - sample.first.data());
      characters +=
          count_characters(sample.first.substr(static_cast<size_t>(begin), static_cast<size_t>(next - begin)));
      begin = next;
      tokens.clear();
      tokenizer_.encode_first(word, max_tokens - out.size(), tokens);
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens.byte_begin[i] += begin, tokens.byte_end[i] += begin;
        tokens.char_begin[i] += characters, tokens.char_end[i] += characters;
        tokens.starts_word[i] = i == 0;
      }
      out.append(tokens, 0, tokens.size());
      out.replaced_bytes += tokens.replaced_bytes;
    }
  }
  void encode_texts(const TextPair& sample, size_t room, Plan& plan) const {
    const bool is_pair = sample.second.has_value();
    for (size_t known = 0, wanted = cuts_ends() ? room + 1 : kAllTokens; known != wanted;) {
      known = wanted;
      for (Encoding& text : plan.texts) text.clear();
      encode_first(sample, known, plan.texts[0]);
      if (is_pair) tokenizer_.encode_first(*sample.second, known, plan.texts[1]);
      if (known == kAllTokens) return;
      wanted = tokens_to_know(plan.texts[0].size(), plan.texts[1].size(), known, is_pair, room, options_);
    }
  }
  // For a sample without truncation and padding: its tokens are written directly to the row.
  void encode_whole(const TextPair& sample, Row& row) const {
    const std::vector<Piece>& pieces = pieces_for(sample);
    clear(row, 0);
    for (const Piece& piece : pieces) {
      if (piece.part == Part::kSpecial) {
        append_filling(row, 1, piece.id, piece.type, 1);
        continue;
      }
      const bool is_first = piece.part == Part::kFirst;
      if (is_first) {
        encode_first(sample, kAllTokens, row.tokens);
      } else {
        tokenizer_.encode(*sample.second, row.tokens);
      }
      row.types.resize(row.size(), piece.type);
      row.mask.resize(row.size(), 1);
      row.text_index.resize(row.size(), is_first ? 0 : 1);
    }
  }
  // For a truncated text, the ill-formed sequences before its end.
  void count_replaced(std::string_view text, size_t kept, Encoding& tokens) const {
    if (!cuts_ends() || kept == tokens.size() || tokens.replaced_bytes == 0) return;
    const auto end = kept == 0 ? size_t{0} : static_cast<size_t>(tokens.byte_end[kept - 1]);
    tokens.replaced_bytes = count_ill_formed(text.substr(0, end));
  }
  void tokenize(const TextPair& sample, Plan& plan) const {
    const bool is_pair = sample.second.has_value();
    plan.pieces = &pieces_for(sample);
    const size_t specials = count_specials(*plan.pieces);
    const auto max_length = static_cast<size_t>(options_.max_length);
    if (options_.truncation != Truncation::kNone && max_length < specials) {
      fail("tokenize", "max_length must be at least the {} special tokens of a row, got {}", specials, max_length);
    }
    const size_t room = max_length - std::min(max_length, specials);
    encode_texts(sample, room, plan);
    const size_t tokens[2] = {plan.texts[0].size(), plan.texts[1].size()};
    const KeptTokens kept = kept_tokens(tokens[0], tokens[1], is_pair, room, options_);
    const std::vector<Window> windows[2] = {windows_of(tokens[0], kept.first, options_),
                                            windows_of(tokens[1], kept.second, options_)};

    count_replaced(sample.first, kept.first, plan.texts[0]);
    if (is_pair) count_replaced(*sample.second, kept.second, plan.texts[1]);

    plan.rows.clear();
    const size_t outer = plan.first_text(), inner = 1 - outer;
    const auto add_row = [&](size_t i, size_t j) {
      plan.rows.emplace_back();
      plan.rows.back().of[outer] = windows[outer][i];
      plan.rows.back().of[inner] = windows[inner][j];
    };
    add_row(0, 0);
    for (size_t i = 1; i < windows[outer].size(); ++i) {
      for (size_t j = 0; j < windows[inner].size(); ++j) add_row(i, j);
    }
    for (size_t j = 1; j < windows[inner].size(); ++j) add_row(0, j);
  }
  void build(const Plan& plan, size_t index, Row& row) const {
    const Plan::Windows& windows = plan.rows[index];
    const size_t length = plan.length(windows);
    const size_t padding = std::max(padded_, length) - length;
    const int32_t pad = tokenizer_.vocabulary().special().pad;
    clear(row, length + padding);
    if (options_.padding_side == Side::kLeft) append_filling(row, padding, pad, 0, 0);
    for (const Piece& piece : *plan.pieces) {
      if (piece.part == Part::kSpecial) {
        append_filling(row, 1, piece.id, piece.type, 1);
      } else {
        const int i = piece.part == Part::kFirst ? 0 : 1;
        append_window(row, plan.texts[i], windows.of[i], piece.type, static_cast<int8_t>(i));
      }
    }
    if (options_.padding_side == Side::kRight) append_filling(row, padding, pad, 0, 0);
    if (index == 0) row.tokens.replaced_bytes = plan.texts[0].replaced_bytes + plan.texts[1].replaced_bytes;
  }
  // of the rows of `count` plans; 0 without padding
  size_t padded_length(size_t count) const {
    if (options_.padding == Padding::kNone) return 0;
    auto length = static_cast<size_t>(options_.max_length);
    if (options_.padding == Padding::kLongest) {
      length = 0;
      for (size_t i = 0; i < count; ++i) {
        for (const Plan::Windows& windows : plans_[i].rows) length = std::max(length, plans_[i].length(windows));
      }
    }
    const auto multiple = static_cast<size_t>(options_.pad_to_multiple_of);
    return (length + multiple - 1) / multiple * multiple;
  }

  const Tokenizer& tokenizer_;
  const BatchOptions options_;
  const std::vector<Piece> single_, pair_;
  Workers workers_;
  std::vector<Plan> plans_;  // these grow and are kept for their memory
  std::vector<Row> rows_;
  size_t padded_ = 0;
};

BatchEncoder::BatchEncoder(const Tokenizer& tokenizer, const BatchOptions& options)
    : impl_(std::make_unique<Impl>(tokenizer, options)) {}
BatchEncoder::~BatchEncoder() = default;

std::span<const Row> BatchEncoder::encode(std::span<const TextPair> samples) { return impl_->encode(samples); }

}  // namespace rf::text

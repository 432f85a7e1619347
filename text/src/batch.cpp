// Rows of model input (rf/text/batch.h). Lengths and windows follow the library `tokenizers` as it behaves: of a pair
// that is too long, the shorter text keeps its tokens while it has at most half of the room; windows of an overflow
// start every room - stride tokens, and the one that reaches the end is the last.
#include "rf/text/batch.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "rf/io/error.h"

namespace rf::text {
namespace {

using Piece = SequenceTemplate::Piece;
using Part = SequenceTemplate::Part;

struct Window {
  size_t begin, end;
};

// The first window is what stays; the others, in order, are the overflow.
std::vector<Window> windows_of(size_t tokens, size_t room, const BatchOptions& options) {
  if (tokens <= room) return {{0, tokens}};
  const bool right = options.truncation_side == Side::kRight;
  const auto window = [&](size_t first) {  // `first`: counted from the side that stays
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

struct Room {
  size_t first, second;  // tokens that each text may keep
};

Room longest_first(size_t first, size_t second, size_t room) {
  size_t shorter = std::min(first, second), longer = std::max(first, second);
  longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  return first <= second ? Room{shorter, longer} : Room{longer, shorter};
}

Room room_for(size_t first, size_t second, bool is_pair, size_t room, const BatchOptions& options) {
  if (options.truncation == Truncation::kNone || first + second <= room) return {first, second};
  if (room == 0) return {0, 0};  // whatever the truncation
  const size_t excess = first + second - room;
  if (options.truncation == Truncation::kLongestFirst) {
    return is_pair ? longest_first(first, second, room) : Room{room, 0};
  }
  const bool of_first = options.truncation == Truncation::kOnlyFirst;
  if (!of_first && !is_pair) fail("tokenize", "truncation only_second needs pairs of texts, got one text");
  if ((of_first ? first : second) <= excess) {
    fail("tokenize", "the {} text must have more than the {} tokens that are too many, got {}",
         of_first ? "first" : "second", excess, of_first ? first : second);
  }
  return of_first ? Room{first - excess, second} : Room{first, second - excess};
}

void append_special(Row& row, int32_t id, uint8_t type, uint8_t mask) {
  row.tokens.append_special(id);
  row.types.push_back(type);
  row.mask.push_back(mask);
  row.text_index.push_back(-1);
}

void append_window(Row& row, const Encoding& text, const Window& window, uint8_t type, int8_t index) {
  row.tokens.append(text, window.begin, window.end);
  const size_t count = window.end - window.begin;
  row.types.insert(row.types.end(), count, type);
  row.mask.insert(row.mask.end(), count, 1);
  row.text_index.insert(row.text_index.end(), count, index);
}

class BatchEncoder {
 public:
  BatchEncoder(const Tokenizer& tokenizer, const BatchOptions& options);
  std::vector<Row> rows_of(const TextPair& sample, int64_t index) const;
  void pad(std::vector<Row>& rows) const;

 private:
  // The template without special tokens where none are wanted.
  std::vector<Piece> pieces_of(const std::vector<Piece>& pieces) const;
  Row build(const std::vector<Piece>& pieces, const Encoding (&texts)[2], const Window (&windows)[2]) const;

  const Tokenizer& tokenizer_;
  const BatchOptions& options_;
  std::vector<Piece> single_, pair_;
};

BatchEncoder::BatchEncoder(const Tokenizer& tokenizer, const BatchOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      single_(pieces_of(tokenizer.sequence_template().single)),
      pair_(pieces_of(tokenizer.sequence_template().pair)) {
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
  if (options.threads < 1) fail("tokenize", "threads must be at least 1, got {}", options.threads);
  if (options.overflow == Overflow::kRows && options.truncation == Truncation::kNone) {
    fail("tokenize", "overflowing rows need truncation, got none");
  }
  if (options.padding != Padding::kNone && tokenizer.vocabulary().special().pad < 0) {
    fail("tokenize", "padding needs a padding token in the vocabulary, got none");
  }
}

std::vector<Piece> BatchEncoder::pieces_of(const std::vector<Piece>& pieces) const {
  std::vector<Piece> wanted;
  for (const Piece& piece : pieces) {
    if (piece.part != Part::kSpecial || options_.add_specials == AddSpecials::kYes) wanted.push_back(piece);
  }
  return wanted;
}

Row BatchEncoder::build(const std::vector<Piece>& pieces, const Encoding (&texts)[2],
                        const Window (&windows)[2]) const {
  Row row;
  const size_t most = pieces.size() + (windows[0].end - windows[0].begin) + (windows[1].end - windows[1].begin);
  row.tokens.reserve(most);
  row.types.reserve(most);
  row.mask.reserve(most);
  row.text_index.reserve(most);
  for (const Piece& piece : pieces) {
    if (piece.part == Part::kSpecial) {
      append_special(row, piece.id, piece.type, 1);
    } else {
      const size_t i = piece.part == Part::kFirst ? 0 : 1;
      append_window(row, texts[i], windows[i], piece.type, static_cast<int8_t>(i));
    }
  }
  return row;
}

std::vector<Row> BatchEncoder::rows_of(const TextPair& sample, int64_t index) const {
  const bool is_pair = sample.second.has_value();
  const std::vector<Piece>& pieces = is_pair ? pair_ : single_;
  if (is_pair && pieces.empty())
    fail("tokenize", "pairs of texts need a tokenizer that has a template for them, got none");
  thread_local Encoding texts[2];  // kept for their memory
  for (Encoding& text : texts) text.clear();
  tokenizer_.encode(sample.first, texts[0]);
  if (is_pair) tokenizer_.encode(*sample.second, texts[1]);

  const auto specials = static_cast<size_t>(
      std::count_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.part == Part::kSpecial; }));
  const auto max_length = static_cast<size_t>(options_.max_length);
  if (options_.truncation != Truncation::kNone && max_length < specials) {
    fail("tokenize", "max_length must be at least the {} special tokens of a row, got {}", specials, max_length);
  }
  const Room room = room_for(texts[0].size(), texts[1].size(), is_pair, max_length - specials, options_);
  const std::vector<Window> first = windows_of(texts[0].size(), room.first, options_);
  const std::vector<Window> second = windows_of(texts[1].size(), room.second, options_);

  std::vector<Row> rows;
  const auto add = [&](const Window& a, const Window& b) {
    rows.push_back(build(pieces, texts, {a, b}));
    rows.back().sample = index;
  };
  add(first[0], second[0]);
  for (size_t i = 1; i < first.size(); ++i) {
    for (const Window& b : second) add(first[i], b);
  }
  for (size_t j = 1; j < second.size(); ++j) add(first[0], second[j]);
  rows[0].tokens.replaced_bytes = texts[0].replaced_bytes + texts[1].replaced_bytes;
  return rows;
}

void BatchEncoder::pad(std::vector<Row>& rows) const {
  if (options_.padding == Padding::kNone) return;
  size_t length = static_cast<size_t>(options_.max_length);
  if (options_.padding == Padding::kLongest) {
    length = 0;
    for (const Row& row : rows) length = std::max(length, row.size());
  }
  const auto multiple = static_cast<size_t>(options_.pad_to_multiple_of);
  length = (length + multiple - 1) / multiple * multiple;
  for (Row& row : rows) {
    if (row.size() >= length) continue;
    Row padding;
    while (padding.size() < length - row.size()) {
      append_special(padding, tokenizer_.vocabulary().special().pad, 0, 0);
    }
    Row& front = options_.padding_side == Side::kRight ? row : padding;
    Row& back = options_.padding_side == Side::kRight ? padding : row;
    front.tokens.append(back.tokens, 0, back.size());
    front.types.insert(front.types.end(), back.types.begin(), back.types.end());
    front.mask.insert(front.mask.end(), back.mask.begin(), back.mask.end());
    front.text_index.insert(front.text_index.end(), back.text_index.begin(), back.text_index.end());
    if (&front == &padding) {
      padding.sample = row.sample;
      padding.tokens.replaced_bytes = row.tokens.replaced_bytes;
      row = std::move(padding);
    }
  }
}

// Calls action(i) for i < count on some threads; the first exception, by index, is thrown.
template <typename Action>
void for_each_index(size_t count, int threads, const Action& action) {
  constexpr size_t kBlock = 16;
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> failures(count);
  const auto work = [&] {
    for (size_t begin; (begin = next.fetch_add(kBlock)) < count;) {
      for (size_t i = begin; i < std::min(begin + kBlock, count); ++i) {
        try {
          action(i);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      }
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

std::vector<Row> encode_batch(const Tokenizer& tokenizer, std::span<const TextPair> samples,
                              const BatchOptions& options) {
  const BatchEncoder encoder(tokenizer, options);
  std::vector<std::vector<Row>> by_sample(samples.size());
  for_each_index(samples.size(), options.threads,
                 [&](size_t i) { by_sample[i] = encoder.rows_of(samples[i], static_cast<int64_t>(i)); });
  std::vector<Row> rows;
  for (std::vector<Row>& of_sample : by_sample) {
    std::move(of_sample.begin(), of_sample.end(), std::back_inserter(rows));
  }
  encoder.pad(rows);
  return rows;
}

}  // namespace rf::text
